//! A task's session: its settings, its time limit, and changes to it by the task or by others, which harm this task alone.

use std::time::Duration;

use tests::database::quote_ident;
use tests::{Cluster, Signal, Supervisor};

use crate::asking::{all, all_are, linger, one, one_with, running, set_for_owner, state, worker_of};

#[test]
fn a_task_sees_who_it_is_and_passes_parent_and_group_on_to_tasks_that_it_inserts() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert_with(
        "SELECT concat_ws('|', current_setting('pg_task.id'), current_setting('pg_task.group'), \
         current_setting('pg_task.schema'), current_setting('pg_task.table'))",
        "group = 'my group'",
    );
    assert_eq!(mill.finished(&database, id)["output"], format!("{id}|my group|public|task"));
    let id = database.insert_with(
        "INSERT INTO public.task (input) VALUES ('SELECT 1') RETURNING id; INSERT INTO public.task (input, \"group\") \
         VALUES ('SELECT 2', 'other')",
        "group = 'my group'",
    );
    let output = mill.finished(&database, id)["output"].as_str().unwrap_or_default().to_owned();
    let child: i64 = output.lines().next().and_then(|line| line.parse().ok()).expect("an id");
    let row = mill.finished(&database, child);
    assert_eq!((&row["parent"], &row["group"]), (&id.into(), &"my group".into()));
    let row = mill.finished(&database, child + 1);
    assert_eq!((&row["parent"], &row["group"]), (&id.into(), &"other".into()));
}

#[test]
fn the_users_own_search_path_holds_for_every_task_of_a_worker() {
    let database = Cluster::shared().database();
    database.run(&format!(
        "CREATE SCHEMA mine AUTHORIZATION {0}; CREATE TABLE mine.thing (a text); INSERT INTO mine.thing VALUES ('mine'); \
         GRANT ALL ON mine.thing TO {0}",
        quote_ident(database.owner())
    ));
    set_for_owner(&database, "search_path", "mine");
    // without quotes it would be a list
    database.run(&format!(
        "ALTER ROLE {} IN DATABASE {} SET search_path = mine, public",
        quote_ident(database.owner()),
        quote_ident(database.name())
    ));
    let mill = Supervisor::of(&database).start();
    for input in ["SELECT a FROM thing; SET search_path = nowhere", "SELECT a FROM thing"] {
        database.insert_with(input, "live = '1 hour', save = true, plan = now() + interval '0.3 s'");
    }
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 15);
    let said: Vec<String> = all(&database, "SELECT coalesce(error, output) FROM public.task ORDER BY id");
    assert_eq!(said, ["mine\nSET", "mine"]);
}

