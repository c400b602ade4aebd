//! The audit: what was asked for, what was done, and whether the two agree.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::process::{descriptors, memory_kib};
use tests::{Database, Supervisor};

use crate::faults::Faults;
use crate::graph;
use crate::work::Inserted;
use crate::world::{BUDGET, DATABASES, World};

/// After the storm nothing may stand still for longer while something is left to do.
const STANDSTILL: Duration = Duration::from_secs(60);

/// What launchers and schedulers have in use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    memory_kib: u64,
    descriptors: usize,
    sessions: i64,
}

impl Sizes {
    pub fn of(world: &World) -> Sizes {
        let pids: Vec<i32> = world.with_launchers(|launchers| {
            let schedulers = launchers.iter().flat_map(Supervisor::schedulers).map(|one| one.pid);
            schedulers.chain(launchers.iter().map(Supervisor::pid)).collect()
        });
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)'";
        // the first look after a crash of the server finds its own session gone
        let count = || world.databases[0].query(sql, &[]);
        let sessions = count().or_else(count).map_or(0, |rows| rows[0].get(0));
        Sizes {
            memory_kib: pids.iter().filter_map(|pid| memory_kib(*pid)).sum(),
            descriptors: pids.iter().filter_map(|pid| descriptors(*pid)).sum(),
            sessions,
        }
    }

    pub fn larger(self, other: Sizes) -> Sizes {
        Sizes {
            memory_kib: self.memory_kib.max(other.memory_kib),
            descriptors: self.descriptors.max(other.descriptors),
            sessions: self.sessions.max(other.sessions),
        }
    }

    /// Flat: what comes and goes with a passing database, and a little.
    fn flat_since(self, before: Sizes) -> bool {
        self.memory_kib < before.memory_kib * 3 / 2 + 16 * 1024
            && self.descriptors < before.descriptors * 3 / 2 + 64
            && self.sessions < before.sessions * 3 / 2 + 8
    }
}

/// What one database's tables say.
#[derive(Debug, Default)]
struct Audit {
    tasks: i64,
    done: i64,
    cancelled: i64,
    attempts: i64,
    runs: i64,
    times: i64,
    lost: BTreeSet<String>,
    doubled: BTreeSet<String>,
    overlapping: BTreeSet<String>,
    wrong: BTreeSet<String>,
    stuck: BTreeSet<String>,
    fsck: BTreeSet<String>,
}

/// Waits for the last task, adds up, prints the table. True: all held.
pub fn close(world: &World, faults: &Faults, inserted: &Inserted, before: Sizes, most: Sizes) -> bool {
    let drained = drain(world);
    let after = Sizes::of(world);
    let audit: Vec<Audit> =
        world.databases.iter().zip(&inserted.tasks).map(|(database, tasks)| read(database, tasks)).collect();
    let (used, wanted) = slots(world);
    let found = |what: fn(&Audit) -> &BTreeSet<String>| -> Vec<String> {
        let numbered = audit.iter().enumerate();
        numbered.flat_map(|(number, audit)| what(audit).iter().map(move |line| format!("t{number}: {line}"))).collect()
    };
    print_counts(faults, &audit);
    println!("  drained after {drained:?}");
    print_jobs(world);
    let passed = &inserted.passed;
    println!(
        "databases that came and went  served {}, not served {}, dropped by force {}",
        passed.served.load(SeqCst),
        passed.unserved.load(SeqCst),
        passed.forced.load(SeqCst)
    );
    println!("must be none");
    let mut sound = true;
    let mut none = |name: &str, lines: Vec<String>| {
        println!("  {name:<28}{:>10}", lines.len());
        lines.iter().take(10).for_each(|line| println!("    {line}"));
        sound &= lines.is_empty();
    };
    none("lost", found(|audit| &audit.lost));
    none("doubled", found(|audit| &audit.doubled));
    none("overlapping", found(|audit| &audit.overlapping));
    none("failed without a cause", found(|audit| &audit.wrong));
    none("stuck", found(|audit| &audit.stuck));
    none("differences by mill.fsck", found(|audit| &audit.fsck));
    let leaked = (used != wanted).then(|| format!("{used} used, {wanted} wanted"));
    none("slots leaked", leaked.into_iter().collect());
    let over = (most.sessions > BUDGET).then(|| format!("{} sessions, {BUDGET} are the budget", most.sessions));
    none("sessions over the budget", over.into_iter().collect());
    none("orphaned processes", vec!["a process".to_owned(); faults.orphans]);
    let unserved = vec!["a database".to_owned(); passed.unserved.load(SeqCst)];
    none("databases not served", unserved);
    print_sizes(before, most, after);
    if !after.flat_since(before) {
        println!("  NOT FLAT");
        sound = false;
    }
    if !sound {
        println!("{}", world.describe());
    }
    println!("{}", if sound { "all held" } else { "NOT all held" });
    sound
}

