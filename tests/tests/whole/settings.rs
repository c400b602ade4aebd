//! Settings: every level, read when and by whom; rows that lack what they name; one scheduler per queue.

use std::time::Duration;

use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Database, Signal, Supervisor, steadily};

use crate::queries::{one, refusal, running, set_for_owner, state};

/// What a new session of the queue's user gets as a column's default.
fn default_of(database: &Database, column: &str) -> String {
    default_in(&mut database.connect(), column)
}

fn default_in(client: &mut postgres::Client, column: &str) -> String {
    let sql = format!("INSERT INTO public.task (input, state) VALUES ('', 'STOP') RETURNING \"{column}\"::text");
    client.query_one(&sql, &[]).expect("an insert with defaults").get(0)
}

#[test]
fn every_level_of_a_column_setting_beats_the_one_below_it() {
    let cluster = Cluster::configure().setting("pg_task.max", "5").start();
    let database = cluster.database();
    let (name, owner) = (quote_ident(database.name()), quote_ident(database.owner()));
    let _mill = Supervisor::of(&database).queue_key("max", 4).queue_key("timeout", "7 min").start();

    assert_eq!(default_of(&database, "count"), "0", "built in");
    assert_eq!(default_of(&database, "timeout"), "00:07:00", "our config");
    assert_eq!(default_of(&database, "max"), "5", "postgresql.conf");
    database.run(&format!("ALTER DATABASE {name} SET pg_task.max = 6"));
    assert_eq!(default_of(&database, "max"), "6", "the database");
    database.run(&format!("ALTER ROLE {owner} SET pg_task.max = 7"));
    assert_eq!(default_of(&database, "max"), "7", "the role");
    database.run(&format!("ALTER ROLE {owner} IN DATABASE {name} SET pg_task.max = 8"));
    assert_eq!(default_of(&database, "max"), "8", "the role in the database");
    let mut session = database.connect();
    session.batch_execute("SET pg_task.max = 9").expect("a placeholder");
    assert_eq!(default_in(&mut session, "max"), "9", "the session");
    let row =
        session.query_one("INSERT INTO public.task (input, state, max) VALUES ('', 'STOP', 10) RETURNING max", &[]);
    assert_eq!(row.expect("an insert").get::<_, i32>(0), 10, "the insert itself");
}

#[test]
fn every_column_with_a_setting_follows_it_and_an_empty_one_counts_as_unset() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let columns = [
        ("active", "2 hours", "02:00:00", "01:00:00"),
        ("live", "3 min", "00:03:00", "00:00:00"),
        ("repeat", "1 day", "1 day", "00:00:00"),
        ("timeout", "5 s", "00:00:05", "00:00:00"),
        ("count", "6", "6", "0"),
        ("max", "-7", "-7", "0"),
        ("delete", "off", "false", "true"),
        ("drift", "on", "true", "false"),
        ("header", "off", "false", "true"),
        ("save", "on", "true", "false"),
        ("string", "off", "false", "true"),
        ("delimiter", ";", ";", "\t"),
        ("escape", "\\", "\\", ""),
        ("quote", "\"", "\"", ""),
        ("group", "mine", "mine", "group"),
        ("null", "nil", "nil", "\\N"),
    ];
    let mut session = database.connect();
    for (column, value, there, built_in) in columns {
        assert_eq!(default_in(&mut session, column), built_in, "{column} unset");
        session.batch_execute(&format!("SET pg_task.\"{column}\" = '{value}'")).expect("a placeholder");
        assert_eq!(default_in(&mut session, column), there, "{column} set");
        session.batch_execute(&format!("RESET pg_task.\"{column}\"")).expect("reset");
        assert_eq!(default_in(&mut session, column), built_in, "{column} after RESET");
        let local = format!("BEGIN; SET LOCAL pg_task.\"{column}\" = '{value}'; COMMIT");
        session.batch_execute(&local).expect("set local");
        assert_eq!(default_in(&mut session, column), built_in, "{column} after SET LOCAL");
    }

    // a value that is none fails that insert, and nothing else
    session.batch_execute("SET pg_task.max = 'abc'").expect("a placeholder takes anything");
    let said = refusal(&mut session, "INSERT INTO public.task (input) VALUES ('SELECT 1')");
    assert!(said.starts_with("22P02"), "{said}");
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["output"], "1");
    session
        .batch_execute("INSERT INTO public.task (input, max) VALUES ('SELECT 2', 0)")
        .expect("the setting is not asked");
}

