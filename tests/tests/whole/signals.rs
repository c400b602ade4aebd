//! What an operator says by signals, while a task runs: finish, cancel, leave, read the
//! config again. A task is either finished or waits for the next start; never lost.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Cluster, Database, Signal, Supervisor, steadily};

use crate::ledger;

const SECOND: Duration = Duration::from_secs(1);

/// The row is as if the task had never been started, but for the attempt.
#[track_caller]
fn assert_planned_again(database: &Database, id: i64) {
    let row = database.task(id).expect("the row is there");
    assert_eq!(row["state"], "PLAN", "{row}");
    for column in ["start", "stop", "pid", "output", "error"] {
        assert_eq!(row[column], Value::Null, "{column}");
    }
    assert_eq!(row["attempt"], 1);
}

/// Another launcher runs it to its end.
#[track_caller]
fn assert_runs_again(database: &Database, id: i64) {
    let next = Supervisor::of(database).queue_key("sleep", 50).start();
    assert_eq!(ledger::ended(&next, database, id, 2)["attempt"], 2);
    ledger::slots_held_by(&next, &["launcher", "scheduler"]);
}

/// All processes and sessions are gone; the launcher left with this code.
#[track_caller]
fn assert_left(supervisor: &Supervisor<'_>, database: &Database, within: Duration, code: i32) {
    let status = supervisor.wait_exit(within);
    assert_eq!(status.code(), Some(code), "{}", supervisor.describe());
    supervisor.wait_gone(SECOND);
    supervisor.wait("no session is left").within(SECOND).until(|| database.sessions().is_empty());
}

#[test]
fn term_lets_a_running_task_finish_and_starts_no_other() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert("SELECT pg_sleep(1.5);SELECT 1");
    supervisor.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    supervisor.signal(Signal::SIGTERM);
    supervisor.eventually("it stops", || supervisor.log_contains("scheduler is stopping"));
    let late = database.insert_with("SELECT 2", "group = 'another'");
    assert_left(&supervisor, &database, Duration::from_secs(10), 0);
    let row = database.task(id).expect("the row is there");
    assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"1".into()));
    // a look that was under way may have taken it, and has given it back
    let row = database.task(late).expect("the row is there");
    assert_eq!((&row["state"], &row["start"]), (&"PLAN".into(), &serde_json::Value::Null));
}

#[test]
fn term_with_nothing_to_do_ends_at_once() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    supervisor.signal(Signal::SIGTERM);
    assert_left(&supervisor, &database, SECOND, 0);
    assert!(supervisor.status().is_none());
    assert!(!supervisor.home().join("mill.sock").exists(), "the control socket is removed");
}

#[test]
fn term_cancels_a_task_that_is_longer_than_close_and_plans_it_again() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).queue_key("close", 700).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    let asked = Instant::now();
    supervisor.signal(Signal::SIGTERM);
    assert_left(&supervisor, &database, Duration::from_secs(3), 0);
    assert!(asked.elapsed() >= Duration::from_millis(700), "it had its time");
    assert_planned_again(&database, id);
    assert_runs_again(&database, id);
}

#[test]
fn a_second_term_cancels_at_once() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    supervisor.signal(Signal::SIGTERM);
    supervisor.eventually("it lets tasks finish", || supervisor.log_contains("finishing tasks"));
    steadily("the task runs on", Duration::from_millis(300), || {
        database.task(id).is_some_and(|row| row["state"] == "WORK")
    });
    supervisor.signal(Signal::SIGTERM);
    assert_left(&supervisor, &database, SECOND, 0);
    assert_planned_again(&database, id);
    assert_runs_again(&database, id);
}

#[test]
fn int_plans_a_running_task_again_and_ends() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    supervisor.signal(Signal::SIGINT);
    assert_left(&supervisor, &database, SECOND, 0);
    assert_planned_again(&database, id);
    assert_runs_again(&database, id);
}

#[test]
fn int_with_many_running_tasks_plans_all_of_them_again() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).key("max_workers", 40).queue_key("sleep", 50).start();
    let insert = "INSERT INTO public.task (input, \"group\") \
                  SELECT 'SELECT pg_sleep(100)', 'g' || n FROM generate_series(1, 30) n";
    database.connect().batch_execute(insert).expect("insert");
    let all = |state: &str| database.tasks().iter().filter(|row| row["state"] == state).count() == 30;
    supervisor.eventually("all run", || all("WORK"));
    supervisor.signal(Signal::SIGINT);
    assert_left(&supervisor, &database, Duration::from_secs(3), 0);
    assert!(all("PLAN"), "{}", supervisor.describe());
}

