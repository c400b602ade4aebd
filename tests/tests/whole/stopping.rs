//! Tasks that are stopped, deleted, cancelled or terminated while they run: by a change of their row, or by a person.

use std::time::{Duration, Instant};

use tests::{Cluster, Database, Signal, Supervisor, steadily};

use crate::asking::{all, one, one_with, running, state, worker_of};

/// Attempts of one task that met each other, by a lock that each holds while it runs.
const ALONE: &str = "BEGIN; INSERT INTO public.ledger VALUES (current_setting('pg_task.id')::bigint, \
    pg_try_advisory_lock(77, current_setting('pg_task.id')::int)); COMMIT; SELECT pg_sleep(1.5); \
    SELECT pg_advisory_unlock(77, current_setting('pg_task.id')::int)";

fn ledger(database: &Database) {
    database.run("CREATE TABLE public.ledger (task bigint, alone bool); GRANT ALL ON public.ledger TO PUBLIC");
}

#[test]
fn a_running_task_that_is_set_to_stop_is_cancelled_and_can_be_resumed() {
    let database = Cluster::shared().database();
    ledger(&database);
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    let id = database.insert_with("SELECT pg_sleep(600)", "repeat = '1 hour'");
    let backend = running(&mill, &database, id);
    let began = Instant::now();
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {id}"));
    let gone = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {backend} AND query LIKE '%pg_sleep%' AND state = 'active'"
    );
    mill.eventually("its statement has ended", || one::<i64>(&database, &gone) == 0);
    println!("stopped after {:?}", began.elapsed());
    steadily("the row stays STOP", Duration::from_millis(500), || state(&database, id) == "STOP");
    let row = database.task(id).expect("it is there");
    assert!(row["output"].is_null() && row["error"].is_null(), "{row:#}");
    assert_eq!(database.tasks().len(), 1, "no repetition");
    database.run(&format!("UPDATE public.task SET state = 'PLAN', input = 'SELECT 2' WHERE id = {id}"));
    let row = mill.finished(&database, id);
    assert_eq!((&row["output"], &row["attempt"]), (&"2".into(), &2.into()));
}

/// Goes on for 1.5 s after it was cancelled, whatever comes meanwhile. A server signals a backend twice for one cancel (the
/// process, and its group), and the second one may arrive while the first is being dealt with: that is caught one level up.
const STUBBORN: &str = "DO $$ DECLARE passes int := 0; till timestamptz; BEGIN <<whole>> LOOP BEGIN LOOP BEGIN \
    passes := passes + 1; \
    IF passes > 1 THEN till := COALESCE(till, clock_timestamp() + interval '1.5 s'); END IF; \
    PERFORM pg_sleep(COALESCE(extract(epoch FROM till - clock_timestamp()), 60)::float8); EXIT whole; \
    EXCEPTION WHEN query_canceled THEN END; END LOOP; \
    EXCEPTION WHEN query_canceled THEN END; END LOOP; END $$";

/// Runs one that resists, takes it away by `change`, and sees how much later the next of its group starts.
fn starts_behind(change: &str, columns: &str) {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let first = database.insert_with(STUBBORN, columns);
    let backend = running(&mill, &database, first);
    let asleep = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'PgSleep'");
    mill.eventually("it is at its work", || one::<i64>(&database, &asleep) == 1);
    let second = database.insert_with("SELECT 1", columns);
    let other = database.insert_with("SELECT 1", "group = 'other'");
    let changed: f64 = one(&database, "SELECT extract(epoch FROM clock_timestamp())::float8");
    database.run(&format!("{change} WHERE id = {first}"));
    mill.finished(&database, other);
    mill.finished(&database, second);
    let started = format!("SELECT extract(epoch FROM start)::float8 FROM public.task WHERE id = {second}");
    let pause = one::<f64>(&database, &started) - changed;
    assert!(
        pause >= 1.5,
        "{change}, {columns}: the next one started {pause} s later, and it resisted for 1.5 s\n{}",
        mill.describe()
    );
}