/// Everything that our own statements call, in `public`, with the role's path leading
/// there before pg_catalog: before the table is made, so that its defaults, triggers
/// and functions are made under it as well.
const HOSTILE: &str = "
    CREATE FUNCTION public.evil() RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''a hostile object was picked up''; END';
    CREATE FUNCTION public.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT public.evil(); SELECT pg_catalog.now()';
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT public.evil(); SELECT pg_catalog.now()';
    CREATE FUNCTION public.hashtext(text) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT public.evil(); SELECT 1';
    CREATE FUNCTION public.current_setting(text, bool) RETURNS text LANGUAGE sql AS 'SELECT public.evil(); SELECT ''''::text';
    CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT public.evil(); SELECT ''''::text';
    CREATE FUNCTION public.set_config(text, text, bool) RETURNS text LANGUAGE sql AS 'SELECT public.evil(); SELECT ''''::text';
    CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT public.evil()';
    CREATE FUNCTION public.concat(text, oid) RETURNS text LANGUAGE sql AS 'SELECT public.evil(); SELECT ''''::text';
    CREATE FUNCTION public.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT public.evil(); SELECT ''''::text';
    CREATE FUNCTION public.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT public.evil(); SELECT 1';
    CREATE FUNCTION public.pg_try_advisory_lock(int, int) RETURNS bool LANGUAGE sql AS 'SELECT public.evil(); SELECT true';
    CREATE FUNCTION public.pg_try_advisory_xact_lock_shared(int, int) RETURNS bool LANGUAGE sql AS 'SELECT public.evil(); SELECT true';
    CREATE FUNCTION public.floor(numeric) RETURNS numeric LANGUAGE sql AS 'SELECT public.evil(); SELECT 1.0';
    CREATE FUNCTION public.same(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT public.evil(); SELECT true';
    CREATE FUNCTION public.same(int, int) RETURNS bool LANGUAGE sql AS 'SELECT public.evil(); SELECT true';
    CREATE FUNCTION public.same(text, text) RETURNS bool LANGUAGE sql AS 'SELECT public.evil(); SELECT true';
    CREATE FUNCTION public.same(timestamptz, timestamptz) RETURNS bool LANGUAGE sql AS 'SELECT public.evil(); SELECT true';
    CREATE OPERATOR public.= (FUNCTION = public.same, LEFTARG = bigint, RIGHTARG = bigint);
    CREATE OPERATOR public.= (FUNCTION = public.same, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR public.= (FUNCTION = public.same, LEFTARG = text, RIGHTARG = text);
    CREATE OPERATOR public.>= (FUNCTION = public.same, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR public.> (FUNCTION = public.same, LEFTARG = timestamptz, RIGHTARG = timestamptz);
    CREATE OPERATOR public.<= (FUNCTION = public.same, LEFTARG = timestamptz, RIGHTARG = timestamptz);
    CREATE TABLE public.pg_stat_activity (pid int, backend_start timestamptz);
    CREATE TABLE public.pg_locks (locktype text);
    CREATE TABLE public.pg_attribute (attname text);
    CREATE SCHEMA other;
    CREATE TABLE other.task (id int);
    CREATE TYPE other.state AS ENUM ('EVIL');
    GRANT ALL ON SCHEMA other TO PUBLIC;
";

#[test]
fn hostile_objects_on_the_search_path_are_not_picked_up() {
    let database = Cluster::shared().database();
    database.run(HOSTILE);
    database.run(&format!("ALTER ROLE {} SET search_path = other, public, pg_catalog", quote_ident(database.owner())));
    let mill = Supervisor::of(&database).start();
    let done = database.insert_with("SELECT 1", "live = '1 hour'");
    let repeating = database.insert_with("SELECT 1", "repeat = '1 hour', group = 'r'");
    let pausing = database.insert_with("SELECT 1", "max = -100, group = 'p'");
    let future = database.insert_with("SELECT 1", "plan = pg_catalog.now() + interval '0.5 s', group = 'f'");
    let late = database.insert_with("SELECT pg_sleep(600)", "timeout = '0.3 s', group = 'l'");
    let gone = database.insert_with("SELECT 1", "plan = pg_catalog.now() - interval '1 day', group = 'g'");
    for (id, expected) in
        [(done, "DONE"), (repeating, "DONE"), (pausing, "DONE"), (future, "DONE"), (late, "FAIL"), (gone, "GONE")]
    {
        let row = mill.finished(&database, id);
        assert_eq!(row["state"], expected, "{row:#}");
    }
    let stopped = database.insert_with("SELECT pg_sleep(600)", "group = 's'");
    running(&mill, &database, stopped);
    database
        .connect()
        .batch_execute("UPDATE public.task SET state = 'STOP' WHERE state OPERATOR(pg_catalog.=) 'WORK'")
        .expect("stop it");
    mill.eventually("its statement is cancelled", || mill.workers().is_empty());
    let why = database.connect().query_one("SELECT mill.why($1::bigint)", &[&stopped]).expect("why");
    assert!(why.get::<_, String>(0).contains("stopped"));
    assert!(!mill.log_contains("hostile"), "{}", mill.log().tail(30));
}

#[test]
fn whatever_a_task_does_to_its_session_its_result_is_recorded() {
    let database = Cluster::shared().database();
    let role = quote_ident(&format!("{}_weak", database.name()));
    database.run(&format!("CREATE ROLE {role}; GRANT {role} TO {}", quote_ident(database.owner())));
    let set_role = format!("SET ROLE {role}");
    let inputs = [
        set_role.as_str(),
        "SET search_path = nowhere",
        "SET default_transaction_read_only = on",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY",
        "SET statement_timeout = 1",
        "SET lock_timeout = 1",
        "SET row_security = on",
        "BEGIN READ ONLY; SELECT 1",
        "BEGIN; SELECT 1 / 0",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
        "SET client_encoding = 'LATIN1'; SELECT 'é'",
        "SET standard_conforming_strings = off",
        "SET DateStyle = 'German'; SET IntervalStyle = 'sql_standard'; SET bytea_output = 'escape'",
        "SET plan_cache_mode = force_generic_plan; SET enable_indexscan = off",
        "LISTEN a; NOTIFY a, 'hello'",
        "DISCARD ALL",
        "RESET ALL",
        "SET idle_session_timeout = 1",
        "SELECT pg_advisory_unlock_all()",
        "SELECT set_config('pg_task.id', '0', false), set_config('pg_task.table', 'nowhere', false)",
        "PREPARE TRANSACTION 'x'",
    ];
    for batch in [false, true] {
        let mill = Supervisor::of(&database).row_key("batch", batch).start();
        database.run("TRUNCATE public.task");
        for live in ["0", "1 hour"] {
            for input in inputs {
                // a session that the server ends between two tasks costs the next one an attempt
                if live != "0" && input.contains("idle_session_timeout") {
                    continue;
                }
                let columns = format!("live = '{live}', max = 2, group = 'live {live}', delete = false");
                database.insert_with(input, &columns);
            }
        }
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 60);
        // what stands behind a DISCARD in a batch goes back, and is taken again
        let taken_again = if batch { "false" } else { "attempt <> 1" };
        let wrong: Vec<String> = all(
            &database,
            &format!(
                "SELECT concat_ws(' | ', id, input, state, attempt, reason, error) FROM public.task \
                  WHERE {taken_again} OR reason IS NOT NULL OR (state = 'FAIL') <> (input LIKE '%/ 0%' )"
            ),
        );
        assert!(wrong.is_empty(), "batch {batch}: {}", wrong.join("\n"));
        let said: Vec<String> = all(&database, "SELECT output FROM public.task WHERE input LIKE '%é%'");
        assert_eq!(said, ["SET\né", "SET\né"]);
    }
    database.run(&format!("DROP ROLE {role}"));
}

#[test]
fn settings_of_the_role_itself_hold_for_its_tasks_and_do_no_harm_to_us() {
    let database = Cluster::shared().database();
    for (name, value) in [
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "serializable"),
        ("lock_timeout", "1"),
        ("statement_timeout", "5s"),
        ("idle_in_transaction_session_timeout", "1"),
        ("client_encoding", "LATIN1"),
        ("standard_conforming_strings", "off"),
        ("IntervalStyle", "sql_standard"),
        ("log_error_verbosity", "terse"),
    ] {
        // some of them only a superuser may set; nobody may refuse to start over them
        set_for_owner(&database, name, value);
    }
    let mill = Supervisor::of(&database).start();
    // the row user's own sessions are read-only by default
    database.run(
        "INSERT INTO public.task (input, live) SELECT 'SELECT ''é'', current_setting(''default_transaction_read_only'')', '1 hour' \
         FROM generate_series(1, 3); \
         INSERT INTO public.task (input, repeat, \"group\") VALUES ('SELECT ''é'', current_setting(''default_transaction_read_only'')', '1 hour', 'r')",
    );
    mill.eventually("all are done", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE' AND output LIKE '%é\ton'") == 4
    });
}

#[test]
fn a_group_may_have_any_name() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let names = ["repeat('x', 100000)", "E'two\\nlines'", "''", "'\"; DROP TABLE x; --'", "'группа'", "E'\\x01'"];
    for name in names {
        database.run(&format!(
            "INSERT INTO public.task (input, \"group\", live) SELECT 'SELECT current_setting(''pg_task.group'')', {name}, '1 hour' \
             FROM generate_series(1, 2)"
        ));
    }
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 20);
    let wrong: Vec<String> = all(
        &database,
        "SELECT concat_ws(' ', left(\"group\", 20), left(output, 20), error) FROM public.task WHERE output <> \"group\"",
    );
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_row_that_a_user_holds_locked_holds_nobody_else_up() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let gate = database.insert_with("SELECT pg_sleep(600)", "group = 'g', active = '1 day'");
    running(&mill, &database, gate);
    let expiring = database.insert_with("SELECT 1", "group = 'g', active = '500 ms'");
    let orphan = database.insert_with("SELECT pg_sleep(600)", "group = 'orphan', active = '1 day'");
    running(&mill, &database, orphan);
    let worker = mill.eventually("the worker says what it runs", || worker_of(&mill, orphan));
    let mut holder = database.connect();
    let mut locks = holder.transaction().expect("begin");
    locks.batch_execute("SELECT FROM public.task FOR UPDATE").expect("lock every row");
    mill.eventually("its time is over", || {
        one_with::<bool>(
            &database,
            "SELECT clock_timestamp() > plan + active FROM public.task WHERE id = $1",
            &[&expiring],
        )
    });
    mill.kill9(worker);
    for _ in 0..4 {
        let other = database.insert_with("SELECT 1", "group = 'other'");
        mill.wait("another task is done").within(Duration::from_secs(8)).until(|| database.finished(other));
        linger(Duration::from_millis(300), "the scheduler tries to settle the locked rows meanwhile");
    }
    assert_eq!((state(&database, expiring), state(&database, orphan)), ("PLAN".into(), "WORK".into()));
    locks.rollback().expect("unlock");
    assert_eq!(mill.finished(&database, expiring)["state"], "GONE");
    mill.eventually("the orphan runs again", || {
        database.task(orphan).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == 2)
    });
}

/// The start of a worker's first task travels as text through sessions whose styles the tasks choose.
#[test]
fn a_task_that_changes_how_dates_are_read_does_not_confuse_its_worker() {
    let database = Cluster::shared().database();
    database.run(&format!("ALTER ROLE {} SET DateStyle = 'SQL, DMY'", quote_ident(database.owner())));
    database.run(&format!("ALTER ROLE {} SET timezone = 'Asia/Kolkata'", quote_ident(database.owner())));
    let mill = Supervisor::of(&database).start();
    database.run(
        "INSERT INTO public.task (input, live) SELECT 'SET DateStyle = ''SQL, MDY''', '1 hour' FROM generate_series(1, 5)",
    );
    all_are(&mill, &database, "state = 'DONE'", 20);
    assert_eq!(one::<i64>(&database, "SELECT count(DISTINCT pid) FROM public.task"), 1, "one worker, for an hour");
}

