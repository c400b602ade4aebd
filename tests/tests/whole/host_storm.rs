//! Three hosts with one config, random kills, cuts and freezes: a queue never has two schedulers, no two attempts of a
//! task overlap, no task fails or is lost by it, and each time of a job and of a timer comes once.

use std::time::{Duration, Instant};

use postgres::Client;
use serde_json::json;
use tests::process::Process;
use tests::{Cluster, Database, Proxy, Signal, Supervisor, sized};

use crate::asking::{all, linger, one};
use crate::graphs::{balanced, declare, ready};
use crate::host_takeover::{tell, tell_all};

/// A host behind a way of its own.
struct Host<'d> {
    database: &'d Database,
    name: String,
    proxy: Proxy,
    mill: Supervisor<'d>,
    /// What is wrong with it, and until when.
    trouble: Option<(Trouble, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Cut,
    Frozen,
    /// The launcher alone.
    Stopped,
    Dead,
}

impl<'d> Host<'d> {
    fn new(database: &'d Database, name: &str) -> Host<'d> {
        let proxy = Proxy::before(database.server().port);
        let mill = start(database, name, &proxy);
        Host { database, name: name.to_owned(), proxy, mill, trouble: None }
    }

    fn befall(&mut self, trouble: Trouble, lasts: Duration) -> bool {
        match trouble {
            Trouble::Cut => {
                self.proxy.play_dead(true);
                self.proxy.cut_cable();
            }
            Trouble::Frozen => tell_all(&self.mill, Signal::SIGSTOP),
            Trouble::Stopped => tell(self.mill.pid(), Signal::SIGSTOP),
            Trouble::Dead => tell(self.mill.pid(), Signal::SIGKILL),
        }
        self.trouble = Some((trouble, Instant::now() + lasts));
        true
    }

    fn recover(&mut self) {
        match self.trouble.take() {
            Some((Trouble::Cut, _)) => self.proxy.play_dead(false),
            Some((Trouble::Frozen, _)) => tell_all(&self.mill, Signal::SIGCONT),
            Some((Trouble::Stopped, _)) => tell(self.mill.pid(), Signal::SIGCONT),
            Some((Trouble::Dead, _)) => self.mill = start(self.database, &self.name, &self.proxy),
            None => {}
        }
    }
}

fn start<'d>(database: &'d Database, name: &str, proxy: &Proxy) -> Supervisor<'d> {
    let connect = format!("host=127.0.0.1 port={} user={} password=s3cret", proxy.port(), database.login());
    Supervisor::of(database).key("name", name).key("connect", json!(connect)).row_key("sleep", 100).launch()
}

/// Signs the ledger, alone if no other session has the task; stays a while.
const INPUT: &str = "BEGIN; INSERT INTO ledger SELECT current_setting('pg_task.id')::bigint, \
    pg_try_advisory_lock(4711, current_setting('pg_task.id')::int); COMMIT; SELECT pg_sleep(random() * 0.4)";
const ATOMIC: &str = "INSERT INTO did VALUES (current_setting('pg_task.id')::bigint); SELECT pg_sleep(random() * 0.2)";

/// The sessions that hold the queue, and those that lead by this name.
fn holders(watcher: &mut Client, name: &str) -> (i64, i64) {
    let sql = "SELECT count(*) FILTER (WHERE classid = 1835597826 AND objid = 'public.task'::regclass \
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())), \
                      count(*) FILTER (WHERE classid = 1835597825 AND objid::bigint = hashtext($1)::bigint & 4294967295) \
                 FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let row = watcher.query_one(sql, &[&name]).expect("look at locks");
    (row.get(0), row.get(1))
}

const KINDS: usize = 6;

