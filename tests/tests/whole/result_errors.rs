//! A row's error with all its lines, its state, its times and its backend. Notices go to the log.

use serde_json::Value;
use tests::{Cluster, Supervisor};

use crate::result_cases::{check, done, fails, make, time};

#[test]
fn notices_and_warnings_go_to_the_log_and_not_into_the_row() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let input = "DO $$BEGIN RAISE NOTICE 'a word to the log'; RAISE WARNING E'and\\nanother'; END$$;SELECT 1";
    check(&supervisor, &database, &[done(input, "DO\n1"), done("ROLLBACK", "ROLLBACK")]);
    for text in ["NOTICE: a word to the log", r"WARNING: and\nanother", "WARNING: there is no transaction in progress"]
    {
        supervisor.eventually("the notice is in the log", || supervisor.log_contains(text));
    }
}

#[test]
fn an_error_is_told_with_all_its_lines_and_a_tab_after_each_newline_inside() {
    let database = Cluster::shared().database();
    make(&database, "CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)");
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let raise = "DO $$\nBEGIN\n  RAISE EXCEPTION E'one\\ntwo' USING DETAIL = E'd1\\nd2', HINT = E'h1\\nh2';\nEND$$";
    check(
        &supervisor,
        &database,
        &[
            fails(
                raise,
                "",
                "ERROR:  one\n\ttwo\nDETAIL:  d1\n\td2\nHINT:  h1\n\th2\n\
                 CONTEXT:  PL/pgSQL function inline_code_block line 3 at RAISE",
            ),
            fails(
                "INSERT INTO u VALUES (1)",
                "",
                "ERROR:  duplicate key value violates unique constraint \"u_pkey\"\nDETAIL:  Key (a)=(1) already exists.",
            ),
            fails(
                "DO $$BEGIN EXECUTE 'SELEC\n1'; END$$",
                "",
                "ERROR:  syntax error at or near \"SELEC\" at character 1\nQUERY:  SELEC\n\t1\n\
                 CONTEXT:  PL/pgSQL function inline_code_block line 1 at EXECUTE",
            ),
            fails("SELECT\n  nothing", "", "ERROR:  column \"nothing\" does not exist at character 10"),
            fails("SELECT 'é', nothing", "", "ERROR:  column \"nothing\" does not exist at character 13"),
        ],
    );
}

#[test]
fn the_servers_verbosity_decides_how_much_of_an_error_is_told() {
    let database = Cluster::shared().database();
    make(&database, "CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)");
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let input = "INSERT INTO u VALUES (1)";
    let words = "duplicate key value violates unique constraint \"u_pkey\"";

    database.run(&format!("ALTER ROLE {} SET log_error_verbosity = terse", database.owner()));
    check(&supervisor, &database, &[fails(input, "", &format!("ERROR:  {words}"))]);

    database.run(&format!("ALTER ROLE {} RESET log_error_verbosity", database.owner()));
    database.run(&format!("ALTER DATABASE {} SET log_error_verbosity = verbose", database.name()));
    let id = database.insert(input);
    let row = supervisor.finished(&database, id);
    let error = row["error"].as_str().expect("it fails");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 4, "{error}");
    assert_eq!(lines[0], format!("ERROR:  23505: {words}"));
    assert_eq!(lines[1], "DETAIL:  Key (a)=(1) already exists.");
    assert!(lines[2].starts_with("LOCATION:  _bt_check_unique, nbtinsert.c:"), "{error}");
    assert_eq!(lines[3], format!("STATEMENT:  {input}"));
}

#[test]
fn a_task_that_was_not_started_in_time_is_gone() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert_with("SELECT 1", "plan = now() - interval '1 hour', active = '10 min'");
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["error"]), (&"GONE".into(), &"ERROR:  task not active".into()));
    assert_eq!((&row["reason"], &row["output"]), (&"expired".into(), &Value::Null));
    assert_eq!(time(&row, "start"), time(&row, "stop"));
    // still worth starting
    let id = database.insert_with("SELECT 1", "plan = now() - interval '1 hour', active = '2 hours'");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
}

