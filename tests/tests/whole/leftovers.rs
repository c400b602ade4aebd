//! Rows in TAKE or WORK that nobody runs, whatever has left them: they are settled within a minute, the group goes on, and
//! nobody else's session is touched.

use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::queries::{linger, one, running};

fn state(database: &Database, id: i64) -> Value {
    database.task(id).map(|row| row["state"].clone()).unwrap_or_default()
}

fn why(database: &Database, id: i64) -> String {
    one(database, &format!("SELECT mill.why({id}::bigint)"))
}

/// Changes rows as a restore, a replica or an operator would: no trigger sees it.
fn behind_the_triggers(database: &Database, sql: &str) {
    database.run(&format!("SET session_replication_role = replica; {sql}"));
}

#[track_caller]
fn done(mill: &Supervisor<'_>, database: &Database, ids: &[i64]) {
    mill.wait("all are done")
        .within(Duration::from_secs(60))
        .until(|| ids.iter().all(|id| state(database, *id) == "DONE"));
}

#[test]
fn whatever_has_left_rows_claimed_they_run_within_a_minute_with_the_usual_settings() {
    if !tests::scale::is_full() {
        eprintln!("it takes most of a minute; scripts/test --full runs it");
        return;
    }
    every_way(None);
}

#[test]
fn whatever_has_left_rows_claimed_they_run_soon_where_the_queue_is_looked_through_often() {
    every_way(Some(1000));
}

fn every_way(reset_ms: Option<u32>) {
    let database = Cluster::shared().database();
    let mut launch = Supervisor::of(&database);
    if let Some(reset_ms) = reset_ms {
        launch = launch.queue_key("reset", reset_ms);
    }
    let mill = launch.start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    // The scheduler's own server process, this one, and a pid of nobody.
    let pids = "(SELECT min(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg\\_work%' AND datname = current_database())";
    behind_the_triggers(
        &database,
        &format!(
            "INSERT INTO public.task (id, \"group\", input, state, start, pid, attempt) VALUES \
             (1001, 'a', 'SELECT 1', 'TAKE', NULL, NULL, 0), (1002, 'b', 'SELECT 1', 'WORK', NULL, NULL, 3), \
             (1003, 'c', 'SELECT 1', 'WORK', now(), 2147483000, 1), (1004, 'd', 'SELECT 1', 'WORK', now(), pg_backend_pid(), 1), \
             (1005, 'e', 'SELECT 1', 'WORK', 'infinity', {pids}, 1), (1006, 'f', 'SELECT 1', 'TAKE', now(), {pids}, 7), \
             (1007, 'g', 'SELECT 1', 'WORK', '-infinity', 1, -5), (1008, 'h', 'SELECT 1', 'WORK', now(), NULL, 2147483647)"
        ),
    );
    // By an owner, with all triggers.
    let held = database.insert_with("SELECT 1", "plan = now() + interval '1 day', group = 'i'");
    database.run(&format!(
        "UPDATE public.task SET state = 'WORK', plan = now(), pid = 77, start = now() WHERE id = {held}"
    ));
    let taken = database.insert_with("SELECT 1", "plan = now() + interval '1 day', group = 'j'");
    database.run(&format!("UPDATE public.task SET state = 'TAKE', plan = now() WHERE id = {taken}"));
    let next: Vec<i64> =
        "abcdefghij".chars().map(|group| database.insert_with("SELECT 2", &format!("group = '{group}'"))).collect();
    assert!(why(&database, 1003).contains("2147483000"), "{}", why(&database, 1003));
    let all: Vec<i64> = (1001..=1008).chain([held, taken]).chain(next).collect();
    done(&mill, &database, &all);
    assert!(!mill.log_contains("queue waits"), "no session of ours was ended");
}

#[test]
fn a_strangers_session_whose_pid_stands_in_a_row_is_left_alone() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    // A session of the very role that the queue runs as.
    let mut stranger = database.connect();
    let pid: i32 = stranger.query_one("SELECT pg_backend_pid()", &[]).expect("its pid").get(0);
    let work = std::thread::spawn(move || {
        let slept = stranger.batch_execute("SELECT pg_sleep(14)");
        (slept.map_err(|error| error.to_string()), stranger.is_closed())
    });
    let forge = |id: i64| {
        behind_the_triggers(
            &database,
            &format!(
                "INSERT INTO public.task (id, \"group\", input, state, start, pid, attempt) \
                 VALUES ({id}, 'x', 'SELECT 1', 'WORK', now(), {pid}, 1)"
            ),
        );
    };
    forge(1001);
    let next = database.insert_with("SELECT 2", "group = 'x'");
    // A restart settles what it finds, and must know as well.
    drop(mill);
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    done(&mill, &database, &[1001, next]);
    forge(1002);
    done(&mill, &database, &[1002]);
    assert_eq!(work.join().expect("it has ended"), (Ok(()), false), "it was neither cancelled nor terminated");
}

