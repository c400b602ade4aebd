//! Fail-over under load: a primary and a stand-by, one launcher whose `connect` names both, and tasks of every kind. Each round
//! kills the primary while at least twenty tasks are in flight, promotes the stand-by and rebuilds the other server as the new
//! stand-by. First with a synchronous stand-by, then with an asynchronous one, then with an old primary that comes back as a
//! primary of its own before it is rebuilt (split brain): nothing may run there.
//!
//! Every task writes a ledger in its own database, so the server that wins has the ledger: what began, what came to its
//! end, and what an atomic task did. All processes are on one host, so the moments of both servers can be compared.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use tests::cluster::Cluster;
use tests::{Database, Pair, Supervisor, wait};

const WORKERS: u32 = 40;
/// So many tasks are in flight when the primary dies.
const IN_FLIGHT: i64 = 20;
/// Beside them, one task at a time so far apart.
const PAUSE: Duration = Duration::from_millis(40);
/// After the last round everything must have come to its end within this time without any progress.
const STANDSTILL: Duration = Duration::from_secs(40);
/// Chains of repeating tasks, and jobs.
const CHAINS: i64 = 3;

const LEDGER: &str = "CREATE TABLE public.began (task bigint, attempt int, alone bool, at timestamptz DEFAULT clock_timestamp()); \
    CREATE TABLE public.ended (task bigint, attempt int, at timestamptz DEFAULT clock_timestamp()); \
    CREATE TABLE public.tick (job text, at text, ran timestamptz DEFAULT clock_timestamp()); \
    CREATE TABLE public.death (task bigint, attempt int); \
    GRANT ALL ON public.began, public.ended, public.tick, public.death TO PUBLIC; \
    CREATE FUNCTION public.note_death() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN INSERT INTO public.death VALUES (NEW.id, NEW.attempt); RETURN NULL; END $$; \
    CREATE TRIGGER note_death AFTER UPDATE ON public.task FOR EACH ROW WHEN (NEW.crashes > OLD.crashes) \
        EXECUTE FUNCTION public.note_death()";

/// The begin is committed before the work; the lock shows whether another attempt of the task is at it on the same server.
const FIRST: &str = "INSERT INTO public.began (task, attempt, alone) SELECT id, attempt, pg_try_advisory_lock(77, id::int) \
    FROM public.task WHERE id = current_setting('pg_task.id')::bigint";
const LAST: &str = "INSERT INTO public.ended (task, attempt) SELECT id, attempt FROM public.task WHERE id = current_setting('pg_task.id')::bigint; \
    SELECT pg_advisory_unlock(77, current_setting('pg_task.id')::int)";

const JOBS: &str = "INSERT INTO mill.job (name, input, schedule_interval, atomic, retry_period, crash_wait) VALUES \
    ('exact', 'INSERT INTO public.tick VALUES (current_setting(''mill.job''), current_setting(''mill.at''))', '1 s', true, '0.2 s', '0.2 s'), \
    ('plain', 'INSERT INTO public.tick VALUES (current_setting(''mill.job''), current_setting(''mill.at''))', '1 s', false, '0.2 s', '0.2 s')";