fn print_counts(faults: &Faults, audit: &[Audit]) {
    let sum = |what: fn(&Audit) -> i64| audit.iter().map(what).sum::<i64>();
    println!("\nfaults");
    for (fault, count) in &faults.counts {
        println!("  {:<28}{count:>10}", format!("{fault:?}"));
    }
    if crate::world::faketime().is_none() {
        println!("  SKIPPED: clocks that are off, because libfaketime is not installed (apt-get install faketime)");
    }
    println!("  longest stay of a killed launcher's processes {:?}", faults.longest_afterlife);
    println!("tasks");
    for (name, count) in [
        ("inserted", sum(|audit| audit.tasks)),
        ("done", sum(|audit| audit.done)),
        ("ended by a fault (cancelled)", sum(|audit| audit.cancelled)),
        ("attempts", sum(|audit| audit.attempts)),
        ("runs of jobs", sum(|audit| audit.runs)),
        ("logical times of graphs", sum(|audit| audit.times)),
    ] {
        println!("  {name:<28}{count:>10}");
    }
}

fn print_jobs(world: &World) {
    for (number, database) in world.databases.iter().enumerate() {
        let jobs = "SELECT concat(j.name, ': ', s.total_runs, ' runs, ', s.total_successes, ' successes, ', s.total_failures, \
             ' failures, ', s.total_crashes, ' crashes', \
             (SELECT format('; longest gap %s s, from %s', round(extract(epoch FROM g.gap), 1), g.since) FROM ( \
                 SELECT t.at::timestamptz - lag(t.at::timestamptz) OVER w AS gap, lag(t.at) OVER w AS since FROM public.tick t \
                 WHERE t.job = j.id::text WINDOW w AS (ORDER BY t.at::timestamptz)) g ORDER BY g.gap DESC NULLS LAST LIMIT 1)) \
             FROM mill.job j JOIN mill.job_stat s ON s.job = j.id WHERE j.flow IS NULL";
        lines(database, jobs).iter().for_each(|line| println!("  t{number} job {line}"));
    }
}

fn print_sizes(before: Sizes, most: Sizes, after: Sizes) {
    println!("in use by launchers and schedulers     start of the calm       most        end");
    println!("  memory, KiB                 {:>20}{:>11}{:>11}", before.memory_kib, most.memory_kib, after.memory_kib);
    println!(
        "  descriptors                 {:>20}{:>11}{:>11}",
        before.descriptors, most.descriptors, after.descriptors
    );
    println!("  sessions                    {:>20}{:>11}{:>11}", before.sessions, most.sessions, after.sessions);
}