#[test]
fn a_stopped_or_deleted_task_counts_in_its_group_until_its_statement_has_ended() {
    for change in ["UPDATE public.task SET state = 'STOP'", "DELETE FROM public.task"] {
        for columns in ["group = 'its own'", "group = 'live', live = '1 hour'", "group = 'atomic', atomic = true"] {
            starts_behind(change, columns);
        }
    }
}

/// A row says that it runs as soon as it is taken, which may be before its worker exists: its owner may stop it then, and nobody
/// rings for a scheduler that is awake.
#[test]
fn a_task_that_is_stopped_or_deleted_in_the_moment_it_is_taken_does_not_run_on() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("sleep", "1 hour").start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    database.run(
        "CREATE FUNCTION public.stop_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.\"group\" = 'stop' THEN UPDATE public.task SET state = 'STOP' WHERE id = NEW.id; \
             ELSE DELETE FROM public.task WHERE id = NEW.id; END IF; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER stop_it AFTER UPDATE OF state ON public.task DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
             WHEN (NEW.state = 'WORK' AND NEW.\"group\" IN ('stop', 'delete')) EXECUTE FUNCTION public.stop_it()",
    );
    for group in ["stop", "delete"] {
        let id = database.insert_with("SELECT pg_sleep(600)", &format!("group = '{group}'"));
        let waits = format!("SELECT count(*) FROM public.task WHERE id = {id} AND state IN ('PLAN', 'TAKE', 'WORK')");
        mill.eventually("it is taken", || one::<i64>(&database, &waits) == 0);
        mill.eventually("no worker is at it", || mill.workers().is_empty());
    }
    // and a moment later, again and again
    for round in 0..30 {
        let id = database.insert_with("SELECT pg_sleep(600)", &format!("group = 'round {round}'"));
        let work = format!("UPDATE public.task SET state = 'STOP' WHERE id = {id} AND state = 'WORK' RETURNING id");
        mill.eventually("it is stopped", || !all::<i64>(&database, &work).is_empty());
        mill.eventually("no worker is at it", || mill.workers().is_empty());
    }
    mill.eventually("no slot is lost", || mill.status().is_some_and(|status| status["slots"]["used"] == 2));
}

/// Its owner was told that it runs, and its worker has not said so: the scheduler knows of it all the same.
#[test]
fn a_task_that_is_stopped_before_its_worker_has_said_a_word_is_cancelled_when_it_does() {
    for change in ["UPDATE public.task SET state = 'STOP'", "DELETE FROM public.task"] {
        let database = Cluster::shared().database();
        let mill = Supervisor::of(&database).row_key("sleep", "1 hour").row_key("lend", true);
        let mill = mill.fault("worker.before_noting:stop@1").start();
        let first = database.insert("SELECT 1");
        mill.finished(&database, first);
        let kept = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_task public task' \
                     AND datname = current_database() AND state = 'idle'";
        mill.eventually("its connection is kept", || one::<i64>(&database, kept) == 1);
        let id = database.insert_with("SELECT pg_sleep(600)", "group = 'stop'");
        let worker = mill.eventually("it has a worker", || worker_of(&mill, id));
        mill.eventually("that stands still", || mill.log_contains("fault point=worker.before_noting"));
        database.run(&format!("{change} WHERE id = {id} AND state = 'WORK'"));
        // looked at after the change
        let other = database.insert_with("SELECT 2", "group = 'other'");
        mill.finished(&database, other);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker), Signal::SIGCONT).expect("it goes on");
        mill.eventually("no worker is at it", || mill.workers().is_empty());
        mill.eventually("no slot is lost", || mill.status().is_some_and(|status| status["slots"]["used"] == 2));
    }
}