/// Strikes a random host: kills a worker or a scheduler, or begins a trouble that lasts. The kind, if anything was struck. One
/// host at least stays well: otherwise nothing would be shown.
fn strike(hosts: &mut [Host<'_>]) -> Option<usize> {
    let host = rand::random_range(0..hosts.len());
    let lasts = Duration::from_millis(rand::random_range(200..6000));
    let kind = rand::random_range(0..KINDS);
    let others_well = hosts.iter().enumerate().any(|(index, other)| index != host && other.trouble.is_none());
    let (may, hit) = (hosts[host].trouble.is_none() && others_well, &mut hosts[host]);
    let victim = |all: Vec<Process>| all.first().map(|one| tell(one.pid, Signal::SIGKILL)).is_some();
    let struck = match kind {
        0 => victim(hit.mill.workers()),
        1 => victim(hit.mill.schedulers()),
        _ if !may => false,
        2 => hit.befall(Trouble::Cut, lasts),
        3 => hit.befall(Trouble::Frozen, lasts),
        4 => hit.befall(Trouble::Stopped, lasts),
        _ => hit.befall(Trouble::Dead, lasts),
    };
    struck.then_some(kind)
}

/// How often somebody looked who holds the queue, and how often somebody held it.
#[derive(Default)]
struct Samples {
    taken: i32,
    served: i64,
}

impl Samples {
    /// Looks until then; hosts recover when their trouble is over.
    fn take(&mut self, watcher: &mut Client, name: &str, hosts: &mut [Host<'_>], until: Instant) {
        while Instant::now() < until {
            let (queue, leaders) = holders(watcher, name);
            assert!(queue <= 1 && leaders <= 1, "{queue} hold the queue, {leaders} lead");
            self.taken += 1;
            self.served += queue;
            for host in &mut *hosts {
                if host.trouble.is_some_and(|(_, until)| Instant::now() >= until) {
                    host.recover();
                }
            }
            linger(Duration::from_millis(20), "a sample is taken 50 times a second");
        }
    }
}

const TIMES: &str = "SELECT count(DISTINCT at) FROM mill_private.run GROUP BY job";

/// Jobs and timers have gone on, and all that has begun ends.
fn wait_for_rest(database: &Database, hosts: &[Host<'_>]) {
    tests::wait("jobs and timers have gone on").within(Duration::from_secs(60)).until(|| {
        database.look(TIMES, &[]).is_some_and(|rows| rows.len() == 2 && rows.iter().all(|row| row.get::<_, i64>(0) > 1))
    });
    // what has been made and not begun by now stays, held
    declare(database, "UPDATE mill.timer SET enabled = false; UPDATE mill.job SET scheduled = false");
    let told = || {
        let sql = "SELECT concat_ws(' ', t.id, t.job, t.at, t.state, t.held, t.attempt, t.plan, mill.why(t.id)) FROM public.task t \
                    WHERE t.state NOT IN ('DONE', 'FAIL') UNION ALL SELECT r::text FROM mill_private.run r WHERE r.outcome IS NULL LIMIT 20";
        let open: Vec<String> = all(database, sql);
        let logs: Vec<String> = hosts.iter().map(|host| host.mill.log().tail(40)).collect();
        format!("{open:#?}\n{}", logs.join("\n--\n"))
    };
    tests::wait("everything has come to its end").within(Duration::from_secs(120)).telling(told).until(|| {
        let sql = "SELECT (SELECT count(*) FROM public.task WHERE state NOT IN ('DONE', 'FAIL')) \
             + (SELECT count(*) FROM mill_private.run WHERE outcome IS NULL AND NOT (held AND ordered))";
        database.look(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 0)
    });
}

/// None lost, none failed, never two attempts at once; atomic ones exactly once. The number of tasks and of plain attempts.
fn assert_tasks_ran_once(database: &Database, events: i64) -> (i64, i64) {
    let failed: Vec<String> =
        all(database, "SELECT id || ' ' || error FROM public.task WHERE job IS NULL AND state <> 'DONE' LIMIT 5");
    assert!(failed.is_empty(), "{failed:#?}");
    let tasks = one::<i64>(database, "SELECT count(*) FROM public.task WHERE job IS NULL");
    assert_eq!(tasks, 6 * events);
    let beside = one::<i64>(database, "SELECT count(*) FROM ledger WHERE NOT alone");
    assert_eq!(beside, 0, "attempts overlapped");
    let atomic: (i64, i64) =
        (one(database, "SELECT count(*) FROM did"), one(database, "SELECT count(DISTINCT task) FROM did"));
    assert_eq!(atomic, (2 * events, 2 * events));
    let attempts = one::<i64>(database, "SELECT count(*) FROM ledger");
    assert!(attempts >= 4 * events);
    (tasks, attempts)
}

/// One activation for each time, however often its run was begun anew.
fn assert_times_came_once(database: &Database) {
    let twice: Vec<String> = all(
        database,
        "SELECT concat_ws(' ', t.job, t.at, count(DISTINCT t.run_of), count(*) FILTER (WHERE t.state = 'DONE')) FROM public.task t \
          WHERE t.job IS NOT NULL GROUP BY t.job, t.at HAVING count(DISTINCT t.run_of) > 1 OR count(*) FILTER (WHERE t.state = 'DONE') > 1 \
         UNION ALL SELECT concat_ws(' ', 'run', r.job, r.at, count(DISTINCT COALESCE(r.activation, r.id)), count(*) FILTER (WHERE r.outcome = 'succeeded')) \
           FROM mill_private.run r GROUP BY r.job, r.at \
          HAVING count(DISTINCT COALESCE(r.activation, r.id)) > 1 OR count(*) FILTER (WHERE r.outcome = 'succeeded') > 1 \
         UNION ALL SELECT concat_ws(' ', 'row', t.run, count(*)) FROM public.task t WHERE t.run IS NOT NULL GROUP BY t.run HAVING count(*) > 1",
    );
    assert!(twice.is_empty(), "more than once: {twice:#?}");
    let tokens: Vec<String> =
        all(database, "SELECT concat_ws(' ', k.job, k.at, k.activations) FROM mill.token k WHERE k.activations <> 1");
    assert!(tokens.is_empty(), "more than once: {tokens:#?}");
}

#[test]
fn no_kill_cut_or_freeze_makes_two_schedulers_of_one_queue() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    database.set_password("s3cret");
    let name = format!("{}-storm", database.name());
    let mut hosts: Vec<Host<'_>> = (0..3).map(|_| Host::new(&database, &name)).collect();
    hosts[0].mill.wait_ready();
    ready(&hosts[0].mill, &database);
    declare(
        &database,
        "CREATE TABLE ledger (task bigint, alone bool); CREATE TABLE did (task bigint);
         BEGIN;
         INSERT INTO mill.flow (name) VALUES ('storm');
         INSERT INTO mill.job (flow, name, input, crash_wait, retry_period) VALUES ('storm', 'timed', 'SELECT pg_sleep(0.05)', '0', '10 ms');
         INSERT INTO mill.timer (name, flow, start, period, catchup) VALUES ('clock', 'storm', now(), '1 s', 'earliest');
         INSERT INTO mill.edge (job, from_timer) VALUES ('timed', 'clock');
         INSERT INTO mill.job (name, input, schedule_interval, crash_wait, retry_period) VALUES ('often', 'SELECT pg_sleep(0.05)', '1 s', '0', '10 ms');
         COMMIT",
    );
    let mut watcher = database.connect_superuser();
    let (events, mut samples): (i64, Samples) = (sized(12, 200), Samples::default());
    let mut counts = [0; KINDS];
    let began = Instant::now();
    // only what has struck somebody counts
    while counts.iter().sum::<i64>() < events {
        let struck = strike(&mut hosts);
        if let Some(kind) = struck {
            counts[kind] += 1;
            database.run(&format!(
                "INSERT INTO public.task (input, \"group\", \"max\", live, atomic) \
                 SELECT CASE WHEN i % 3 = 0 THEN $a${ATOMIC}$a$ ELSE $a${INPUT}$a$ END, 'g' || i % 4, 1, \
                        CASE WHEN i % 2 = 0 THEN interval '1 hour' ELSE interval '0' END, i % 3 = 0 FROM generate_series(1, 6) AS i"
            ));
        }
        let longest = if struck.is_some() { sized(600, 2500) } else { 50 };
        let until = Instant::now() + Duration::from_millis(rand::random_range(20..=longest));
        samples.take(&mut watcher, &name, &mut hosts, until);
    }
    hosts.iter_mut().for_each(Host::recover);
    let [workers, schedulers, cut, frozen, stopped, dead] = counts;
    println!(
        "{events} strokes in {:.0?}: workers {workers}, schedulers {schedulers}, cut {cut}, frozen {frozen}, stopped {stopped}, \
         dead {dead}; {} samples, {:.0} % with a scheduler",
        began.elapsed(),
        samples.taken,
        100.0 * samples.served as f64 / f64::from(samples.taken),
    );
    wait_for_rest(&database, &hosts);
    let (tasks, attempts) = assert_tasks_ran_once(&database, events);
    assert_times_came_once(&database);
    let runs: Vec<i64> = all(&database, TIMES);
    println!("{tasks} tasks in {attempts} + {} attempts; times of jobs: {runs:?}", 2 * events);
    balanced(&database);
    let (queue, leaders) = holders(&mut watcher, &name);
    assert!(queue <= 1 && leaders <= 1);
}