#[test]
fn ctrl_c_in_a_terminal_is_an_int_for_the_launcher_alone() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).in_terminal().start();
    let (id, _) = ledger::begin(&supervisor, &database);
    supervisor.press_ctrl_c();
    assert_left(&supervisor, &database, SECOND, 0);
    assert!(!supervisor.log_contains("worker died"), "{}", supervisor.describe());
    assert_planned_again(&database, id);
    assert_runs_again(&database, id);
}

#[test]
fn quit_leaves_at_once_and_the_next_start_recovers() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    supervisor.signal(Signal::SIGQUIT);
    supervisor.wait("all processes and sessions are gone").within(SECOND).until(|| {
        supervisor.exit_status().is_some() && supervisor.children().is_empty() && database.sessions().is_empty()
    });
    assert_eq!(database.task(id).expect("the row is there")["state"], "WORK");
    drop(supervisor);
    assert_runs_again(&database, id);
}

/// A task that catches every cancel, and does not look for its client.
const STUBBORN: &str = "SET client_connection_check_interval = 0;\
                        DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(100); \
                        EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$";

#[test]
fn int_ends_a_statement_that_catches_the_cancel_too() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert(STUBBORN);
    supervisor.eventually("it runs", || {
        database
            .sessions()
            .iter()
            .any(|session| session.application_name.starts_with("pg_task ") && session.state == "active")
            && database.task(id).is_some_and(|row| row["state"] == "WORK")
    });
    supervisor.signal(Signal::SIGINT);
    assert_left(&supervisor, &database, Duration::from_secs(3), 0);
    assert_planned_again(&database, id);
}

#[test]
fn a_time_limit_ends_a_statement_that_catches_the_cancel_too() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert_with(STUBBORN, "timeout = '300 ms'");
    let row = supervisor.finished(&database, id);
    let error = format!("ERROR:  canceling statement due to statement timeout\nSTATEMENT:  {STUBBORN}");
    assert_eq!((&row["state"], &row["error"]), (&"FAIL".into(), &error.into()));
    assert_eq!((&row["reason"], &row["attempt"]), (&"timeout".into(), &1.into()));
}

#[test]
fn int_to_a_worker_gives_its_task_back_and_term_lets_it_finish() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    let worker = supervisor.workers()[0].pid;
    signal(worker, Signal::SIGTERM);
    steadily("the task runs on", Duration::from_millis(300), || entries_of(&database) == 1);
    signal(worker, Signal::SIGINT);
    assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2);
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
}

#[test]
fn a_scheduler_that_an_operator_ends_is_started_again() {
    for how in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        let database = Cluster::shared().database();
        ledger::open(&database);
        let supervisor = Supervisor::of(&database).queue_key("sleep", 50).queue_key("close", 300).start();
        let (id, _) = ledger::begin(&supervisor, &database);
        let scheduler = supervisor.schedulers()[0].pid;
        signal(scheduler, how);
        assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2, "{how}");
        assert_ne!(supervisor.schedulers()[0].pid, scheduler);
        ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    }
}

fn entries_of(database: &Database) -> usize {
    ledger::entries(database).len()
}

fn signal(pid: i32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("send a signal");
}

/// The config as it stands in the file.
fn config(supervisor: &Supervisor<'_>) -> Value {
    let text = std::fs::read_to_string(supervisor.config().expect("it has a config")).expect("readable");
    serde_json::from_str(&text).expect("JSON")
}

/// Changes the config, sends SIGHUP, waits until it was read.
#[track_caller]
fn reload(supervisor: &Supervisor<'_>, config: &Value) {
    let mark = supervisor.log().mark();
    supervisor.rewrite_config(&config.to_string());
    supervisor.signal(Signal::SIGHUP);
    supervisor.eventually("the config is read again", || {
        supervisor.log().since(mark).iter().any(|line| line.contains("config reloaded"))
    });
}

