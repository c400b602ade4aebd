//! The server goes away and comes back, or its users lay hands on a running task. A task
//! that was lost with its server is run again; one that a user ended has failed.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Cluster, Database, ShutdownMode, Supervisor, sized};

use crate::ledger;

/// How soon after the server is back the task has been run again.
const COMEBACK: Duration = Duration::from_secs(3);

fn survives_restart(mode: ShutdownMode) {
    let cluster = Cluster::start();
    let database = cluster.database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    let scheduler = supervisor.schedulers()[0].pid;
    let mark = supervisor.log().mark();
    cluster.stop(mode);
    supervisor.eventually("the loss is noticed", || {
        let lines = supervisor.log().since(mark);
        lines.iter().any(|line| line.contains("queue waits"))
            && lines.iter().any(|line| line.contains("launcher waits"))
    });
    supervisor.eventually("no worker is left", || supervisor.workers().is_empty());
    cluster.start_again();
    supervisor.wait("the task has been run again").within(COMEBACK).until(|| database.finished(id));
    assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2);
    assert_eq!(supervisor.exit_status(), None, "the launcher never left");
    let schedulers: Vec<i32> = supervisor.schedulers().iter().map(|process| process.pid).collect();
    assert_eq!(schedulers, [scheduler], "nor did the scheduler");
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    // said once when it began and once when it ended
    let said = |text: &str| supervisor.log().since(mark).iter().filter(|line| line.contains(text)).count();
    supervisor.eventually("the launcher works again", || said("launcher serves again") == 1);
    assert_eq!((said("queue waits"), said("queue served again"), said("launcher waits")), (1, 1, 1));
}

#[test]
fn a_task_whose_server_is_restarted_runs_again() {
    survives_restart(ShutdownMode::Fast);
}

#[test]
fn a_task_whose_server_crashes_runs_again() {
    survives_restart(ShutdownMode::Immediate);
}

#[test]
fn a_quick_restart_in_the_middle_of_many_tasks_loses_none() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let tasks = 60;
    let insert = "INSERT INTO public.task (input, \"group\") \
                  SELECT 'SELECT pg_sleep(0.2)', 'g' || n FROM generate_series(1, 60) n";
    database.connect().batch_execute(insert).expect("insert");
    let done = || database.tasks().iter().filter(|row| row["state"] == "DONE").count();
    supervisor.eventually("some are done", || done() >= 10);
    cluster.restart(ShutdownMode::Immediate);
    supervisor.eventually("all are done", || done() == tasks);
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
}

#[test]
fn a_server_that_crashes_again_and_again_is_served_soon_each_time_and_nobody_gives_up() {
    // A crash loses claims whose tasks have not begun: the next claim of such a row has the same number.
    let cluster = Cluster::configure().setting("wal_writer_delay", "10s").start();
    let database = cluster.database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).start();
    let pids = || -> Vec<i32> { supervisor.schedulers().iter().map(|one| one.pid).collect() };
    let (before, rounds) = (pids(), sized(3, 40));
    let mut ids = Vec::new();
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        for number in 0..4 {
            ids.push(
                database.insert_with("SELECT pg_sleep(0.3)", &format!("group = 'g{round}-{number}', active = '1 day'")),
            );
        }
        supervisor.eventually("one of them runs", || database.tasks().iter().any(|row| row["state"] == "WORK"));
        cluster.stop(ShutdownMode::Immediate);
        cluster.start_again();
        let back = Instant::now();
        let id = database.insert_with("SELECT 1", "group = 'next'");
        supervisor.wait("it is served again").within(Duration::from_secs(60)).until(|| database.finished(id));
        longest = longest.max(back.elapsed());
    }
    println!("served again at most {longest:.2?} after the server was back, {rounds} times");
    // two seconds on a machine that has time for us
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    for id in ids {
        let row = supervisor.wait("all are done").within(Duration::from_secs(60)).until(|| database.finished(id));
        assert_eq!(row["state"], "DONE", "{row:#}");
    }
    assert_eq!(pids(), before, "no process gave up");
    assert!(!supervisor.log_contains("died"));
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
}

#[test]
fn one_crashed_backend_takes_its_server_down_and_no_task_is_lost() {
    let cluster = Cluster::start();
    let database = cluster.database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    // somebody else's session crashes: the server restarts all others, under the same postmaster
    let mut victim = database.connect_superuser();
    let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).expect("query").get(0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).expect("kill");
    assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2);
}

