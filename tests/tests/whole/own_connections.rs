//! Plain tasks whose workers have a connection each (`"pooled": false`): the scheduler writes when they begin and how
//! they end, and still nobody runs what has not begun, and nobody waits for anybody else.

use std::time::Duration;
use tests::{Cluster, Database, Signal, Supervisor};

fn start<'a>(database: &'a Database, fault: Option<&str>) -> Supervisor<'a> {
    let launch = Supervisor::of(database).queue_key("pool", false).queue_key("sleep", 50);
    match fault {
        Some(fault) => launch.fault(fault).start(),
        None => launch.start(),
    }
}

/// Its state, its attempt and its output.
fn told(row: &serde_json::Value) -> (&str, i64, &str) {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    (text("state"), row["attempt"].as_i64().unwrap_or_default(), text("output"))
}

#[test]
fn a_task_finds_in_its_own_session_what_it_finds_in_any() {
    let database = Cluster::shared().database();
    let mill = start(&database, None);
    let seen = "SELECT concat_ws('|', current_setting('pg_task.id'), current_setting('pg_task.group'), \
                current_setting('pg_task.schema'), current_setting('pg_task.table'), current_setting('application_name'), \
                current_setting('statement_timeout'), pg_backend_pid(), \
                (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND classid = 1835597828))";
    // What is not of ASCII cannot come with the login; the name of a session can show no other letters.
    let groups = [("a 'group\\\"", "a 'group\\\""), ("gr\u{fc}ppe", "gr\\xc3\\xbcppe")];
    for (group, shown) in groups {
        let quoted = group.replace('\'', "''");
        let id = database.insert_with(seen, &format!("group = '{quoted}', timeout = '7 s'"));
        let row = mill.finished(&database, id);
        let wanted = format!("{id}|{group}|public|task|pg_task public task {shown}|7s|{}|1", row["pid"]);
        let question_marks = wanted.replace("\\xc3\\xbc", "??");
        let (state, attempt, output) = told(&row);
        assert_eq!((state, attempt), ("DONE", 1), "{row}");
        assert!(output == wanted || output == question_marks, "{output} instead of {wanted}");
    }
}

#[test]
fn whoever_dies_around_the_beginning_costs_one_attempt_and_nothing_else() {
    let faults = [
        ("worker.before_begin:kill@1", 2),
        ("worker.before_begin:panic@1", 2),
        ("worker.after_begin:kill@1", 2),
        ("worker.before_finish:kill@1", 2),
        ("worker.after_result:kill@1", 1),
        ("scheduler.before_begins:kill@1", 2),
        ("scheduler.after_begins:kill@1", 2),
        ("scheduler.before_recording:kill@1", 2),
    ];
    for (fault, attempt) in faults {
        let database = Cluster::shared().database();
        let mill = start(&database, Some(fault));
        let row = mill.finished(&database, database.insert("SELECT 42"));
        assert!(mill.log_contains("fault point="), "{fault} was never met:\n{}", mill.describe());
        assert_eq!(told(&row), ("DONE", attempt, "42"), "{fault}: {row}");
        crate::ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
        mill.eventually("only launcher and scheduler are connected", || database.sessions().len() == 2);
    }
}

#[test]
fn a_row_that_somebody_holds_when_it_is_to_begin_holds_up_nobody_else() {
    let database = Cluster::shared().database();
    let mill = start(&database, Some("worker.before_begin:stop@1"));
    let held = database.insert("SELECT 1");
    let worker = mill.eventually("its worker has connected", || crate::queries::worker_of(&mill, held));
    mill.eventually("it stands still before it reports", || mill.log_contains("fault point="));
    let mut owner = database.connect();
    let mut hold = owner.transaction().expect("begin");
    hold.execute("SELECT FROM public.task WHERE id = $1 FOR UPDATE", &[&held]).expect("lock a row");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker), Signal::SIGCONT).expect("it goes on");
    mill.eventually("it waits for the row itself", || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                      AND application_name = 'pg_task public task group' AND datname = current_database()";
        database.query(waits, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 1)
    });
    let other = database.insert_with("SELECT 2", "group = 'other'");
    assert_eq!(told(&mill.finished(&database, other)), ("DONE", 1, "2"));
    assert_eq!(database.task(held).expect("the row")["state"], "TAKE");
    hold.rollback().expect("let go");
    assert_eq!(told(&mill.finished(&database, held)), ("DONE", 1, "1"));
}

#[test]
fn a_worker_that_waits_for_the_server_does_not_hold_up_the_end() {
    let database = Cluster::shared().database();
    let mill = start(&database, Some("worker.before_begin:hang@1"));
    let id = database.insert("SELECT 1");
    mill.eventually("it hangs before it reports", || mill.log_contains("fault point="));
    mill.signal(Signal::SIGINT);
    mill.wait_gone(Duration::from_secs(10));
    assert_eq!(database.task(id).expect("the row")["state"], "PLAN", "{}", mill.describe());
    tests::eventually("no session is left", || database.sessions().is_empty());
}

#[test]
fn a_long_task_on_its_own_connection_is_cancelled_stopped_and_timed_out_like_any_other() {
    let database = Cluster::shared().database();
    let mill = start(&database, None);
    let row = mill.finished(&database, database.insert_with("SELECT pg_sleep(30)", "timeout = '200 ms'"));
    assert_eq!(told(&row), ("FAIL", 1, ""), "{row}");
    let stopped = database.insert("SELECT pg_sleep(600)");
    mill.eventually("it runs", || database.task(stopped).is_some_and(|row| row["state"] == "WORK"));
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {stopped}"));
    mill.eventually("its worker is gone", || mill.workers().is_empty());
    let id = database.insert("SELECT pg_sleep(600)");
    mill.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    mill.signal(Signal::SIGINT);
    mill.wait_gone(Duration::from_secs(20));
    assert_eq!(database.task(id).expect("the row")["state"], "PLAN");
    assert_eq!(database.task(stopped).expect("the row")["state"], "STOP");
}
