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
fn holders(eye: &mut Client, name: &str) -> (i64, i64) {
    let sql = "SELECT count(*) FILTER (WHERE classid = 1835597826 AND objid = 'public.task'::regclass \
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())), \
                      count(*) FILTER (WHERE classid = 1835597825 AND objid::bigint = hashtext($1)::bigint & 4294967295) \
                 FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let row = eye.query_one(sql, &[&name]).expect("look at locks");
    (row.get(0), row.get(1))
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
    let mut eye = database.connect_superuser();
    let (events, mut samples, mut served): (i64, i32, i64) = (sized(12, 200), 0, 0);
    let mut counts = [0; 6];
    let began = Instant::now();
    // only what has struck somebody counts
    while counts.iter().sum::<i64>() < events {
        let host = rand::random_range(0..hosts.len());
        let lasts = Duration::from_millis(rand::random_range(200..6000));
        let kind = rand::random_range(0..6);
        // at least one host is well: otherwise nothing would be shown
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
        if struck {
            counts[kind] += 1;
            database.run(&format!(
                "INSERT INTO public.task (input, \"group\", \"max\", live, atomic) \
                 SELECT CASE WHEN i % 3 = 0 THEN $a${ATOMIC}$a$ ELSE $a${INPUT}$a$ END, 'g' || i % 4, 1, \
                        CASE WHEN i % 2 = 0 THEN interval '1 hour' ELSE interval '0' END, i % 3 = 0 FROM generate_series(1, 6) AS i"
            ));
        }
        let longest = if struck { sized(600, 2500) } else { 50 };
        let until = Instant::now() + Duration::from_millis(rand::random_range(20..=longest));
        while Instant::now() < until {
            let (queue, leaders) = holders(&mut eye, &name);
            assert!(queue <= 1 && leaders <= 1, "{queue} hold the queue, {leaders} lead");
            samples += 1;
            served += queue;
            for host in &mut hosts {
                if host.trouble.is_some_and(|(_, until)| Instant::now() >= until) {
                    host.recover();
                }
            }
            linger(Duration::from_millis(20));
        }
    }
    hosts.iter_mut().for_each(Host::recover);
    println!(
        "{events} strokes in {:.0?}: workers {}, schedulers {}, cut {}, frozen {}, stopped {}, dead {}; \
         {samples} samples, {:.0} % with a scheduler",
        began.elapsed(),
        counts[0],
        counts[1],
        counts[2],
        counts[3],
        counts[4],
        counts[5],
        100.0 * served as f64 / f64::from(samples),
    );
    let times = "SELECT count(DISTINCT at) FROM mill_private.run GROUP BY job";
    tests::wait("jobs and timers have gone on").within(Duration::from_secs(60)).until(|| {
        database.look(times, &[]).is_some_and(|rows| rows.len() == 2 && rows.iter().all(|row| row.get::<_, i64>(0) > 1))
    });
    // what has been made and not begun by now stays, held
    declare(&database, "UPDATE mill.timer SET enabled = false; UPDATE mill.job SET scheduled = false");
    let told = || {
        let sql = "SELECT concat_ws(' ', t.id, t.job, t.at, t.state, t.held, t.attempt, t.plan, mill.why(t.id)) FROM public.task t \
                    WHERE t.state NOT IN ('DONE', 'FAIL') UNION ALL SELECT r::text FROM mill_private.run r WHERE r.outcome IS NULL LIMIT 20";
        let open: Vec<String> = all(&database, sql);
        let logs: Vec<String> = hosts.iter().map(|host| host.mill.log().tail(40)).collect();
        format!("{open:#?}\n{}", logs.join("\n--\n"))
    };
    tests::wait("everything has come to its end").within(Duration::from_secs(120)).telling(told).until(|| {
        let sql = "SELECT (SELECT count(*) FROM public.task WHERE state NOT IN ('DONE', 'FAIL')) \
             + (SELECT count(*) FROM mill_private.run WHERE outcome IS NULL AND NOT (held AND ordered))";
        database.look(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 0)
    });
    // plain tasks: none lost, none failed, never two attempts at once; atomic ones exactly once
    let failed: Vec<String> =
        all(&database, "SELECT id || ' ' || error FROM public.task WHERE job IS NULL AND state <> 'DONE' LIMIT 5");
    assert!(failed.is_empty(), "{failed:#?}");
    let tasks = one::<i64>(&database, "SELECT count(*) FROM public.task WHERE job IS NULL");
    assert_eq!(tasks, 6 * events);
    let beside = one::<i64>(&database, "SELECT count(*) FROM ledger WHERE NOT alone");
    assert_eq!(beside, 0, "attempts overlapped");
    let atomic: (i64, i64) =
        (one(&database, "SELECT count(*) FROM did"), one(&database, "SELECT count(DISTINCT task) FROM did"));
    assert_eq!(atomic, (2 * events, 2 * events));
    let attempts = one::<i64>(&database, "SELECT count(*) FROM ledger");
    assert!(attempts >= 4 * events);
    // jobs: one activation for each time, however often its run was begun anew; and it did go on
    let twice: Vec<String> = all(
        &database,
        "SELECT concat_ws(' ', t.job, t.at, count(DISTINCT t.run_of), count(*) FILTER (WHERE t.state = 'DONE')) FROM public.task t \
          WHERE t.job IS NOT NULL GROUP BY t.job, t.at HAVING count(DISTINCT t.run_of) > 1 OR count(*) FILTER (WHERE t.state = 'DONE') > 1 \
         UNION ALL SELECT concat_ws(' ', 'run', r.job, r.at, count(DISTINCT COALESCE(r.activation, r.id)), count(*) FILTER (WHERE r.outcome = 'succeeded')) \
           FROM mill_private.run r GROUP BY r.job, r.at \
          HAVING count(DISTINCT COALESCE(r.activation, r.id)) > 1 OR count(*) FILTER (WHERE r.outcome = 'succeeded') > 1 \
         UNION ALL SELECT concat_ws(' ', 'row', t.run, count(*)) FROM public.task t WHERE t.run IS NOT NULL GROUP BY t.run HAVING count(*) > 1",
    );
    assert!(twice.is_empty(), "more than once: {twice:#?}");
    let tokens: Vec<String> =
        all(&database, "SELECT concat_ws(' ', k.job, k.at, k.activations) FROM mill.token k WHERE k.activations <> 1");
    assert!(tokens.is_empty(), "more than once: {tokens:#?}");
    let runs: Vec<i64> = all(&database, times);
    println!("{tasks} tasks in {attempts} + {} attempts; times of jobs: {runs:?}", 2 * events);
    balanced(&database);
    let (queue, leaders) = holders(&mut eye, &name);
    assert!(queue <= 1 && leaders <= 1);
}
