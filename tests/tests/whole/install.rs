//! The catalog's life: installed by a command, by printed SQL, by a row's first start, and dropped again.

use std::process::Command;
use std::thread;

use serde_json::json;
use tests::database::quote_ident;
use tests::desk::Ended;
use tests::server_programs::bin;
use tests::{Cluster, Database, Desk, Supervisor};

use crate::asking::{all, one, refusal};

/// A config that serves a database as its careful operator would.
fn config(database: &Database) -> String {
    json!({
        "connect": database.server().conninfo(database.login()),
        "json": [{"data": database.name(), "user": database.owner()}],
    })
    .to_string()
}

/// A command about the database, with nothing running.
#[track_caller]
fn run(database: &Database, command: &str) -> Ended {
    let desk = Desk::new();
    desk.write("mill.json", &config(database));
    desk.run(&[command, database.name(), "--config", "mill.json"])
}

fn psql(database: &Database, user: &str) -> Command {
    let mut command = Command::new(bin().join("psql"));
    let server = database.server();
    command.args(["-X", "-q", "-h"]).arg(&server.socket_folder);
    command.args(["-p", &server.port.to_string(), "-U", user, "-d", database.name()]);
    command
}

/// The whole database as pg_dump writes it, without what differs from run to run.
fn dump(database: &Database) -> String {
    let server = database.server();
    let mut command = Command::new(bin().join("pg_dump"));
    command.arg("-h").arg(&server.socket_folder).args(["-p", &server.port.to_string(), "-U", "postgres"]);
    let output = command.args(["-d", database.name()]).output().expect("run pg_dump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn has_catalog(database: &Database) -> bool {
    one(database, "SELECT to_regclass('mill.meta') IS NOT NULL")
}

/// The database belongs to somebody else; its row user may use the schema public and no more.
fn take_database_away(database: &Database) {
    database.run(&format!(
        "ALTER DATABASE {} OWNER TO postgres; GRANT CREATE ON SCHEMA public TO {}",
        quote_ident(database.name()),
        quote_ident(database.owner())
    ));
}

#[test]
fn install_makes_catalog_and_task_table_before_it_returns() {
    let database = Cluster::shared().database();
    let said = run(&database, "install");
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert!(said.stdout.contains("installed, with public.task"), "{}", said.stdout);
    assert_eq!(one::<String>(&database, "SELECT version FROM mill.meta"), shared::VERSION);
    let owners: Vec<String> = all(
        &database,
        "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill' \
         UNION ALL SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = 'public.task'::regclass \
         UNION ALL SELECT owner::text FROM mill.queue",
    );
    assert_eq!(owners, [database.login(), database.owner(), database.owner()]);
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 42");
    assert_eq!(mill.finished(&database, id)["output"], "42");
    assert!(!mill.log_contains("no catalog") && !mill.log_contains("table made"), "{}", mill.describe());
}

#[test]
fn installing_again_and_at_the_same_time_changes_nothing() {
    let database = Cluster::shared().database();
    thread::scope(|scope| {
        let both: Vec<_> = (0..2).map(|_| scope.spawn(|| run(&database, "install"))).collect();
        for one in both {
            let said = one.join().expect("no panic");
            assert_eq!(said.code, Some(0), "{}", said.all());
        }
    });
    let before = dump(&database);
    let said = run(&database, "install");
    assert!(said.code == Some(0) && said.stdout.contains("was there already"), "{}", said.all());
    assert_eq!(dump(&database), before);
}

#[test]
fn the_printed_sql_is_one_transaction_for_psql() {
    let database = Cluster::shared().database();
    let desk = Desk::new();
    let printed = desk.run(&["install", "--print"]);
    assert_eq!(printed.code, Some(0), "{}", printed.all());
    let script = desk.write("install.sql", &printed.stdout);
    // a table in the way of the last step: nothing of the first ones stays
    database.run("CREATE VIEW public.task AS SELECT 1 AS id");
    let mut command = psql(&database, database.owner());
    command.arg("-f").arg(&script);
    assert!(desk.finish(command).stderr.contains("ERROR"));
    assert!(!has_catalog(&database));
    database.run("DROP VIEW public.task");
    let mut command = psql(&database, database.owner());
    command.args(["-v", "ON_ERROR_STOP=1", "-f"]).arg(&script);
    let said = desk.finish(command);
    assert!(said.code == Some(0) && !said.stderr.contains("ERROR"), "{}", said.all());
    let by_hand = dump(&database);

    let other = Cluster::shared().database();
    let mill = Supervisor::of(&database).and(&other).start();
    let id = database.insert("SELECT 7");
    assert_eq!(mill.finished(&database, id)["output"], "7");
    database.run("TRUNCATE public.task RESTART IDENTITY");
    assert_eq!(dump(&database), by_hand, "the scheduler had nothing to add");
}

#[test]
fn a_login_without_the_right_installs_nothing_and_says_so() {
    let database = Cluster::shared().database();
    take_database_away(&database);
    let said = run(&database, "install");
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(
        said.stderr.contains("nothing was changed") && said.stderr.contains("permission denied"),
        "{}",
        said.stderr
    );
    assert!(!has_catalog(&database));
    let said = run(&database, "uninstall");
    assert!(said.code == Some(0) && said.stdout.contains("there is no catalog"), "{}", said.all());
}

#[test]
fn a_schema_mill_of_somebody_elses_is_left_alone() {
    let database = Cluster::shared().database();
    database.run("CREATE SCHEMA mill; CREATE TABLE mill.flour (kind text)");
    for command in ["install", "uninstall"] {
        let said = run(&database, command);
        assert!(said.code == Some(1) && said.stderr.contains("is not pgmill's"), "{}", said.all());
    }
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    mill.eventually("status says what is wrong", || {
        mill.status().is_some_and(|status| status.to_string().contains("the schema mill is somebody else's"))
    });
}

#[test]
fn uninstalling_keeps_task_tables_and_a_rollback_changes_nothing() {
    let database = Cluster::shared().database();
    assert_eq!(run(&database, "install").code, Some(0));
    database.insert_with("SELECT 1", "data = 'kept'");
    let before = dump(&database);
    let mut client = database.server().try_connect(database.login(), database.name()).expect("connect");
    client.batch_execute("BEGIN; SELECT mill.uninstall()").expect("uninstall");
    client.batch_execute("ROLLBACK").expect("roll back");
    assert_eq!(dump(&database), before);

    let said = run(&database, "uninstall");
    assert!(said.code == Some(0) && said.stdout.contains("task tables stay"), "{}", said.all());
    let left: i64 = one(&database, "SELECT count(*) FROM pg_namespace WHERE nspname = 'mill'");
    assert_eq!(left, 0);
    assert_eq!(all::<String>(&database, "SELECT data FROM public.task"), ["kept"]);
    let calls: i64 = one(
        &database,
        "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.task'::regclass AND NOT tgisinternal \
        AND tgfoid IN (SELECT oid FROM pg_proc WHERE pronamespace::regnamespace::text = 'mill')",
    );
    assert_eq!(calls, 0);
    assert_eq!(run(&database, "install").code, Some(0), "and it can come back");
    assert_eq!(dump(&database), before, "as it was");
}

#[test]
fn what_others_have_built_on_the_catalog_is_named_and_not_dropped() {
    let database = Cluster::shared().database();
    assert_eq!(run(&database, "install").code, Some(0));
    database.run("CREATE VIEW public.queues AS SELECT * FROM mill.queue; CREATE FUNCTION public.mine() RETURNS text BEGIN ATOMIC SELECT mill.s_version(); END");
    let said = run(&database, "uninstall");
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("queues") && said.stderr.contains("mine()"), "{}", said.stderr);
    assert!(has_catalog(&database));
    database.run("DROP VIEW public.queues; DROP FUNCTION public.mine()");
    assert_eq!(run(&database, "uninstall").code, Some(0));
    assert!(!has_catalog(&database));
}