#[test]
fn a_task_stopped_and_resumed_in_one_breath_never_runs_twice_at_once() {
    let database = Cluster::shared().database();
    ledger(&database);
    let mill = Supervisor::of(&database).start();
    for live in ["0", "1 hour"] {
        let id = database.insert_with(ALONE, &format!("live = '{live}', group = 'live {live}'"));
        for round in 1..=3 {
            mill.eventually("it is at work", || {
                one_with::<i64>(&database, "SELECT count(*) FROM ledger WHERE task = $1", &[&id]) >= round
            });
            database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {id}; COMMIT; UPDATE public.task SET state = 'PLAN' WHERE id = {id}"));
        }
        assert_eq!(mill.finished(&database, id)["state"], "DONE");
    }
    let met: i64 = one(&database, "SELECT count(*) FROM ledger WHERE NOT alone");
    assert_eq!(met, 0, "attempts that met an earlier one");
    mill.eventually("no worker is left", || mill.workers().is_empty());
    mill.eventually("nor a slot", || mill.status().is_some_and(|status| status["slots"]["used"] == 2));
}

#[test]
fn a_running_task_that_is_deleted_ends_and_leaves_nothing() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    database.run("CREATE TABLE ledger (task bigint); GRANT ALL ON ledger TO PUBLIC");
    let id = database.insert_with("SELECT pg_sleep(600); INSERT INTO ledger VALUES (1)", "repeat = '1 hour'");
    let backend = running(&mill, &database, id);
    database.run(&format!("DELETE FROM public.task WHERE id = {id}"));
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}");
    mill.eventually("its session is gone", || one::<i64>(&database, &gone) == 0);
    assert!(database.tasks().is_empty() && one::<i64>(&database, "SELECT count(*) FROM ledger") == 0);
    let next = database.insert("SELECT 1");
    mill.finished(&database, next);
}

#[test]
fn users_may_cancel_and_terminate_the_backend_of_a_task() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    for (function, words) in [
        ("pg_cancel_backend", "ERROR:  canceling statement due to user request\nSTATEMENT:  SELECT pg_sleep(600)"),
        (
            "pg_terminate_backend",
            "FATAL:  terminating connection due to administrator command\nSTATEMENT:  SELECT pg_sleep(600)",
        ),
    ] {
        let id = database.insert_with("SELECT pg_sleep(600)", "live = '1 hour'");
        let next = database.insert_with("SELECT 1", "live = '1 hour'");
        let backend = running(&mill, &database, id);
        mill.eventually("its statement runs", || {
            let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'";
            one_with::<i64>(&database, sleeps, &[&backend]) == 1
        });
        // with the row user's own rights
        database.connect().batch_execute(&format!("SELECT {function}({backend})")).expect("allowed");
        let row = mill.finished(&database, id);
        assert_eq!((&row["state"], &row["error"]), (&"FAIL".into(), &words.into()));
        assert_eq!((&row["reason"], &row["attempt"]), (&"cancelled".into(), &1.into()));
        assert_eq!(mill.finished(&database, next)["state"], "DONE");
    }
}

#[test]
fn the_session_of_a_running_task_shows_it_by_a_lock() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert_with("SELECT pg_sleep(60)", "live = '1 hour', save = true");
    let shown = "SELECT count(*) FROM pg_locks l JOIN public.task t ON t.pid = l.pid WHERE l.locktype = 'advisory' \
         AND l.classid = 1835597828 AND l.objid = (hashtext('public.task'::regclass::oid || ':' || t.id)::bigint & 4294967295)::oid";
    mill.eventually("its lock is seen", || database.look(shown, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 1));
    // and no other task's of the same session
    let next = database.insert_with("SELECT pg_sleep(60)", "live = '1 hour', save = true");
    database.run(&format!("SELECT pg_cancel_backend(pid) FROM public.task WHERE id = {id}"));
    mill.eventually("the next one has it", || {
        let running = database.task(next).is_some_and(|row| row["state"] == "WORK");
        let locks = "SELECT count(*) FROM pg_locks WHERE classid = 1835597828 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        running && database.look(locks, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 1)
    });
}
