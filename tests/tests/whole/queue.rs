//! Who runs when, and what a queue lives through: slots, successors, new and vanished
//! tables, roles with settings of their own.

use std::time::Duration;

use serde_json::json;
use tests::{Cluster, Database, Signal, Supervisor};

/// A poll that never comes: what happens within a test happens by an event.
const NEVER: &str = "1 hour";

/// A launcher makes the tables of these schemas and leaves.
fn prepare(database: &Database, schemas: &[&str]) {
    let supervisor = launch(database, schemas).start();
    supervisor.signal(Signal::SIGTERM);
    assert!(supervisor.wait_exit(Duration::from_secs(5)).success());
}

fn launch<'d>(database: &'d Database, schemas: &[&str]) -> tests::launch::Launch<'d> {
    let mut launch = Supervisor::bare().key("connect", database.server().conninfo(database.login()));
    for schema in schemas {
        launch =
            launch.queue(json!({"data": database.name(), "user": database.owner(), "schema": schema, "sleep": NEVER}));
    }
    launch
}

fn insert(database: &Database, schema: &str, input: &str, tasks: i32) {
    let sql = format!("INSERT INTO {schema}.task (input, \"group\") SELECT $1, 'g' || n FROM generate_series(1, $2) n");
    database.connect().execute(&sql, &[&input, &tasks]).expect("insert");
}

fn done(database: &Database, schema: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {schema}.task WHERE state = 'DONE'");
    database.query(&sql, &[]).map_or(-1, |rows| rows[0].get(0))
}

#[test]
fn a_finished_task_starts_its_successor_at_once() {
    let database = Cluster::shared().database();
    prepare(&database, &["public"]);
    for _ in 0..20 {
        database.insert("SELECT 1");
    }
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    supervisor.wait("all are done").within(Duration::from_secs(5)).until(|| done(&database, "public") == 20);
}

#[test]
fn no_more_tasks_run_than_there_are_slots_and_none_is_forgotten() {
    let database = Cluster::shared().database();
    prepare(&database, &["public"]);
    insert(&database, "public", "SELECT pg_sleep(0.1)", 12);
    // launcher, scheduler, three workers
    let supervisor = Supervisor::of(&database).key("max_workers", 5).queue_key("sleep", NEVER).start();
    let mut most = 0;
    supervisor.eventually("all are done", || {
        let sql = "SELECT count(*) FROM public.task WHERE state IN ('TAKE', 'WORK')";
        most = most.max(database.query(sql, &[]).map_or(0, |rows| rows[0].get::<_, i64>(0)));
        done(&database, "public") == 12
    });
    assert!(most <= 3, "{most} at once");
}

#[test]
fn a_freed_slot_wakes_the_scheduler_that_waits_for_it() {
    let database = Cluster::shared().database();
    let schemas = ["a", "b"];
    prepare(&database, &schemas);
    for schema in schemas {
        insert(&database, schema, "SELECT pg_sleep(0.3)", 2);
    }
    // launcher, two schedulers, one worker for both of them
    let supervisor = launch(&database, &schemas).key("max_workers", 4).start();
    supervisor.eventually("all are done", || done(&database, "a") == 2 && done(&database, "b") == 2);
    supervisor
        .eventually("the slots are free", || supervisor.status().is_some_and(|status| status["slots"]["used"] == 3));
}

#[test]
fn two_queues_in_one_new_schema_are_made_side_by_side() {
    let database = Cluster::shared().database();
    let mut launch = Supervisor::bare().key("connect", database.server().conninfo(database.login()));
    for number in 0..6 {
        let table = format!("task{number}");
        launch = launch.queue(
            json!({"data": database.name(), "user": database.owner(), "schema": "new", "table": table, "sleep": 50}),
        );
    }
    let supervisor = launch.start();
    supervisor.eventually("all are served", || {
        supervisor.log().lines().iter().filter(|line| line.contains("queue served")).count() == 6
    });
    assert!(!supervisor.log_contains("queue waits"), "{}", supervisor.describe());
}

#[test]
fn a_table_that_is_dropped_is_made_again() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let scheduler = supervisor.schedulers()[0].pid;
    database.connect().batch_execute("DROP TABLE public.task; DROP TYPE public.state").expect("the owner may");
    let made = || supervisor.log().lines().iter().filter(|line| line.contains("table created")).count();
    supervisor.eventually("it is made again", || made() == 2);
    supervisor.eventually("the queue is served again", || supervisor.log_contains("queue served again"));
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    assert_eq!(supervisor.schedulers()[0].pid, scheduler);
}

#[test]
fn settings_of_the_role_do_not_harm_the_queue() {
    let database = Cluster::shared().database();
    for (name, value) in [
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "serializable"),
        ("statement_timeout", "500ms"),
        ("lock_timeout", "5ms"),
        ("idle_in_transaction_session_timeout", "5ms"),
        ("search_path", "nowhere"),
        ("standard_conforming_strings", "off"),
        ("DateStyle", "SQL, DMY"),
        ("IntervalStyle", "sql_standard"),
        ("TimeZone", "Asia/Kathmandu"),
        ("extra_float_digits", "-15"),
        ("bytea_output", "escape"),
        ("client_encoding", "LATIN1"),
        ("application_name", "mine"),
        ("client_min_messages", "debug1"),
    ] {
        database.run(&format!(
            "ALTER ROLE {} SET {name} = {}",
            database.owner(),
            if name == "DateStyle" { value.to_owned() } else { format!("'{value}'") }
        ));
    }
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    // the role's settings are the task's own, though
    let insert = "BEGIN READ WRITE; INSERT INTO public.task (input, timeout, \"null\") VALUES \
                  ('SHOW default_transaction_read_only', '10 sec', E'\\\\N'), ('SELECT NULL, pg_sleep(2)', '0', 'nil'); COMMIT";
    database.connect().batch_execute(insert).expect("insert");
    let first = supervisor.finished(&database, 1);
    assert_eq!((&first["state"], &first["output"]), (&"DONE".into(), &"on".into()), "{first}");
    let second = supervisor.finished(&database, 2);
    let error = second["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("ERROR:  canceling statement due to statement timeout\n"), "{second}");
    let defaults = supervisor.finished(&database, 1);
    assert_eq!((&defaults["null"], &defaults["delimiter"]), (&"\\N".into(), &"\t".into()));
    // and a killed worker is settled
    let mut owner = database.connect();
    owner
        .batch_execute("BEGIN READ WRITE; INSERT INTO public.task (input, timeout) VALUES ('SELECT pg_sleep(100)', '1 hour'); COMMIT")
        .expect("insert");
    let attempt = |number: i32| database.task(3).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == number);
    supervisor.eventually("it runs", || attempt(1) && supervisor.workers().len() == 1);
    supervisor.kill9(supervisor.workers()[0].pid);
    supervisor.eventually("it runs again", || attempt(2));
}