#[test]
fn only_the_owner_may_uninstall() {
    let database = Cluster::shared().database();
    assert_eq!(run(&database, "install").code, Some(0));
    let mut owner = database.connect();
    assert!(refusal(&mut owner, "SELECT mill.uninstall()").starts_with("42501"));
    assert!(has_catalog(&database));
}

#[test]
fn a_row_without_the_right_to_create_gets_its_catalog_from_the_launchers_login() {
    let database = Cluster::shared().database();
    take_database_away(&database);
    database.run(&format!(
        "GRANT CREATE ON DATABASE {} TO {}",
        quote_ident(database.name()),
        quote_ident(database.login())
    ));
    let mill = Supervisor::of(&database).start();
    mill.eventually("the queue is registered", || {
        database.look("SELECT 1 FROM mill.queue WHERE name = 'task'", &[]).is_some_and(|rows| !rows.is_empty())
    });
    let owner: String =
        one(&database, "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'");
    assert_eq!(owner, database.login());
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    assert!(!mill.log_contains("no catalog"), "{}", mill.describe());
}

#[test]
fn without_any_right_tasks_run_and_the_row_says_which_sql_would_help() {
    let database = Cluster::shared().database();
    take_database_away(&database);
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 5");
    assert_eq!(mill.finished(&database, id)["output"], "5");
    let advice =
        format!("GRANT CREATE ON DATABASE {} TO {}", quote_ident(database.name()), quote_ident(database.owner()));
    mill.eventually("status says what would help", || {
        let why = mill.status()?["databases"][0]["why"].as_str()?.to_owned();
        why.contains(&advice).then_some(())
    });
    assert!(!has_catalog(&database));
    database.run(&advice);
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_work%' AND datname = current_database()");
    mill.eventually("its advice helps at the next session", || has_catalog(&database));
    mill.eventually("and the reason is gone", || {
        mill.status().is_some_and(|status| status["databases"][0]["why"].is_null())
    });
}