#[test]
fn a_timeout_ends_a_statement_the_whole_input_and_even_a_task_that_resists() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let stubborn = "DO $$ BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(60); END $$";
    let many = "SELECT pg_sleep(0.2);".repeat(30);
    let inputs = [
        ("SELECT pg_sleep(60)", "500 ms"),
        (many.as_str(), "1 s"),
        ("SET statement_timeout = 0; SELECT pg_sleep(60)", "500 ms"),
        (stubborn, "500 ms"),
    ];
    let ids: Vec<i64> = inputs
        .iter()
        .enumerate()
        .map(|(i, (input, timeout))| database.insert_with(input, &format!("timeout = '{timeout}', group = 'g{i}'")))
        .collect();
    for (id, (input, _)) in ids.iter().zip(inputs) {
        let row = mill.finished(&database, *id);
        let error = row["error"].as_str().unwrap_or_default();
        let (first, last) = ("ERROR:  canceling statement due to statement timeout", format!("STATEMENT:  {input}"));
        assert!(error.starts_with(first) && error.ends_with(&last), "{row:#}");
        assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"timeout".into()));
    }
    let left =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^(DO|SELECT pg_sleep)'";
    assert_eq!(one::<i64>(&database, left), 0);
}

#[test]
fn a_late_cancel_never_hits_the_next_task_of_a_worker() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run(
        "INSERT INTO public.task (input, live, \"group\") SELECT 'SELECT pg_sleep(0.02)', '1 hour', 'g' || i % 3 \
         FROM generate_series(0, 299) AS i",
    );
    // everything that runs and has an even number is stopped, over and over, mostly a moment too late
    let mut client = database.connect();
    mill.wait("all tasks have ended").within(Duration::from_secs(60)).until(|| {
        for _ in 0..5 {
            client
                .batch_execute("UPDATE public.task SET state = 'STOP' WHERE id IN (SELECT id FROM public.task WHERE state = 'WORK' AND id % 2 = 0)")
                .expect("stop");
        }
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')") == 0
    });
    let wrong: Vec<String> = all(
        &database,
        "SELECT concat_ws(' ', id, state, error) FROM public.task WHERE state NOT IN ('DONE', 'STOP') \
         OR (state = 'STOP' AND id % 2 = 1)",
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let stopped: i64 = one(&database, "SELECT count(*) FROM public.task WHERE state = 'STOP'");
    println!("{stopped} of 300 were stopped while they ran");
    assert!(stopped > 0);
}

#[test]
fn a_session_that_only_has_the_pid_of_an_unfinished_task_is_left_alone() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(10));
    drop(mill);
    let mut innocent = database.connect();
    let pid: i32 = innocent.query_one("SELECT pg_backend_pid()", &[]).expect("pid").get(0);
    // nobody can insert it so
    let sql = "INSERT INTO public.task (input, state, pid, start) VALUES ('SELECT 1', 'WORK', $1, now()) RETURNING id, state::text, pid, start IS NULL";
    let row = innocent.query_one(sql, &[&pid]).expect("a row");
    let (id, state, start): (i64, &str, bool) = (row.get(0), row.get(1), row.get(3));
    assert_eq!((state, row.get::<_, Option<i32>>(2), start), ("PLAN", None, true));
    let sql =
        "UPDATE public.task SET state = 'WORK', attempt = 1, pid = $2, start = now() - interval '1 hour' WHERE id = $1";
    assert_eq!(innocent.execute(sql, &[&id, &pid]).expect("an unfinished row"), 1);
    let mill = Supervisor::of(&database).start();
    let row = mill.finished(&database, id);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()), "it was run again");
    innocent.batch_execute("SELECT 1").expect("the innocent session lives");
}