#[test]
fn a_row_with_the_pid_of_a_worker_that_runs_another_task_is_settled_and_the_other_task_goes_on() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    for columns in ["group = 'plain'", "group = 'live', count = 100"] {
        let long = database.insert_with("SELECT pg_sleep(8)", columns);
        let pid = running(&mill, &database, long);
        let id = 1000 + long;
        behind_the_triggers(
            &database,
            &format!(
                "INSERT INTO public.task (id, \"group\", input, state, start, pid, attempt) \
                 VALUES ({id}, 'x', 'SELECT 1', 'WORK', now(), {pid}, 1)"
            ),
        );
        mill.wait("it is settled").within(Duration::from_secs(7)).until(|| state(&database, id) == "DONE");
        assert_eq!(state(&database, long), "WORK");
        let row = mill.finished(&database, long);
        assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{row}");
    }
}

#[test]
fn tasks_that_run_or_wait_for_a_lock_are_none_of_it() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    database.run("CREATE TABLE public.ledger (task bigint); GRANT ALL ON public.ledger TO PUBLIC");
    let input = "INSERT INTO public.ledger VALUES (current_setting('pg_task.id')::bigint); SELECT pg_sleep(0.3)";
    let mut ids: Vec<i64> = (0..3).map(|n| database.insert_with(input, &format!("group = 'p{n}'"))).collect();
    ids.extend((0..6).map(|_| database.insert_with(input, "group = 'live', count = 100")));
    ids.push(database.insert_with("SELECT pg_sleep(5)", "group = 'long'"));
    ids.push(database.insert_with("SELECT pg_sleep(0.5)", "group = 'atomic', atomic = true"));
    mill.eventually("they run", || one::<i64>(&database, "SELECT count(*) FROM public.ledger") >= 3);
    let mut other = database.connect();
    let mut locks = other.transaction().expect("a transaction");
    locks.execute("SELECT FROM public.task WHERE state = 'WORK' FOR UPDATE", &[]).expect("lock");
    steadily("nothing is run twice", Duration::from_secs(4), || {
        one::<i64>(&database, "SELECT max(attempt)::bigint FROM public.task") <= 1
    });
    locks.rollback().expect("let go");
    done(&mill, &database, &ids);
    assert_eq!(one::<i64>(&database, "SELECT max(attempt)::bigint FROM public.task"), 1);
    assert_eq!(one::<i64>(&database, "SELECT count(*) - 9 FROM public.ledger"), 0);
    assert!(!mill.log_contains("unfinished task found"));
}

#[test]
fn a_refused_end_stops_the_row_and_frees_its_group_without_running_the_input_again() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    database.run(
        "CREATE TABLE public.ledger (task bigint); GRANT ALL ON public.ledger TO PUBLIC; \
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''never''; END'; \
         CREATE TRIGGER refuse BEFORE UPDATE ON public.task FOR EACH ROW \
         WHEN (NEW.data = 'sad' AND NEW.state IN ('DONE', 'FAIL')) EXECUTE FUNCTION refuse()",
    );
    let input = "INSERT INTO public.ledger VALUES (1)";
    let sad = database.insert_with(input, "data = 'sad', group = 'sad'");
    let live = database.insert_with(input, "data = 'sad', group = 'live', count = 10");
    let next = database.insert_with("SELECT 1", "group = 'sad'");
    done(&mill, &database, &[next]);
    mill.eventually("both are stopped", || [sad, live].iter().all(|id| state(&database, *id) == "STOP"));
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.ledger"), 2, "each has run once");
    assert!(why(&database, sad).contains("its table refused the record of its end"), "{}", why(&database, sad));
    // What can be changed in no way is tried again, and written when it can.
    database.run(
        "DROP TRIGGER refuse ON public.task; CREATE TRIGGER refuse BEFORE UPDATE ON public.task FOR EACH ROW \
                  WHEN (NEW.data = 'sad' AND OLD.state = 'WORK') EXECUTE FUNCTION refuse()",
    );
    database.run(&format!("UPDATE public.task SET state = 'PLAN', plan = now() WHERE id = {sad}"));
    mill.eventually("it has run again", || one::<i64>(&database, "SELECT count(*) FROM public.ledger") == 3);
    steadily("it stays as it is, and the queue is served", Duration::from_secs(3), || state(&database, sad) == "WORK");
    database.run("DROP TRIGGER refuse ON public.task");
    mill.eventually("its end is written", || state(&database, sad) == "FAIL");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.ledger"), 3);
    assert!(!mill.log_contains("queue waits"));
}

