//! The catalog's life: installed by a command, by printed SQL, by a row's first start, and dropped again.

use std::process::Command;
use std::thread;

use serde_json::json;
use tests::database::quote_ident;
use tests::server_programs::bin;
use tests::workdir::Ended;
use tests::{Cluster, Database, Supervisor, Workdir};

use crate::queries::{all, one, refusal};

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
    let workdir = Workdir::new();
    workdir.write("mill.json", &config(database));
    workdir.run(&[command, database.name(), "--config", "mill.json"])
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

/// The database belongs to somebody else; its queue's user may use the schema public and no more.
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
    assert_eq!(owners, [database.owner(), database.owner(), database.owner()]);
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 42");
    assert_eq!(mill.finished(&database, id)["output"], "42");
    assert!(
        !mill.log_contains("served without the catalog") && !mill.log_contains("table created"),
        "{}",
        mill.describe()
    );
}

/// Owners of the catalog's schemas, tables and functions, each once.
fn catalog_owners(database: &Database) -> Vec<String> {
    all(
        database,
        "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname IN ('mill', 'mill_private') \
         UNION SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE relnamespace::regnamespace::text IN ('mill', 'mill_private') \
         UNION SELECT pg_get_userbyid(proowner)::text FROM pg_proc WHERE pronamespace::regnamespace::text IN ('mill', 'mill_private')",
    )
}

/// `launcher install` with a config of its own.
#[track_caller]
fn install_with(database: &Database, login: &str, rows: &serde_json::Value, more: &[&str]) -> Ended {
    let workdir = Workdir::new();
    let config = json!({"connect": database.server().conninfo(login), "json": rows});
    workdir.write("mill.json", &config.to_string());
    let mut arguments = vec!["install", database.name(), "--config", "mill.json"];
    arguments.extend(more);
    workdir.run(&arguments)
}