/// What kind of stand-by there is, and what becomes of the old primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Synchronous,
    Asynchronous,
    Split,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Synchronous, Kind::Asynchronous, Kind::Split];

    fn name(self) -> &'static str {
        match self {
            Kind::Synchronous => "synchronous",
            Kind::Asynchronous => "asynchronous",
            Kind::Split => "split",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How long two primaries stand beside each other.
const SPLIT: Duration = Duration::from_secs(5);

/// What was found; every list must be empty.
#[derive(Default)]
struct Findings(Vec<(&'static str, BTreeSet<String>)>);

/// So many rounds of each kind. True: all held.
pub fn run(rounds: u32, kinds: &[Kind]) -> bool {
    let broken = kinds.iter().filter(|kind| !storm(**kind, rounds)).count();
    println!("{}", if broken == 0 { "all held" } else { "NOT all held" });
    broken == 0
}

fn storm(kind: Kind, rounds: u32) -> bool {
    let synchronous = kind == Kind::Synchronous;
    let mut pair = Pair::configure(Cluster::configure().max_connections(120), synchronous);
    let database = pair.primary().database();
    let mill = Supervisor::of(&database)
        .key("connect", pair.conninfo(database.login()))
        .key("max_workers", WORKERS + 8)
        .start();
    let tables = || database.query("SELECT FROM mill.queue, public.task LIMIT 0", &[]).is_some();
    wait("the tables are made").within(Duration::from_secs(60)).telling(|| mill.describe()).until(tables);
    database.run(LEDGER);
    database.connect().batch_execute(JOBS).expect("the user of a queue makes jobs");
    let chains = "INSERT INTO public.task (input, repeat, active, \"group\") SELECT 'SELECT 1', '250 ms', '1 day', 'chain ' || i \
         FROM generate_series(1, $1::bigint) AS i";
    database.query(chains, &[&CHAINS]).expect("the server is there");
    pair.catch_up();
    let (stop, conninfo) =
        (AtomicBool::new(false), format!("{} dbname={}", pair.conninfo(database.owner()), quote(&database)));
    let mut astray = BTreeSet::new();
    let acknowledged = thread::scope(|scope| {
        let inserter = scope.spawn(|| insert(&conninfo, &stop));
        for round in 1..=rounds {
            astray.append(&mut fail_over(&mut pair, &database, &mill, round, kind));
        }
        stop.store(true, SeqCst);
        inserter.join().expect("the inserter lives")
    });
    let seen = pair.on_primary(&database);
    let drained = drain(&seen);
    let mut findings = close(&seen, &acknowledged, synchronous);
    findings.0.push(("run on a former primary", astray));
    println!(
        "{}: {rounds} rounds, {} inserts acknowledged, {} tasks, {} attempts begun, {} runs of jobs, drained after {drained:.1?}",
        kind.name(),
        acknowledged.len(),
        count(&seen, "SELECT count(*) FROM public.task WHERE job IS NULL"),
        count(&seen, "SELECT count(*) FROM public.began"),
        count(&seen, "SELECT count(*) FROM mill_private.run WHERE outcome IS NOT NULL"),
    );
    let mut sound = true;
    for (name, lines) in findings.0 {
        println!("  {name:<28}{:>10}", lines.len());
        lines.iter().take(10).for_each(|line| println!("    {line}"));
        sound &= lines.is_empty();
    }
    if !sound {
        println!("{}\n{}", seen.describe(), mill.log().tail(200));
    }
    sound
}

fn quote(database: &Database) -> String {
    tests::cluster::conninfo_quote(database.name())
}

/// One round: tasks in flight, death, promotion, the first task, and a new stand-by. What ran on the old primary meanwhile.
fn fail_over(pair: &mut Pair, database: &Database, mill: &Supervisor<'_>, round: u32, kind: Kind) -> BTreeSet<String> {
    let seen = pair.on_primary(database);
    let sql = "INSERT INTO public.task (input, \"group\", max, live, atomic, active) \
         SELECT CASE WHEN i % 3 = 0 THEN $1 ELSE $2 END, 'batch ' || i % 30, 2, \
                CASE WHEN i % 3 = 1 THEN interval '1 minute' ELSE '0' END, i % 3 = 0, '1 day' FROM generate_series(1, 60) AS i";
    seen.query(sql, &[&input(true, 1.5), &input(false, 1.5)]).expect("the server is there");
    let flying = "SELECT count(*) FROM public.task WHERE state = 'WORK'";
    wait("enough tasks are in flight")
        .within(Duration::from_secs(60))
        .telling(|| format!("{}\n{}", seen.describe(), mill.log().tail(100)))
        .until(|| count(&seen, flying) >= IN_FLIGHT);
    let in_flight = count(&seen, flying);
    pair.kill_primary();
    let killed = Instant::now();
    pair.promote();
    let (promoted, seen) = (Instant::now(), pair.on_primary(database));
    let at: String = wait("the promoted server answers")
        .until(|| Some(seen.query("SELECT clock_timestamp()::text", &[])?[0].get(0)));
    let began = "SELECT count(*) FROM public.began WHERE at > $1::text::timestamptz";
    wait("a task begins after the promotion")
        .within(Duration::from_secs(60))
        .telling(|| format!("{}\n{}", seen.describe(), mill.log().tail(100)))
        .until(|| seen.query(began, &[&at]).is_some_and(|rows| rows[0].get::<_, i64>(0) > 0));
    println!(
        "{} round {round}: {in_flight} in flight, promoted {:.2?} after the death, first task {:.2?} after the promotion",
        kind.name(),
        promoted - killed,
        promoted.elapsed()
    );
    if std::env::var_os("SOAK_LOG").is_some() {
        println!("{}", mill.log().tail(120));
    }
    let mut astray = BTreeSet::new();
    if kind == Kind::Split {
        pair.start_old_as_primary();
        sleep(SPLIT);
        let former = database.on(pair.standby().server());
        let began = "SELECT concat('round ', $2::int, ' task ', task, ' attempt ', attempt, ' at ', at) FROM public.began \
             WHERE at > $1::text::timestamptz \
             UNION ALL SELECT concat('round ', $2::int, ' job ', job, ' for ', at, ' at ', ran) FROM public.tick \
             WHERE ran > $1::text::timestamptz \
             UNION ALL SELECT concat('round ', $2::int, ' row ', id, ' ', state, ' started at ', start) FROM public.task \
             WHERE start > $1::text::timestamptz";
        let rows = former.query(began, &[&at, &(round as i32)]).unwrap_or_default();
        astray.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    pair.rebuild_old_as_standby();
    astray
}

/// A task of one of the two kinds that takes up to so many seconds.
fn input(atomic: bool, seconds: f64) -> String {
    let work = format!("SELECT pg_sleep({seconds} * (0.3 + 0.7 * random()))");
    match atomic {
        true => format!("{FIRST};{work};{LAST}"),
        false => format!("BEGIN;{FIRST};COMMIT;{work};{LAST}"),
    }
}

/// One task after the other on whichever server may be written to. Which ones the server has acknowledged.
fn insert(conninfo: &str, stop: &AtomicBool) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    let mut client: Option<Client> = None;
    for number in 0.. {
        if stop.load(SeqCst) {
            break;
        }
        sleep(PAUSE);
        if client.as_ref().is_none_or(Client::is_closed) {
            client = Client::connect(conninfo, NoTls).ok();
        }
        let Some(session) = client.as_mut() else { continue };
        let atomic = number % 3 == 0;
        let live = if number % 3 == 1 { "1 minute" } else { "0" };
        let sql = format!(
            "INSERT INTO public.task (input, \"group\", max, live, atomic, active) \
             VALUES ($1, 'g{}', {}, '{live}', {atomic}, '1 day') RETURNING id",
            number % 8,
            number % 3,
        );
        match session.query_one(&sql, &[&input(atomic, 0.3)]) {
            Ok(row) => acknowledged.push(row.get(0)),
            Err(_) => client = None,
        }
    }
    acknowledged
}

const UNFINISHED: &str =
    "SELECT count(*) FROM public.task WHERE job IS NULL AND repeat = '0' AND state IN ('PLAN', 'TAKE', 'WORK')";

/// Until every task has come to its end, or nothing moves any more.
fn drain(seen: &Database) -> Duration {
    let began = Instant::now();
    let (mut lines, mut moved) = (0, Instant::now());
    while moved.elapsed() < STANDSTILL && count(seen, UNFINISHED) > 0 {
        let now = count(seen, "SELECT (SELECT count(*) FROM public.began) + (SELECT count(*) FROM public.ended)");
        if now != lines {
            (lines, moved) = (now, Instant::now());
        }
        sleep(Duration::from_millis(100));
    }
    let took = began.elapsed();
    // jobs and chains come to rest, so that what stays claimed is claimed for good
    seen.run("UPDATE mill.job SET scheduled = false; UPDATE public.task SET plan = 'infinity' WHERE repeat > '0' AND state = 'PLAN'");
    let _ = wait("nothing is claimed")
        .within(STANDSTILL)
        .attempt(|| count(seen, "SELECT count(*) FROM public.task WHERE state IN ('TAKE', 'WORK')") == 0);
    seen.run("UPDATE public.task SET plan = 'infinity' WHERE repeat > '0' AND state = 'PLAN'");
    took
}

fn close(seen: &Database, acknowledged: &[i64], synchronous: bool) -> Findings {
    let one = "concat_ws(' ', t.id, t.state, CASE WHEN t.atomic THEN 'atomic' END, 'attempt', t.attempt, t.reason, left(t.error, 120))";
    let mut lost = BTreeSet::new();
    if synchronous {
        let gone = "SELECT concat(a, ' was acknowledged and is not there') FROM unnest($1::bigint[]) AS a \
                     WHERE NOT EXISTS (SELECT FROM public.task t WHERE t.id = a)";
        let rows = seen.query(gone, &[&acknowledged]).unwrap_or_default();
        lost.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    lost.extend(lines(
        seen,
        &format!(
            "SELECT concat({one}, ' is done and its work is not there') FROM public.task t WHERE t.job IS NULL AND t.repeat = '0' \
                AND t.state = 'DONE' AND NOT EXISTS (SELECT FROM public.ended e WHERE e.task = t.id) \
             UNION ALL SELECT format('a chain of repeating tasks has %s open tasks', n) \
                FROM (SELECT c.i, (SELECT count(*) FROM public.task t WHERE t.\"group\" = 'chain ' || c.i AND t.state IN ('PLAN', 'TAKE', 'WORK')) AS n \
                        FROM generate_series(1, {CHAINS}) AS c (i)) AS c WHERE n <> 1"
        ),
    ));
    let doubled = format!(
        "SELECT concat({one}, ' did its work ', n, ' times') FROM public.task t, \
                LATERAL (SELECT count(*) AS n FROM public.ended e WHERE e.task = t.id) AS e \
          WHERE t.atomic AND t.job IS NULL AND t.state IN ('DONE', 'FAIL') AND n <> (t.state = 'DONE')::int \
         UNION ALL SELECT concat('job ', j.name, ' ran ', count(*), ' times for ', k.at) FROM public.tick k \
           JOIN mill.job j ON j.id::text = k.job WHERE j.atomic GROUP BY j.name, k.at HAVING count(*) > 1 \
         UNION ALL SELECT concat('job exact has ', s.total_successes, ' successes and did its work ', \
                (SELECT count(*) FROM public.tick k WHERE k.job = j.id::text), ' times') \
           FROM mill.job j JOIN mill.job_stat s ON s.job = j.id \
          WHERE j.atomic AND s.total_successes <> (SELECT count(*) FROM public.tick k WHERE k.job = j.id::text)"
    );
    let overlapping = "SELECT concat('task ', task, ' attempt ', attempt, ' found another one at work at ', at) FROM public.began WHERE NOT alone \
         UNION ALL SELECT concat('task ', b.task, ' attempt ', b.attempt, ' began at ', b.at, ', attempt ', e.attempt, ' ended at ', e.at) \
           FROM public.began b JOIN public.ended e ON e.task = b.task AND e.attempt < b.attempt AND e.at > b.at";
    let failed = format!("SELECT {one} FROM public.task t WHERE t.job IS NULL AND t.state IN ('FAIL', 'GONE', 'STOP')");
    let stuck = format!(
        "SELECT concat({one}, ': ', mill.why(t.id)) FROM public.task t \
          WHERE t.state IN ('TAKE', 'WORK') OR t.state = 'PLAN' AND t.job IS NULL AND t.repeat = '0' \
         UNION ALL SELECT concat('run ', r.id, ' of job ', r.job, ' has begun and not ended') FROM mill_private.run r \
          WHERE r.outcome IS NULL AND r.start IS NOT NULL"
    );
    let deaths = "SELECT concat('task ', task, ' attempt ', attempt) FROM public.death \
         UNION ALL SELECT concat('job ', job, ' has ', total_crashes, ' crashes') FROM mill.job_stat WHERE total_crashes > 0";
    let fsck = "SELECT concat_ws(' ', queue, task, problem) FROM mill.fsck()";
    let mut differences = lines(seen, fsck);
    for _ in 0..5 {
        if differences.is_empty() {
            break;
        }
        // one that goes by itself is none
        sleep(Duration::from_secs(1));
        differences = differences.intersection(&lines(seen, fsck)).cloned().collect();
    }
    Findings(vec![
        ("lost", lost),
        ("doubled", lines(seen, &doubled)),
        ("overlapping", lines(seen, overlapping)),
        ("failed without a cause", lines(seen, &failed)),
        ("stuck", lines(seen, &stuck)),
        ("counted as a death", lines(seen, deaths)),
        ("differences by mill.fsck", differences),
    ])
}

fn count(database: &Database, sql: &str) -> i64 {
    database.query(sql, &[]).map_or(-1, |rows| rows[0].get(0))
}

fn lines(database: &Database, sql: &str) -> BTreeSet<String> {
    let rows = database.query(sql, &[]).unwrap_or_default();
    rows.iter().filter_map(|row| row.get::<_, Option<String>>(0)).collect()
}
