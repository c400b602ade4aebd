//! Atomic tasks: input, result and consequences are one transaction, whatever dies when.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use serde_json::Value;
use tests::proxy::Loss;
use tests::{Cluster, Database, Proxy, ShutdownMode, Signal, Supervisor, sized};

use crate::ledger;

/// One entry per run that became true.
fn open_ledger(database: &Database) {
    database.connect().batch_execute("CREATE TABLE entry (task bigint)").expect("the owner may make tables");
}

const SIGN: &str = "INSERT INTO entry VALUES (current_setting('pg_task.id')::bigint)";

fn entries(database: &Database) -> i64 {
    database.query("SELECT count(*) FROM entry", &[]).map_or(-1, |rows| rows[0].get(0))
}

#[test]
fn an_atomic_task_is_done_with_its_effects_or_fails_without_them() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    let supervisor = Supervisor::of(&database).start();
    let run = |input: &str| {
        let id = database.insert_with(input, "atomic = true");
        supervisor.finished(&database, id)
    };
    let done = run(SIGN);
    assert_eq!((&done["state"], &done["output"]), (&"DONE".into(), &"INSERT 0 1".into()));
    assert_eq!(entries(&database), 1);
    let failed = run(&format!("{SIGN};SELECT 1/0"));
    assert_eq!((&failed["state"], &failed["output"]), (&"FAIL".into(), &"INSERT 0 1".into()));
    assert!(failed["error"].as_str().expect("an error").starts_with("ERROR:  division by zero\nSTATEMENT:  "));
    let refused = run("VACUUM entry");
    assert!(refused["error"].as_str().expect("an error").contains("VACUUM cannot run inside a transaction block"));
    let inside = run(&format!("{SIGN};SAVEPOINT a;{SIGN};ROLLBACK TO a"));
    assert_eq!(inside["state"], "DONE");
    assert_eq!(entries(&database), 2);
}

/// The storm has found some that had failed for no reason.
#[test]
fn a_cancel_behind_the_input_has_its_reason_too() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    database.run(
        "CREATE FUNCTION public.linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON entry DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.linger()",
    );
    let supervisor = Supervisor::of(&database).start();
    let id = database.insert_with(SIGN, "atomic = true");
    supervisor.eventually("its constraints are being checked", || {
        let cancel = "SELECT pg_cancel_backend(a.pid) FROM pg_stat_activity a JOIN public.task t ON t.pid = a.pid \
                      WHERE t.id = $1 AND a.wait_event = 'PgSleep' AND a.query = 'SET CONSTRAINTS ALL IMMEDIATE'";
        database.query(cancel, &[&id]).is_some_and(|rows| !rows.is_empty())
    });
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"cancelled".into()), "{row:#}");
    assert!(row["error"].as_str().is_some_and(|error| error.contains("due to user request")), "{row:#}");
    assert_eq!(entries(&database), 0);
}

#[test]
fn transaction_control_is_refused_before_anything_is_sent() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    let supervisor = Supervisor::of(&database).start();
    for control in ["COMMIT", "BEGIN", "ROLLBACK", "END", "ABORT", "START TRANSACTION", "PREPARE TRANSACTION 'x'"] {
        let id = database.insert_with(&format!("{SIGN}; /* ; */ {control}"), "atomic = true");
        let row = supervisor.finished(&database, id);
        let error = row["error"].as_str().expect("an error");
        assert!(
            error.starts_with("ERROR:  transaction control is not allowed in an atomic task"),
            "{control}: {error}"
        );
        assert!(!error.contains("STATEMENT:"), "{error}");
    }
    assert_eq!(entries(&database), 0);
}

#[test]
fn a_deferred_constraint_fails_the_task_and_undoes_it() {
    let database = Cluster::shared().database();
    database
        .connect()
        .batch_execute("CREATE TABLE once (x int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO once VALUES (1)")
        .expect("made");
    let supervisor = Supervisor::of(&database).start();
    let id = database.insert_with("INSERT INTO once VALUES (1)", "atomic = true");
    let row = supervisor.finished(&database, id);
    assert_eq!(row["state"], "FAIL");
    assert!(row["error"].as_str().expect("an error").contains("duplicate key"), "{row}");
    let count: i64 = database.query("SELECT count(*) FROM once", &[]).expect("there")[0].get(0);
    assert_eq!(count, 1);
}

#[test]
fn a_row_that_is_taken_back_while_it_runs_takes_its_effects_along() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    let supervisor = Supervisor::of(&database).start();
    let id = database.insert_with(&format!("{SIGN};SELECT pg_sleep(60)"), "atomic = true");
    supervisor.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {id}"));
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    assert_eq!((database.task(id).expect("there")["state"].clone(), entries(&database)), (Value::from("STOP"), 0));
}

#[test]
fn a_repeating_atomic_task_repeats_in_the_same_transaction() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    let supervisor = Supervisor::of(&database).start();
    let id = database.insert_with(SIGN, "atomic = true, repeat = '1 hour'");
    supervisor.finished(&database, id);
    let next = database.tasks().into_iter().find(|row| row["parent"] == id).expect("its repetition is there at once");
    assert_eq!((&next["state"], &next["atomic"]), (&"PLAN".into(), &true.into()));
}