#[test]
fn the_catalog_belongs_to_the_queues_user_who_administers_it_and_whose_jobs_run() {
    let database = Cluster::shared().database();
    let rows = json!([{"data": database.name(), "user": database.owner()}]);
    // a superuser as login: the catalog is none of a superuser's all the same
    let said = install_with(&database, "postgres", &rows, &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert_eq!(catalog_owners(&database), [database.owner()]);
    let owner = quote_ident(database.owner());
    let told = format!("owner of the catalog: {owner}; owner of public.task: {owner}");
    assert!(said.stdout.contains(&told) && said.stdout.contains("next: start the launcher"), "{}", said.stdout);
    let mill = Supervisor::of(&database).start();
    let mut client = database.connect();
    client
        .batch_execute("SELECT mill.grant('pg_monitor', 'use'); INSERT INTO mill.job (name, input) VALUES ('one', 'SELECT 1'); SELECT mill.run_job(id) FROM mill.job")
        .expect("its owner administers it");
    mill.eventually("the job has run", || {
        database.query("SELECT FROM mill.run WHERE state = 'succeeded'", &[]).is_some_and(|rows| rows.len() == 1)
    });
}

#[test]
fn a_user_who_may_not_create_in_the_database_is_given_the_catalog_by_a_login_that_may() {
    let database = Cluster::shared().database();
    take_database_away(&database);
    database.run(&format!(
        "GRANT CREATE ON DATABASE {} TO {}",
        quote_ident(database.name()),
        quote_ident(database.login())
    ));
    let said = run(&database, "install");
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert_eq!(catalog_owners(&database), [database.owner()]);
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 3");
    assert_eq!(mill.finished(&database, id)["output"], "3");
    assert!(!mill.log_contains("served without the catalog"), "{}", mill.describe());
}

#[test]
fn another_owner_is_named_by_an_option_and_the_consent_that_is_missing_is_printed() {
    let database = Cluster::shared().database();
    let dba = format!("{}_dba", database.name());
    let quoted = quote_ident(&dba);
    database.run(&format!("CREATE ROLE {quoted} LOGIN; GRANT {quoted} TO {}", quote_ident(database.login())));
    let rows = json!([{"data": database.name(), "user": database.owner()}]);
    let said = install_with(&database, database.login(), &rows, &["--owner", &dba]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert_eq!(catalog_owners(&database), [dba.as_str()]);
    let consent = format!("GRANT INSERT ON \"public\".\"task\" TO {quoted}");
    let next = format!("next: as {}: {consent}", quote_ident(database.owner()));
    assert!(
        said.stdout.contains(&format!("owner of the catalog: {quoted};")) && said.stdout.contains(&next),
        "{}",
        said.stdout
    );
    database.connect().batch_execute(&consent).expect("agree");
    let mill = Supervisor::of(&database).start();
    let mut client = database.server().try_connect(&dba, database.name()).expect("connect");
    client
        .batch_execute(
            "INSERT INTO mill.job (name, input) VALUES ('one', 'SELECT 1'); SELECT mill.run_job(id) FROM mill.job",
        )
        .expect("a job");
    mill.eventually("the job has run", || {
        database.query("SELECT FROM mill.run WHERE state = 'succeeded'", &[]).is_some_and(|rows| rows.len() == 1)
    });
    let again = install_with(&database, database.login(), &rows, &["--owner", database.owner()]);
    assert!(again.code == Some(1) && again.stderr.contains("belongs to"), "{}", again.all());
}

#[test]
fn of_a_covered_database_the_catalog_belongs_to_the_owner_of_the_database() {
    let database = Cluster::shared().database();
    let said = install_with(&database, database.login(), &json!([{"data": "*"}]), &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert_eq!(catalog_owners(&database), [database.owner()]);
    assert!(
        said.stdout.contains(&format!("owner of public.task: {}", quote_ident(database.owner()))),
        "{}",
        said.stdout
    );
    // a superuser's database: nobody's tasks are to run as that one
    let other = Cluster::shared().database();
    other.run(&format!("ALTER DATABASE {} OWNER TO postgres", quote_ident(other.name())));
    let said = install_with(&other, "postgres", &json!([{"data": "*"}]), &[]);
    assert!(said.code == Some(0) && said.stdout.contains("next: ALTER TABLE public.task OWNER TO"), "{}", said.all());
}

#[test]
fn a_login_that_is_no_member_of_the_queues_user_installs_nothing_and_is_told_which_grant_helps() {
    let database = Cluster::shared().database();
    let (owner, login) = (quote_ident(database.owner()), quote_ident(database.login()));
    database.run(&format!(
        "REVOKE {owner} FROM {login}; GRANT CREATE ON DATABASE {} TO {login}",
        quote_ident(database.name())
    ));
    let said = run(&database, "install");
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains(&format!("run: GRANT {owner} TO {login}")), "{}", said.stderr);
    assert!(!has_catalog(&database));
    let rows = json!([{"data": database.name(), "user": "nobody_has_this_name"}]);
    let said = install_with(&database, database.login(), &rows, &[]);
    assert!(said.code == Some(1) && said.stderr.contains("does not exist; run: CREATE ROLE"), "{}", said.all());
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
    assert!(said.code == Some(0) && said.stdout.contains("exists already"), "{}", said.all());
    assert_eq!(dump(&database), before);
}

#[test]
fn the_printed_sql_is_one_transaction_for_psql() {
    let database = Cluster::shared().database();
    let workdir = Workdir::new();
    let printed = workdir.run(&["install", "--print"]);
    assert_eq!(printed.code, Some(0), "{}", printed.all());
    let script = workdir.write("install.sql", &printed.stdout);
    // a table in the way of the last step: nothing of the first ones stays
    database.run("CREATE VIEW public.task AS SELECT 1 AS id");
    let mut command = psql(&database, database.owner());
    command.arg("-f").arg(&script);
    assert!(workdir.finish(command).stderr.contains("ERROR"));
    assert!(!has_catalog(&database));
    database.run("DROP VIEW public.task");
    let mut command = psql(&database, database.owner());
    command.args(["-v", "ON_ERROR_STOP=1", "-f"]).arg(&script);
    let said = workdir.finish(command);
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
        assert!(said.code == Some(1) && said.stderr.contains("does not belong to pgmill"), "{}", said.all());
    }
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    mill.eventually("status says what is wrong", || {
        mill.status().is_some_and(|status| status.to_string().contains("the schema mill does not belong to pgmill"))
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
    assert!(said.code == Some(0) && said.stdout.contains("task tables are kept"), "{}", said.all());
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
    let reporter = format!("{}_reporter", database.name());
    database.run(&format!(
        "CREATE ROLE {0} LOGIN; SELECT mill.grant('{0}', 'operate')",
        quote_ident(&reporter).replace('"', "")
    ));
    let mut client = database.server().try_connect(&reporter, database.name()).expect("connect");
    assert!(refusal(&mut client, "SELECT mill.uninstall()").starts_with("42501"));
    assert!(has_catalog(&database));
    drop(client);
    database.connect().batch_execute("SELECT mill.uninstall()").expect("the owner may");
    database.run(&format!("DROP OWNED BY {reporter}; DROP ROLE {reporter}"));
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
        database.query("SELECT 1 FROM mill.queue WHERE name = 'task'", &[]).is_some_and(|rows| !rows.is_empty())
    });
    let owner: String =
        one(&database, "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'");
    assert_eq!(owner, database.login());
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    assert!(!mill.log_contains("served without the catalog"), "{}", mill.describe());
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