#[test]
fn the_schedulers_own_settings_are_read_at_start_and_again_on_reload() {
    let database = Cluster::shared().database();
    set_for_owner(&database, "pg_task.run", "1");
    set_for_owner(&database, "pg_task.sleep", "700");
    set_for_owner(&database, "pg_task.idle", "many");
    let mill = Supervisor::of(&database).queue_key("run", 5).start();
    mill.eventually("the setting that is none is told", || mill.log_contains("found text, want a whole number"));
    let first = database.insert_with("SELECT pg_sleep(600)", "group = 'a'");
    running(&mill, &database, first);
    let second = database.insert_with("SELECT pg_sleep(600)", "group = 'b'");
    steadily("the second waits", Duration::from_millis(1500), || state(&database, second) == "PLAN");

    set_for_owner(&database, "pg_task.run", "2");
    mill.signal(Signal::SIGHUP);
    running(&mill, &database, second);
}

#[test]
fn a_rows_settings_in_the_config_take_effect_on_reload() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("limit", 0).start();
    let id = database.insert("SELECT 1");
    steadily("limit 0 takes none", Duration::from_millis(1500), || state(&database, id) == "PLAN");
    let text = std::fs::read_to_string(mill.config().expect("a file")).expect("readable");
    mill.rewrite_config(&text.replace("\"limit\": 0", "\"limit\": 1"));
    mill.signal(Signal::SIGHUP);
    mill.finished(&database, id);
}

#[test]
fn scheduler_and_workers_log_in_as_the_rows_user() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT session_user || ' ' || current_user");
    let who = database.owner();
    assert_eq!(mill.finished(&database, id)["output"], format!("{who} {who}"));
    let id = database.insert_with("SELECT pg_sleep(600)", "group = 'a b'");
    let named = "pg_task public task a b";
    let sessions = mill.eventually("the worker's session has its name", || {
        Some(database.sessions()).filter(|all| all.iter().any(|session| session.application_name == named))
    });
    assert_eq!(state(&database, id), "WORK");
    let user_of = |name: &str| {
        let found = sessions.iter().find(|session| session.application_name == name);
        found.unwrap_or_else(|| panic!("no {name} in {sessions:?}")).user.clone()
    };
    assert_eq!(user_of(named), who);
    assert_eq!(user_of("pg_work public task 1000"), who);
    assert_eq!(user_of("pg_conf"), database.login());
}

/// Away with what the launcher has made.
struct Made<'d> {
    database: &'d Database,
    name: String,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let mut client = self.database.server().connect("postgres");
        let name = quote_ident(&self.name);
        let _ = client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        let _ = client.batch_execute(&format!("DROP ROLE IF EXISTS {name}"));
    }
}

