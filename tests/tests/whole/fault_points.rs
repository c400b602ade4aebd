//! Named faults at every step of a task's way: a process is killed, hangs or panics there, and the task runs once more or is recorded.

use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, Supervisor};

use crate::ledger;
use crate::processes::{GONE_WITHIN, prepare, scheduler_session};

/// Arms a fault, runs one task, and looks at the end: done at this attempt, nothing left.
#[track_caller]
fn survives(fault: &str, attempt: i32, keys: &[(&str, Value)]) {
    survives_with("", fault, attempt, keys);
}

/// The same with a task whose worker is handed nothing but its name, and looks at the row itself.
#[track_caller]
fn survives_by_itself(fault: &str, attempt: i32, keys: &[(&str, Value)]) {
    survives_with("count = 1", fault, attempt, keys);
}

#[track_caller]
fn survives_with(columns: &str, fault: &str, attempt: i32, keys: &[(&str, Value)]) {
    let database = Cluster::shared().database();
    prepare(&database);
    let id = database.insert_with("SELECT 1", columns);
    // Every worker with a connection of its own; what is different where they inherit one is tested in `connection_pool`.
    let mut launch = Supervisor::of(&database).fault(fault).queue_key("sleep", 50).queue_key("pool", false);
    for (name, value) in keys {
        launch = launch.queue_key(name, value.clone());
    }
    let supervisor = launch.start();
    let row = supervisor.finished(&database, id);
    // One that is met behind the commit is said a moment after the row is seen.
    supervisor.eventually("the fault is met", || supervisor.log_contains("fault point="));
    assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"1".into()), "{}", supervisor.describe());
    assert_eq!(row["attempt"], attempt, "{}", supervisor.describe());
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    supervisor.eventually("only launcher and scheduler are left", || {
        supervisor.children().len() == 1 && database.sessions().len() == 2
    });
    // and the next task meets no trace of it
    let next = database.insert("SELECT 2");
    assert_eq!(supervisor.finished(&database, next)["attempt"], 1);
}

#[test]
fn a_scheduler_killed_between_claim_and_fork_loses_no_task() {
    survives("scheduler.after_take:kill@1", 2, &[]);
}

#[test]
fn a_scheduler_killed_just_before_the_fork_loses_no_task() {
    survives("scheduler.before_fork:kill@1", 2, &[]);
}

#[test]
fn a_scheduler_killed_just_after_the_fork_loses_no_task() {
    survives("scheduler.after_fork:kill@1", 2, &[]);
}

#[test]
fn a_scheduler_killed_before_it_reads_its_parameters_is_started_again() {
    survives("scheduler.before_accept:kill@1", 1, &[]);
}

#[test]
fn a_scheduler_that_never_reads_its_parameters_is_ended_and_started_again() {
    survives("scheduler.before_accept:hang@1", 1, &[("close", 300.into())]);
}

#[test]
fn a_worker_killed_before_it_reads_its_parameters_loses_no_task() {
    survives_by_itself("worker.before_accept:kill@1", 2, &[]);
}

#[test]
fn a_worker_that_never_reads_its_parameters_is_ended_and_its_task_planned_again() {
    survives_by_itself("worker.before_accept:hang@1", 2, &[("close", 300.into())]);
}

#[test]
fn a_worker_killed_after_it_has_read_its_parameters_loses_no_task() {
    survives_by_itself("worker.after_accept:kill@1", 2, &[]);
}

#[test]
fn a_worker_killed_when_it_has_marked_its_row_loses_no_task() {
    survives("worker.after_begin:kill@1", 2, &[]);
    survives_by_itself("worker.after_begin:kill@1", 2, &[]);
}

#[test]
fn a_worker_killed_before_it_writes_the_result_runs_its_task_again() {
    survives("worker.before_finish:kill@1", 2, &[]);
    survives_by_itself("worker.before_finish:kill@1", 2, &[]);
}

#[test]
fn a_worker_killed_before_it_marks_its_row_loses_no_task() {
    survives("worker.before_begin:kill@1", 2, &[]);
    survives_by_itself("worker.before_begin:kill@1", 2, &[]);
}

#[test]
fn a_worker_killed_after_it_has_written_the_result_does_not_run_its_task_again() {
    survives_by_itself("worker.after_finish:kill@1", 1, &[]);
}

#[test]
fn a_scheduler_killed_after_it_has_handed_a_slot_over_loses_no_task() {
    survives("scheduler.after_transfer:kill@1", 2, &[]);
}

#[test]
fn a_scheduler_killed_before_it_settles_a_dead_workers_task_leaves_it_to_the_next() {
    survives("scheduler.before_settle:kill@1,worker.after_begin:kill@1", 2, &[]);
}

#[test]
fn a_scheduler_that_panics_is_started_again() {
    survives("scheduler.after_take:panic@1", 2, &[]);
}

#[test]
fn a_launcher_killed_around_its_first_fork_leaves_nothing() {
    for fault in ["launcher.before_fork:kill@1", "launcher.after_fork:kill@1", "launcher.after_transfer:kill@1"] {
        let database = Cluster::shared().database();
        let supervisor = Supervisor::of(&database).fault(fault).launch();
        supervisor.eventually("the fault is met", || supervisor.log_contains("fault point="));
        supervisor.wait("all processes and sessions are gone").within(GONE_WITHIN).until(|| {
            supervisor.exit_status().is_some() && supervisor.children().is_empty() && database.sessions().is_empty()
        });
        drop(supervisor);
        let next = Supervisor::of(&database).queue_key("sleep", 50).start();
        let id = database.insert("SELECT 1");
        assert_eq!(next.finished(&database, id)["state"], "DONE");
    }
}

#[test]
fn a_launcher_killed_before_it_answers_a_message_leaves_the_sender_with_no_and_the_queue_to_the_next() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).fault("launcher.before_answer:kill@1").start();
    let known = || database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1);
    supervisor.eventually("the catalog knows the queue", known);
    let answer = database.connect().query_one("SELECT mill.restart()", &[]).expect("an answer, or none in time");
    assert!(!answer.get::<_, bool>(0));
    supervisor.wait_gone(Duration::from_secs(5));
    assert!(supervisor.log_contains("fault point="), "{}", supervisor.describe());
    drop(supervisor);
    let next = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    assert_eq!(next.finished(&database, id)["state"], "DONE");
}

#[test]
fn a_worker_that_panics_does_not_harm_its_schedulers_session() {
    for point in ["worker.before_accept", "worker.after_accept", "worker.after_begin", "worker.before_finish"] {
        let database = Cluster::shared().database();
        let supervisor = Supervisor::of(&database).fault(&format!("{point}:panic@1")).queue_key("sleep", 50).start();
        let scheduler = supervisor.schedulers()[0].pid;
        let session = scheduler_session(&database).expect("the scheduler is connected");
        let id = database.insert("SELECT 1");
        let row = supervisor.finished(&database, id);
        assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()), "{}", supervisor.describe());
        assert!(supervisor.log_contains("panic text="), "{}", supervisor.describe());
        assert_eq!(scheduler_session(&database), Some(session), "{}", supervisor.describe());
        assert_eq!(supervisor.schedulers()[0].pid, scheduler);
        ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    }
}

#[test]
fn every_fault_point_is_met_by_some_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let mut sources = String::new();
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the tests' own folder") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources += &std::fs::read_to_string(path).expect("sources are text");
            }
        }
    }
    for point in shared::process::fault::POINTS {
        assert!(sources.contains(&format!("\"{point}:")), "no test arms {point}");
    }
}
