//! Slots: as many processes as `max_workers` says and never one more, whatever dies; a slot that comes free wakes whoever
//! waits for one; and a server that stands still keeps nobody from handling signals and reaping the dead.

use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use rand::RngExt;
use rand::seq::IndexedRandom;
use tests::database::quote_ident;
use tests::process::{self, is_alive};
use tests::{Cluster, Database, Signal, Supervisor, sized};

use crate::ledger;
use crate::queries::one;

#[test]
fn with_four_slots_and_a_hundred_waiting_tasks_there_are_never_more_than_four_processes() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).key("max_workers", 4).start();
    let insert = "INSERT INTO public.task (input, \"group\", delete) \
                  SELECT 'SELECT pg_sleep(0.2)', 'g' || i, false FROM generate_series(1, 100) AS i";
    database.connect().batch_execute(insert).expect("insert");
    let mut most = 0;
    mill.wait("all are done").within(Duration::from_secs(120)).until(|| {
        // with the launcher itself; a zombie has ended
        most = most.max(1 + mill.children().iter().filter(|child| !child.zombie).count());
        assert!(most <= 4, "{}", mill.describe());
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state <> 'DONE'") == 0
    });
    assert_eq!(most, 4, "and all of them were used");
    ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
}

#[test]
fn a_slot_that_comes_free_in_one_queue_wakes_the_other_without_a_poll() {
    let cluster = Cluster::shared();
    let (busy, waiting) = (cluster.database(), cluster.database());
    busy.run(&format!("GRANT {} TO {}", quote_ident(waiting.owner()), quote_ident(busy.login())));
    // launcher, two schedulers, one worker; nobody looks by himself for a minute
    let mill = Supervisor::of(&busy).and(&waiting).queue_key("sleep", 60_000).key("max_workers", 4).start();
    let mut gate = busy.connect_superuser();
    gate.batch_execute("SELECT pg_advisory_lock(7)").expect("close the gate");
    let first = busy.insert("SELECT pg_advisory_lock(7)");
    mill.eventually("it runs", || busy.task(first).is_some_and(|row| row["state"] == "WORK"));
    let second = waiting.insert("SELECT 1");
    mill.eventually("the other one waits for a slot", || {
        let why = waiting.connect().query_one("SELECT mill.why($1::bigint)", &[&second]);
        why.is_ok_and(|row| row.get::<_, String>(0).contains("no slot"))
    });
    gate.batch_execute("SELECT pg_advisory_unlock(7)").expect("open the gate");
    let began = Instant::now();
    assert_eq!(mill.finished(&waiting, second)["state"], "DONE");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn rounds_of_kills_leave_the_count_right() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 20).key("max_workers", 8).start();
    let insert = "INSERT INTO public.task (input, \"group\", repeat) \
                  SELECT 'SELECT pg_sleep(0.2)', 'g' || i, '10 ms' FROM generate_series(1, 12) AS i";
    database.connect().batch_execute(insert).expect("insert");
    let rounds = sized(60, 1000);
    let mut random = rand::rng();
    let mut kills = 0;
    let until = Instant::now() + Duration::from_secs(sized(60, 900));
    while kills < rounds {
        assert!(Instant::now() < until, "{kills} kills\n{}", mill.describe());
        let victims = mill.children();
        // one in ten is the scheduler, with all its workers; one that has not taken yet would be started ever later
        let serving = || mill.status().is_some_and(|status| status["databases"][0]["phase"] == "running");
        let scheduler = random.random_ratio(1, 10) && serving();
        let title = if scheduler { "pgmill: scheduler " } else { "pgmill: worker " };
        let fitting: Vec<_> = victims.iter().filter(|one| !one.zombie && one.title.starts_with(title)).collect();
        let Some(victim) = fitting.choose(&mut random) else { continue };
        let still = process::find(victim.pid).is_some_and(|found| found.parent == victim.parent && !found.zombie);
        if still && kill(Pid::from_raw(victim.pid), Signal::SIGKILL).is_ok() {
            kills += 1;
        }
        if kills % 20 == 0 {
            let status = mill.status().expect("it answers");
            let used = status["slots"]["used"].as_u64().unwrap_or_default();
            assert!(used <= 8, "{status}");
        }
    }
    // again and again: a task that ends just now repeats itself as it was
    mill.wait("all have ended").within(Duration::from_secs(60)).until(|| {
        let open = "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')";
        database.run("UPDATE public.task SET repeat = '0' WHERE repeat > '0' AND state IN ('PLAN', 'TAKE', 'WORK')");
        one::<i64>(&database, open) == 0
    });
    ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
    // a look reserves slots for a moment
    mill.eventually("none is reserved", || mill.status().is_some_and(|status| status["slots"]["reserved"] == 0));
}

#[test]
fn a_queue_that_is_started_under_full_load_gets_its_slot() {
    let cluster = Cluster::shared();
    let (busy, late) = (cluster.database(), cluster.database());
    busy.run(&format!("GRANT {} TO {}", quote_ident(late.owner()), quote_ident(busy.login())));
    let mill = Supervisor::of(&busy).and(&late).queue_key("sleep", 50).key("max_workers", 5).start();
    assert_eq!(mill.command(&["stop", late.name()]).status.code(), Some(0));
    let insert = "INSERT INTO public.task (input, \"group\", repeat) \
                  SELECT 'SELECT pg_sleep(0.1)', 'g' || i, '1 ms' FROM generate_series(1, 20) AS i";
    busy.connect().batch_execute(insert).expect("insert");
    mill.eventually("all slots are in use", || mill.workers().len() == 3);
    let started = mill.command(&["start", late.name()]);
    assert_eq!(started.status.code(), Some(0), "{}", mill.describe());
    let id = late.insert("SELECT 1");
    assert_eq!(mill.finished(&late, id)["state"], "DONE");
}

/// Server processes of ours that stand still until this is dropped.
struct Frozen(Vec<i32>);

impl Frozen {
    fn all_of(database: &Database) -> Frozen {
        let sessions = database.sessions();
        let pids: Vec<i32> = sessions.iter().map(|session| session.pid).collect();
        for pid in &pids {
            kill(Pid::from_raw(*pid), Signal::SIGSTOP).expect("stop a backend");
        }
        Frozen(pids)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGCONT);
        }
    }
}

#[test]
fn backends_that_stand_still_keep_nobody_from_signals_and_from_burying_the_dead() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).queue_key("close", "2 s").start();
    database.insert("SELECT pg_sleep(600)");
    mill.eventually("it runs", || mill.workers().len() == 1);
    let (scheduler, worker) = (mill.schedulers()[0].pid, mill.workers()[0].pid);
    let frozen = Frozen::all_of(&database);
    assert!(frozen.0.len() >= 3);
    // the dead are buried, and a new scheduler is there; it cannot do much
    mill.kill9(scheduler);
    mill.wait("both are gone")
        .within(Duration::from_secs(5))
        .until(|| process::find(scheduler).is_none() && process::find(worker).is_none());
    let new = mill.eventually("another one is there", || {
        mill.schedulers().iter().find(|one| one.pid != scheduler).map(|one| one.pid)
    });
    // it is asked and answers
    assert!(mill.status().is_some());
    mill.signal(Signal::SIGHUP);
    mill.eventually("a signal is heard", || mill.log_contains("config reloaded"));
    mill.signal(Signal::SIGTERM);
    assert_eq!(mill.wait_exit(Duration::from_secs(15)).code(), Some(0), "{}", mill.describe());
    assert!(!is_alive(new));
    drop(frozen);
}