#[test]
fn a_time_limit_holds_over_all_statements_together() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let input = "SELECT 1;SELECT pg_sleep(0.7);SELECT pg_sleep(0.7);SELECT pg_sleep(0.7)";
    let id = database.insert_with(input, "timeout = '1 sec'");
    let other = database.insert_with("SELECT pg_sleep(0.7)", "timeout = '1 sec', group = 'other'");
    let row = supervisor.finished(&database, id);
    let error = format!("ERROR:  canceling statement due to statement timeout\nSTATEMENT:  {input}");
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"timeout".into()), "{row}");
    assert_eq!(row["error"], error);
    assert_eq!(supervisor.finished(&database, other)["state"], "DONE");
}

#[test]
fn a_row_tells_its_state_its_times_and_the_backend_that_runs_it() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert("SELECT pg_backend_pid();SELECT pg_sleep(1)");
    let running = supervisor.eventually("it runs", || database.task(id).filter(|row| row["state"] == "WORK"));
    assert_eq!(running["stop"], Value::Null);
    // the claim is also the begin: the input is sent a moment later
    supervisor.eventually("its backend is active", || {
        let alive = database.query("SELECT state FROM pg_stat_activity WHERE pid = $1", &[&pid(&running)]);
        (alive.expect("the server is there")[0].get::<_, String>(0) == "active").then_some(())
    });
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["error"], &row["reason"]), (&"DONE".into(), &Value::Null, &Value::Null));
    assert_eq!(row["output"], format!("{}\n", pid(&row)));
    assert_eq!(row["attempt"], 1);
    assert!(time(&row, "plan") <= time(&row, "start") && time(&row, "start") < time(&row, "stop"), "{row}");
}

fn pid(row: &Value) -> i32 {
    row["pid"].as_i64().and_then(|pid| pid.try_into().ok()).unwrap_or_else(|| panic!("no pid: {row}"))
}

#[test]
fn a_tasks_sql_sees_its_id_and_runs_under_its_users_own_search_path() {
    let database = Cluster::shared().database();
    make(&database, "CREATE SCHEMA own; CREATE TABLE own.t (a int); INSERT INTO own.t VALUES (8)");
    make(&database, &format!("ALTER ROLE {} SET search_path = own", database.owner()));
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert_with(
        "SELECT a FROM t;SELECT unnest(ARRAY[current_setting('pg_task.id'), current_setting('pg_task.group'), \
         current_setting('pg_task.schema'), current_setting('pg_task.table')]);SHOW search_path;\
         INSERT INTO public.task (input) VALUES ('SELECT 9')",
        "group = 'mine'",
    );
    let row = supervisor.finished(&database, id);
    assert_eq!(row["output"], format!("8\n{id}\nmine\npublic\ntask\nown\nINSERT 0 1"), "{row}");
    let child = supervisor.eventually("the task's task has ended", || {
        database.tasks().into_iter().find(|row| row["parent"] == id && row["state"] == "DONE")
    });
    assert_eq!((&child["group"], &child["output"]), (&"mine".into(), &"9".into()));
}

#[test]
fn whatever_a_task_does_to_its_session_its_result_is_written() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    // a role without any right on the table
    let poor = format!("{}_poor", database.owner());
    database.run(&format!("CREATE ROLE {poor}; GRANT {poor} TO {}", database.owner()));
    check(
        &supervisor,
        &database,
        &[
            done("SET default_transaction_read_only = on", "SET"),
            done("SET default_transaction_isolation = 'serializable'", "SET"),
            done(&format!("SET ROLE {poor}"), "SET"),
            done("SET search_path = nowhere", "SET"),
            done("SET statement_timeout = 1", "SET"),
            done("SET lock_timeout = 1", "SET"),
            done("SET client_encoding = 'LATIN1';SELECT 'x'", "SET\nx"),
            done("SET standard_conforming_strings = off", "SET"),
            done("SET DateStyle = 'SQL, DMY';SELECT date '2020-01-02'", "SET\n02/01/2020"),
            done("DISCARD ALL", "DISCARD ALL"),
            done("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;SELECT 1", "BEGIN\n1"),
        ],
    );
    database.run(&format!("DROP ROLE {poor}"));
}