#[test]
fn a_launcher_that_may_makes_the_role_the_database_the_schema_and_the_table_of_a_row() {
    let database = Cluster::shared().database();
    let made = Made { database: &database, name: format!("{} \"made\"", database.name()) };
    database.run(&format!("ALTER ROLE {} CREATEDB CREATEROLE", quote_ident(database.login())));
    let row = json!({"data": made.name, "user": made.name, "schema": "a schema", "table": "a table"});
    let mill = Supervisor::of(&database).queue(row).start();
    let mut client =
        mill.eventually("it can be logged into", || database.server().try_connect(&made.name, &made.name).ok());
    let id: i64 = mill.eventually("there is a table", || {
        let sql = r#"INSERT INTO "a schema"."a table" (input) VALUES ('SELECT current_user') RETURNING id"#;
        client.query_one(sql, &[]).ok().map(|row| row.get(0))
    });
    let sql = r#"SELECT output FROM "a schema"."a table" WHERE id = $1 AND state = 'DONE'"#;
    let output: String =
        mill.eventually("its task is done", || client.query_opt(sql, &[&id]).expect("query").map(|row| row.get(0)));
    assert_eq!(output, made.name);
    let owner: String = client
        .query_one("SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()", &[])
        .expect("query")
        .get(0);
    assert_eq!(owner, quote_ident(&made.name));
    drop(client);
    drop(mill);
    // the owner's role goes only after its database
    database.run("SELECT 1");
}

#[test]
fn a_row_that_cannot_be_made_is_told_as_broken_and_the_others_run() {
    let database = Cluster::shared().database();
    let missing = format!("{}_missing", database.name());
    let mill = Supervisor::of(&database).queue(json!({"data": missing, "user": missing})).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    let why = mill.eventually("the broken row has its reason", || {
        let status = mill.status()?;
        let row = status["databases"].as_array()?.iter().find(|row| row["data"] == missing)?.clone();
        row["why"].as_str().filter(|why| why.contains("CREATE ROLE")).map(str::to_owned)
    });
    assert!(why.contains("does not exist") && why.contains("may not create it"), "{why}");
    assert!(mill.log().lines().iter().any(|line| line.contains(&missing) && line.contains("CREATE ROLE")));

    // once somebody has made them, the row is served without a restart
    database.run(&format!("CREATE ROLE {missing} LOGIN"));
    database.run(&format!("CREATE DATABASE {missing} OWNER {missing}"));
    let made = Made { database: &database, name: missing.clone() };
    mill.wait("the row is served").within(Duration::from_secs(40)).until(|| {
        let status = mill.status()?;
        let row = status["databases"].as_array()?.iter().find(|row| row["data"] == missing)?.clone();
        (row["phase"] == "running" && row["why"].is_null()).then_some(())
    });
    drop(mill);
    drop(made);
}

#[test]
fn a_second_launcher_does_not_claim_from_a_served_queue_and_takes_over_when_the_first_ends() {
    let database = Cluster::shared().database();
    let first = Supervisor::of(&database).start();
    let second = Supervisor::of(&database).start();
    let why = second.eventually("the second says why it waits", || {
        second.status()?["databases"][0]["why"].as_str().map(str::to_owned)
    });
    assert!(why.contains("another scheduler serves this queue"), "{why}");
    assert!(second.log_contains("another scheduler serves this queue"));
    let ids: Vec<i64> = (0..5).map(|_| database.insert("SELECT 1")).collect();
    for id in ids {
        first.finished(&database, id);
    }
    let id = database.insert("SELECT pg_sleep(600)");
    running(&first, &database, id);
    assert_eq!((first.workers().len(), second.workers().len()), (1, 0));

    first.signal(Signal::SIGINT);
    assert!(first.wait_exit(Duration::from_secs(10)).success());
    running(&second, &database, id);
    assert_eq!(second.workers().len(), 1);
    steadily("only that one runs", Duration::from_millis(300), || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'WORK'") == 1
    });
}

#[test]
fn a_queue_whose_row_security_applies_to_its_user_is_refused_with_the_reason() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(10));
    drop(mill);
    database.run("ALTER TABLE public.task ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    let mill = Supervisor::of(&database).start();
    let why =
        mill.eventually("the row has its reason", || mill.status()?["databases"][0]["why"].as_str().map(str::to_owned));
    assert!(why.contains("row security"), "{why}");
    database.run("ALTER TABLE public.task NO FORCE ROW LEVEL SECURITY");
    let id = database.insert("SELECT 1");
    mill.wait("it is served").within(Duration::from_secs(30)).until(|| database.finished(id));
}