/// Until every task is finished, or nothing moves any more: no line of any ledger is added. How many wait is no measure,
/// because the end of one run of a graph may be the beginning of another.
fn drain(world: &World) -> Duration {
    const LEDGERS: &str = "SELECT (SELECT count(*) FROM public.ledger) + (SELECT count(*) FROM public.work) \
        + (SELECT count(*) FROM public.tick) + (SELECT count(*) FROM public.node)";
    let began = Instant::now();
    let (mut lines, mut moved) = (0, Instant::now());
    let sum = |sql: &str| -> i64 { world.databases.iter().map(|database| count(database, sql)).sum() };
    while moved.elapsed() < STANDSTILL && sum(&unfinished()) > 0 {
        let now = sum(LEDGERS);
        if now != lines {
            (lines, moved) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    began.elapsed()
}

/// A paused job's next run waits for ever; a graph goes on to its end.
const WAITING: &str = "t.state IN ('TAKE', 'WORK') OR t.state = 'PLAN' AND (t.job IS NULL OR t.job IN \
    (SELECT j.id FROM mill.job j WHERE j.flow IS NOT NULL))";

fn unfinished() -> String {
    format!("SELECT (SELECT count(*) FROM public.task t WHERE {WAITING}) + {}", graph::UNFILLED)
}

fn count(database: &Database, sql: &str) -> i64 {
    database.query(sql, &[]).map_or(i64::MAX / 8, |rows| rows[0].get(0))
}

fn lines(database: &Database, sql: &str) -> BTreeSet<String> {
    let rows = database.query(sql, &[]).unwrap_or_default();
    rows.iter().filter_map(|row| row.get::<_, Option<String>>(0)).collect()
}

fn read(database: &Database, acknowledged: &[i64]) -> Audit {
    let one = "concat_ws(' ', t.id, t.state, CASE WHEN t.atomic THEN 'atomic' END, 'attempt', t.attempt, t.reason, left(t.error, 120))";
    let mut lost = lines(
        database,
        &format!(
            "SELECT {one} FROM public.task t WHERE t.job IS NULL AND t.state = 'DONE' AND NOT EXISTS (SELECT FROM public.work w WHERE w.task = t.id)"
        ),
    );
    let gone = "SELECT id::text FROM unnest($1::bigint[]) AS id WHERE NOT EXISTS (SELECT FROM public.task t WHERE t.id = id.id)";
    for row in database.query(gone, &[&acknowledged]).unwrap_or_default() {
        lost.insert(format!("{} acknowledged and not there", row.get::<_, String>(0)));
    }
    lost.extend(lines(database, &graph::lost()));
    let doubled = format!(
        "SELECT concat_ws(' ', {one}, 'work done', (SELECT count(*) FROM public.work w WHERE w.task = t.id), 'times') \
         FROM public.task t WHERE t.job IS NULL AND t.atomic AND (SELECT count(*) FROM public.work w WHERE w.task = t.id) <> (t.state = 'DONE')::int \
         AND t.state IN ('DONE', 'FAIL')"
    );
    // an attempt found the lock of an earlier one taken, or that one came to its end after this one had begun
    let overlapping = "SELECT concat_ws(' ', 'task', task, 'attempt', attempt, 'at', at) FROM public.ledger WHERE NOT alone UNION ALL \
         SELECT concat_ws(' ', 'task', l.task, 'attempt', l.attempt, 'began at', l.at, 'and attempt', w.attempt, 'ended at', w.at) \
         FROM public.ledger l JOIN public.work w ON w.task = l.task AND w.attempt < l.attempt AND w.at > l.at";
    let wrong = format!(
        "SELECT {one} FROM public.task t WHERE t.job IS NULL AND (t.state = 'GONE' OR t.state = 'FAIL' AND (t.reason IS DISTINCT FROM 'cancelled' \
         OR t.error !~ '(due to user request|due to administrator command)'))"
    );
    // a job's logical time becomes true once if the job is atomic, and its numbers say so
    let jobs = "SELECT concat_ws(' ', 'job', j.name, 'at', t.at, 'ran', count(*), 'times') FROM public.tick t \
         JOIN mill.job j ON j.id::text = t.job WHERE j.atomic GROUP BY j.name, t.at HAVING count(*) > 1 UNION ALL \
         SELECT format('job %s has %s successes and did its work %s times', j.name, s.total_successes, \
             (SELECT count(*) FROM public.tick t WHERE t.job = j.id::text)) \
         FROM mill.job j JOIN mill.job_stat s ON s.job = j.id WHERE j.flow IS NULL AND j.name <> 'failing' AND CASE WHEN j.atomic \
         THEN s.total_successes <> (SELECT count(*) FROM public.tick t WHERE t.job = j.id::text) \
         ELSE s.total_successes > (SELECT count(*) FROM public.tick t WHERE t.job = j.id::text) END";
    let stuck = format!(
        "SELECT {one} || ' ' || mill.why(t.id) FROM public.task t \
         WHERE {WAITING}"
    );
    // runs of a graph without an end, also those that are in no queue; of a paused job they wait for ever
    let open = "SELECT concat_ws(' ', 'run', r.id, j.name, r.at, 'attempt', r.attempt, CASE WHEN r.ordered THEN 'ordered' END, \
         CASE WHEN r.held THEN 'held' END, r.recall, r.start, r.error) FROM mill_private.run r JOIN mill.job j ON j.id = r.job \
         WHERE r.outcome IS NULL AND (j.flow IS NOT NULL OR r.start IS NOT NULL)";
    let fsck = "SELECT concat_ws(' ', queue, task, problem) FROM mill.fsck()";
    // what is there only for a moment is no fault
    let mut differences = lines(database, fsck);
    for _ in 0..5 {
        if differences.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1500));
        differences = differences.intersection(&lines(database, fsck)).cloned().collect();
    }
    Audit {
        tasks: count(database, "SELECT count(*) FROM public.task WHERE job IS NULL"),
        done: count(database, "SELECT count(*) FROM public.task WHERE job IS NULL AND state = 'DONE'"),
        cancelled: count(database, "SELECT count(*) FROM public.task WHERE job IS NULL AND state = 'FAIL'"),
        attempts: count(database, "SELECT coalesce(sum(attempt), 0)::bigint FROM public.task WHERE job IS NULL"),
        lost,
        doubled: [&doubled, jobs, &graph::doubled()].into_iter().flat_map(|sql| lines(database, sql)).collect(),
        times: count(database, graph::TIMES),
        runs: count(database, "SELECT coalesce(sum(total_runs), 0)::bigint FROM mill.job_stat"),
        overlapping: [overlapping, graph::OVERLAPPING].into_iter().flat_map(|sql| lines(database, sql)).collect(),
        wrong: lines(database, &wrong),
        stuck: [&stuck, open].into_iter().flat_map(|sql| lines(database, sql)).collect(),
        fsck: differences,
    }
}

/// Slots in use of whoever leads, once all is quiet, and how many there should be.
fn slots(world: &World) -> (u64, u64) {
    let wanted = 1 + DATABASES as u64;
    let mut used = 0;
    let quiet = tests::wait("all slots are given back").within(STANDSTILL).attempt(|| {
        used = world.with_launchers(|launchers| {
            let all = launchers
                .iter()
                .filter_map(Supervisor::status)
                .map(|status| status.pointer("/slots/used").and_then(Value::as_u64).unwrap_or_default());
            all.max().unwrap_or_default()
        });
        used == wanted
    });
    (if quiet.is_some() { wanted } else { used }, wanted)
}