/// Runs a long task and lets a superuser do this to it.
fn ended_by(what: &str) -> Value {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert("SELECT 1;SELECT pg_sleep(100)");
    let pid = supervisor.eventually("it runs", || {
        let rows = database.query(
            "SELECT pid FROM public.task WHERE id = $1 AND pid IN \
             (SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep')",
            &[&id],
        )?;
        rows.first().map(|row| row.get::<_, i32>(0))
    });
    database.query(&format!("SELECT {what}($1)"), &[&pid]).expect("the server is there");
    let row = supervisor.finished(&database, id);
    // nobody else is harmed
    let next = database.insert("SELECT 2");
    assert_eq!(supervisor.finished(&database, next)["state"], "DONE");
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    row
}

#[test]
fn a_task_cancelled_by_a_user_has_failed() {
    let row = ended_by("pg_cancel_backend");
    let text = "ERROR:  canceling statement due to user request\nSTATEMENT:  SELECT 1;SELECT pg_sleep(100)";
    assert_eq!((&row["state"], &row["error"]), (&"FAIL".into(), &text.into()));
    assert_eq!((&row["output"], &row["reason"], &row["attempt"]), (&"1".into(), &"cancelled".into(), &1.into()));
}

#[test]
fn a_task_whose_backend_was_terminated_by_a_user_has_failed() {
    let row = ended_by("pg_terminate_backend");
    let text = "FATAL:  terminating connection due to administrator command\n\
                STATEMENT:  SELECT 1;SELECT pg_sleep(100)";
    assert_eq!((&row["state"], &row["error"]), (&"FAIL".into(), &text.into()));
    assert_eq!((&row["output"], &row["reason"], &row["attempt"]), (&"1".into(), &"cancelled".into(), &1.into()));
}

#[test]
fn a_task_that_ends_its_own_session_has_failed() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert("SELECT 1;SELECT pg_terminate_backend(pg_backend_pid())");
    let row = supervisor.finished(&database, id);
    let error = row["error"].as_str().expect("it fails");
    assert!(error.starts_with("FATAL:  terminating connection due to administrator command\nSTATEMENT:  "), "{error}");
    assert_eq!((&row["state"], &row["attempt"]), (&"FAIL".into(), &1.into()));
}

/// A task that runs for so long, for something to be done to it meanwhile.
#[track_caller]
fn running<'d>(database: &'d Database, seconds: u32) -> (Supervisor<'d>, i64) {
    let supervisor = Supervisor::of(database).queue_key("sleep", 50).start();
    let id = database.insert_with(&format!("SELECT pg_sleep({seconds});SELECT 1"), "repeat = '1 hour'");
    supervisor.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    (supervisor, id)
}

#[test]
fn a_row_that_is_deleted_while_it_runs_stays_deleted() {
    let database = Cluster::shared().database();
    let (supervisor, id) = running(&database, 60);
    database.run(&format!("DELETE FROM public.task WHERE id = {id}"));
    supervisor.eventually("the run is over", || supervisor.log_contains("a user stopped or deleted it"));
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    assert_eq!(database.tasks(), Vec::<Value>::new());
    let next = database.insert("SELECT 2");
    assert_eq!(supervisor.finished(&database, next)["state"], "DONE");
}

#[test]
fn a_row_that_is_stopped_while_it_runs_stays_stopped() {
    let database = Cluster::shared().database();
    let (supervisor, id) = running(&database, 60);
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {id}"));
    supervisor.eventually("the run is over", || supervisor.log_contains("a user stopped or deleted it"));
    let row = database.task(id).expect("the row is there");
    assert_eq!((&row["state"], &row["output"]), (&"STOP".into(), &Value::Null));
    // and resumes when its owner says so
    database.run(&format!("UPDATE public.task SET state = 'PLAN', input = 'SELECT 1' WHERE id = {id}"));
    assert_eq!(supervisor.finished(&database, id)["attempt"], 2);
}

#[test]
fn an_ended_scheduler_session_is_opened_again_and_running_tasks_do_not_notice() {
    let database = Cluster::shared().database();
    let (supervisor, id) = running(&database, 1);
    let name = |wanted: &str| {
        let sessions = database.sessions();
        sessions.into_iter().find(|session| session.application_name.starts_with(wanted)).map(|session| session.pid)
    };
    let before = (supervisor.schedulers(), name("pg_work ").expect("connected"), name("pg_conf").expect("connected"));
    for pid in [before.1, before.2] {
        database.query("SELECT pg_terminate_backend($1)", &[&pid]).expect("the server is there");
    }
    assert_eq!(supervisor.finished(&database, id)["attempt"], 1);
    supervisor.eventually("both are connected again", || {
        name("pg_work ").is_some_and(|pid| pid != before.1) && name("pg_conf").is_some_and(|pid| pid != before.2)
    });
    let next = database.insert("SELECT 2");
    assert_eq!(supervisor.finished(&database, next)["attempt"], 1);
    assert_eq!(supervisor.schedulers(), before.0);
}