#[test]
fn a_worker_killed_before_its_commit_leaves_nothing_and_one_run_becomes_true() {
    for point in ["worker.before_commit:kill@1", "worker.before_finish:kill@1", "worker.before_commit:panic@1"] {
        let database = Cluster::shared().database();
        open_ledger(&database);
        let supervisor = Supervisor::of(&database).fault(point).start();
        let id = database.insert_with(SIGN, "atomic = true");
        let row = supervisor.finished(&database, id);
        assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()), "{point}");
        assert_eq!(entries(&database), 1, "{point}");
    }
}

#[test]
fn a_worker_killed_after_its_commit_has_run_its_task_once() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    let supervisor = Supervisor::of(&database).fault("worker.after_commit:kill@1").start();
    let id = database.insert_with(SIGN, "atomic = true");
    supervisor.eventually("the fault is met", || supervisor.log_contains("fault point="));
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()));
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    assert_eq!(entries(&database), 1);
}

#[test]
fn a_commit_whose_answer_is_lost_is_resolved_by_reading_the_row() {
    let database = Cluster::shared().database();
    open_ledger(&database);
    database.set_password("pw");
    let proxy = Proxy::before(database.server().port);
    let connect = format!("host=127.0.0.1 port={} user={} password=pw", proxy.port(), database.login());
    let supervisor = Supervisor::of(&database).key("connect", connect).start();
    for (loss, attempts) in [(Loss::After, 1), (Loss::Before, 2)] {
        for live in ["0", "1 hour"] {
            // the records send their COMMIT together with their BEGIN; only the one of an atomic task stands alone
            proxy.lose_at("COMMIT", "BEGIN", loss);
            let id = database.insert_with(SIGN, &format!("atomic = true, live = '{live}', repeat = '1 hour'"));
            let row = supervisor.finished(&database, id);
            assert!(proxy.has_lost(), "the answer was lost");
            assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &attempts.into()), "{loss:?} {live}");
            let times = database.query("SELECT count(*) FROM entry WHERE task = $1", &[&id]).expect("there");
            assert_eq!(times[0].get::<_, i64>(0), 1, "{loss:?} {live}: exactly once");
            ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
            let repetitions = database.tasks().iter().filter(|row| row["parent"] == id).count();
            assert_eq!(repetitions, 1, "{loss:?} {live}: and so are its consequences");
        }
    }
}

#[test]
fn random_kills_and_immediate_restarts_run_every_atomic_task_exactly_once() {
    let cluster = Cluster::start();
    let database = cluster.database();
    open_ledger(&database);
    let tasks: i64 = sized(150, 2000);
    let mut supervisor = Supervisor::of(&database).queue_key("sleep", 100).start();
    let insert = "INSERT INTO public.task (input, atomic, live, \"group\") \
                  SELECT $1 || ';SELECT pg_sleep(0.1)', true, CASE WHEN n % 2 = 0 THEN interval '1 hour' ELSE interval '0' END, \
                  'g' || n % 8 FROM generate_series(1, $2) n";
    database.connect().execute(insert, &[&SIGN, &i32::try_from(tasks).expect("few")]).expect("insert");
    let mut random = rand::rng();
    let done = || {
        let rows = database.query("SELECT count(*) FROM public.task WHERE state = 'DONE'", &[]);
        rows.is_some_and(|rows| rows[0].get::<_, i64>(0) == tasks)
    };
    let (mut kills, mut restarts) = (0, 0);
    let step = Duration::from_millis(40);
    while !done() {
        match random.random_range(0..200) {
            0 if restarts < sized(2, 20) => {
                cluster.restart(ShutdownMode::Immediate);
                restarts += 1;
            }
            1 if kills > 0 && restarts < 30 => {
                supervisor.signal(Signal::SIGKILL);
                supervisor.wait_gone(Duration::from_secs(5));
                drop(supervisor);
                supervisor = Supervisor::of(&database).queue_key("sleep", 100).start();
                restarts += 1;
            }
            roll => {
                let victims = if roll < 6 { supervisor.schedulers() } else { supervisor.workers() };
                if let Some(victim) = victims.choose(&mut random).filter(|_| roll < 60) {
                    let pid = nix::unistd::Pid::from_raw(victim.pid);
                    kills += i64::from(nix::sys::signal::kill(pid, Signal::SIGKILL).is_ok());
                }
                crate::queries::forgive(&database);
                let _ = supervisor.wait("a moment passes").within(step).attempt(|| false);
            }
        }
    }
    assert!(kills > 0, "nothing was killed");
    let twice = "SELECT count(*) FROM (SELECT task FROM entry GROUP BY task HAVING count(*) <> 1) AS odd";
    assert_eq!(database.query(twice, &[]).expect("there")[0].get::<_, i64>(0), 0, "{}", supervisor.describe());
    assert_eq!(entries(&database), tasks, "{kills} kills, {restarts} restarts");
}