#[test]
fn hup_changes_sleep_without_a_restart() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", "1 hour").start();
    let before = supervisor.schedulers();
    supervisor.eventually("the session's name tells the sleep", || {
        database.sessions().iter().any(|session| session.application_name == "pg_work public task 3600000")
    });
    let mut changed = config(&supervisor);
    changed["json"][0]["sleep"] = json!(60);
    reload(&supervisor, &changed);
    supervisor.eventually("the settings have arrived", || supervisor.log_contains("settings in force"));
    assert!(supervisor.log_contains("run=unlimited"), "{}", supervisor.describe());
    // a row that nobody notifies about is found by the poll alone
    let mut client = database.connect_superuser();
    client.batch_execute("SET session_replication_role = replica").expect("no triggers");
    for _ in 0..3 {
        let row = client.query_one("INSERT INTO public.task (input) VALUES ('SELECT 1') RETURNING id", &[]);
        let id: i64 = row.expect("inserted").get(0);
        supervisor.wait("it is found by the quick poll").within(Duration::from_secs(5)).until(|| database.finished(id));
    }
    assert_eq!(supervisor.schedulers(), before);
    supervisor.eventually("the session's name tells the new sleep", || {
        database.sessions().iter().any(|session| session.application_name == "pg_work public task 60")
    });
}

#[test]
fn hup_starts_a_scheduler_for_a_new_row_and_leaves_the_others_alone() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let before = supervisor.schedulers();
    let running = database.insert("SELECT pg_sleep(1)");
    supervisor.eventually("it runs", || database.task(running).is_some_and(|row| row["state"] == "WORK"));
    let mut changed = config(&supervisor);
    let row = json!({"data": database.name(), "user": database.owner(), "schema": "other", "sleep": 50});
    changed["json"].as_array_mut().expect("rows").push(row);
    reload(&supervisor, &changed);
    supervisor.eventually("the new row is served", || {
        supervisor.log_contains(&format!("queue served queue=\"{} other.task\"", database.name()))
    });
    database.connect().batch_execute("INSERT INTO other.task (input) VALUES ('SELECT 5')").expect("insert");
    supervisor.eventually("its task is done", || {
        let rows = database.query("SELECT 1 FROM other.task WHERE state = 'DONE' AND output = '5'", &[]);
        rows.is_some_and(|rows| rows.len() == 1)
    });
    assert_eq!(supervisor.finished(&database, running)["attempt"], 1);
    assert!(supervisor.schedulers().contains(&before[0]));
    assert_eq!(supervisor.schedulers().len(), 2);
}

#[test]
fn hup_stops_the_scheduler_of_a_removed_row_when_its_task_has_finished() {
    let database = Cluster::shared().database();
    let other = json!({"data": database.name(), "user": database.owner(), "schema": "other", "sleep": 50});
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).queue(other).start();
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler", "scheduler"]);
    let id = database.insert("SELECT pg_sleep(1.5);SELECT 6");
    supervisor.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    let mut changed = config(&supervisor);
    changed["json"].as_array_mut().expect("rows").remove(0);
    reload(&supervisor, &changed);
    supervisor.eventually("it stops", || supervisor.log_contains("scheduler is stopping"));
    let late = database.insert("SELECT 7");
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"6".into()), "{row}");
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    let status = supervisor.status().expect("it answers");
    assert_eq!(status["databases"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(database.task(late).expect("the row is there")["state"], "PLAN");
    // and back again
    let row = json!({"data": database.name(), "user": database.owner(), "sleep": 50});
    changed["json"].as_array_mut().expect("rows").push(row);
    reload(&supervisor, &changed);
    assert_eq!(supervisor.finished(&database, late)["output"], "7");
}

#[test]
fn hup_with_a_bad_file_is_reported_and_the_old_config_stays() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let before = supervisor.schedulers();
    for text in ["{", r#"{"json": [{"data": "x", "sleeep": 1}]}"#] {
        let mark = supervisor.log().mark();
        supervisor.rewrite_config(text);
        supervisor.signal(Signal::SIGHUP);
        supervisor.eventually("the mistake is reported", || {
            let lines = supervisor.log().since(mark);
            lines.iter().any(|line| line.contains("config has a mistake"))
                && lines.iter().any(|line| line.contains("the former one stays in force"))
        });
    }
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    assert_eq!(supervisor.schedulers(), before);
}