#[test]
fn a_leftover_that_cannot_be_planned_again_is_said_once_and_holds_nobody_else_up() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    database.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''never''; END'; \
         CREATE TRIGGER refuse BEFORE UPDATE ON public.task FOR EACH ROW WHEN (OLD.data = 'sad') EXECUTE FUNCTION refuse()",
    );
    behind_the_triggers(
        &database,
        "INSERT INTO public.task (id, \"group\", data, input, state) VALUES (1001, 'x', 'sad', 'SELECT 1', 'TAKE')",
    );
    mill.eventually("it is said", || mill.log_contains("cannot settle a task"));
    steadily("the queue is served", Duration::from_secs(3), || {
        let id = database.insert("SELECT 1");
        mill.finished(&database, id)["state"] == "DONE"
    });
    assert!(!mill.log_contains("queue waits"));
    let said = mill.log().lines().iter().filter(|line| line.contains("cannot settle a task")).count();
    assert_eq!(said, 1);
    database.run("DROP TRIGGER refuse ON public.task");
    done(&mill, &database, &[1001]);
}

#[test]
fn sessions_of_ours_that_are_terminated_at_any_moment_leave_nothing_behind() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    let insert = "INSERT INTO public.task (input, \"group\", count, atomic, timeout) \
                  SELECT 'SELECT pg_sleep(0.02)', 'g' || n % 7, n % 3 * 10, n % 5 = 0, '1 min' FROM generate_series(1, 300) n";
    database.connect().batch_execute(insert).expect("insert");
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg\\_%' \
                AND datname = current_database() ORDER BY random() LIMIT 1";
    let open = "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')";
    for _ in 0..40 {
        database.run(kill);
        linger(Duration::from_millis(50), "sessions are ended at a steady pace");
    }
    // Whoever terminates the session of a task has cancelled it.
    mill.wait("all have ended").within(Duration::from_secs(60)).until(|| one::<i64>(&database, open) == 0);
}

#[test]
fn a_restored_queue_goes_on_with_its_claimed_rows() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    // COPY in replica mode is what pg_restore does with --disable-triggers.
    behind_the_triggers(
        &database,
        "CREATE TEMP TABLE saved AS SELECT 1000 + n AS id, 'r' || n % 5 AS g, CASE WHEN n % 2 = 0 THEN 'TAKE' ELSE 'WORK' END AS s \
         FROM generate_series(1, 40) n; \
         INSERT INTO public.task (id, \"group\", input, state, start, pid, attempt) \
         SELECT id, g, 'SELECT 1', s::public.state, now() - interval '1 day', 20000 + id, 2 FROM saved",
    );
    done(&mill, &database, &(1001..=1040).collect::<Vec<i64>>());
}

#[test]
fn a_leftover_in_a_prepared_transaction_waits_for_its_end() {
    let cluster = Cluster::configure().setting("max_prepared_transactions", "4").start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    let first = database.insert("SELECT 1");
    mill.finished(&database, first);
    behind_the_triggers(
        &database,
        "INSERT INTO public.task (id, \"group\", input, state) VALUES (1001, 'x', 'SELECT 1', 'TAKE')",
    );
    database.run("BEGIN; SELECT FROM public.task WHERE id = 1001 FOR UPDATE; PREPARE TRANSACTION 'held'");
    let beside = database.insert("SELECT 1");
    mill.finished(&database, beside);
    steadily("the queue is served", Duration::from_secs(3), || !mill.log_contains("queue waits"));
    database.run("COMMIT PREPARED 'held'");
    done(&mill, &database, &[1001]);
}

#[test]
fn the_run_of_a_job_that_nobody_executes_is_closed_or_begins() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("reset", 1000).start();
    mill.eventually("the catalog is made", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| !rows.is_empty())
    });
    database
        .connect()
        .batch_execute("INSERT INTO mill.job (name, input) VALUES ('a', 'SELECT pg_sleep(60)')")
        .expect("a job");
    database.connect().batch_execute("SELECT mill.run_job(1)").expect("ordered");
    let task = mill.eventually("its run begins", || {
        let rows = database.query("SELECT id FROM public.task WHERE job = 1 AND state = 'WORK'", &[])?;
        rows.first().map(|row| row.get::<_, i64>(0))
    });
    // Its worker says that the row is no longer its own, and leaves.
    behind_the_triggers(&database, &format!("UPDATE public.task SET attempt = attempt + 5 WHERE id = {task}"));
    database.run(&format!("SELECT pg_cancel_backend(pid) FROM public.task WHERE id = {task}"));
    mill.eventually("the row is closed", || state(&database, task) == "FAIL");
    let row = database.task(task).expect("it is there");
    assert_eq!((&row["reason"], &row["crashes"]), (&"crashed".into(), &0.into()), "{row}");
}
