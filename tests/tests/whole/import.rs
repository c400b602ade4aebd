//! `launcher import pg_cron`: what was scheduled there becomes a job here, and what cannot is said.

use serde_json::json;
use tests::database::quote_ident;
use tests::workdir::Ended;
use tests::{Cluster, Database, Workdir};

use crate::queries::{all, one};

/// A launcher's folder for a database, its catalog installed.
fn workdir(database: &Database) -> Workdir {
    let workdir = Workdir::new();
    let config = json!({
        "connect": database.server().conninfo(database.login()),
        "json": [{"data": database.name(), "user": database.owner()}],
    });
    workdir.write("mill.json", &config.to_string());
    let said = workdir.run(&["install", database.name(), "--config", "mill.json"]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    workdir
}

#[track_caller]
fn import(workdir: &Workdir, database: &Database, more: &[&str]) -> Ended {
    let mut arguments = vec!["import", "pg_cron", "--config", "mill.json", "--database", database.name()];
    arguments.extend(more);
    workdir.run(&arguments)
}

/// The table as pg_cron 1.4 makes it, without the extension.
fn make_cron_table(database: &Database) {
    database.run(&format!(
        "CREATE SCHEMA cron; CREATE TABLE cron.job (jobid bigserial PRIMARY KEY, schedule text NOT NULL, command text NOT NULL, \
         nodename text NOT NULL DEFAULT 'localhost', nodeport int NOT NULL DEFAULT inet_server_port(), \
         database text NOT NULL DEFAULT current_database(), username text NOT NULL DEFAULT current_user, \
         active bool NOT NULL DEFAULT true, jobname name, UNIQUE (jobname, username)); \
         ALTER TABLE cron.job ALTER nodeport SET DEFAULT {}; \
         GRANT USAGE ON SCHEMA cron TO {login}; GRANT SELECT ON cron.job TO {login}",
        database.server().port,
        login = quote_ident(database.login()),
    ));
}

fn jobs(database: &Database) -> Vec<String> {
    all(
        database,
        "SELECT concat_ws('|', name, input, coalesce(cron, '-'), coalesce(schedule_interval::text, '-'), \
         coalesce(timezone, 'UTC'), scheduled) FROM mill.job ORDER BY name",
    )
}

#[test]
fn every_job_of_pg_cron_is_carried_over_or_left_with_its_reason() {
    let database = Cluster::shared().database();
    let workdir = workdir(&database);
    make_cron_table(&database);
    let owner = database.owner().replace('\'', "''");
    database.run(&format!(
        "INSERT INTO cron.job (jobname, schedule, command, username, active) VALUES \
             ('nightly', '0 3 * * *', 'VACUUM', '{owner}', true), \
             ('sleepy', '*/5 8-18 * * mon-fri', 'SELECT 1', '{owner}', false), \
             (NULL, '30 seconds', 'SELECT 2', '{owner}', true), \
             ('month end', '0 12 $ * *', 'SELECT 3', '{owner}', true), \
             ('boot', '@reboot', 'SELECT 4', '{owner}', true), \
             ('never', '0 0 31 2 *', 'SELECT 5', '{owner}', true), \
             ('stranger', '@hourly', 'SELECT 6', 'nobody here', true), \
             ('twin', '@daily', 'SELECT 7', '{owner}', true), \
             ('twin', '@daily', 'SELECT 8', 'nobody here', true); \
         INSERT INTO cron.job (jobname, schedule, command, database) VALUES ('elsewhere', '@daily', 'SELECT 9', 'other'); \
         INSERT INTO cron.job (jobname, schedule, command, nodename) VALUES ('far', '@daily', 'SELECT 10', 'db2.example')"
    ));

    let dry = import(&workdir, &database, &["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.all());
    assert!(
        dry.stdout.contains("7 created, 0 existing, 4 not imported (dry run: nothing was changed)"),
        "{}",
        dry.stdout
    );
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.job"), 0);

    let said = import(&workdir, &database, &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    let carried = [
        "month end|SELECT 3|0 12 $ * *|-|UTC|t",
        "nightly|VACUUM|0 3 * * *|-|UTC|t",
        "pg_cron 3|SELECT 2|-|00:00:30|UTC|t",
        "sleepy|SELECT 1|*/5 8-18 * * mon-fri|-|UTC|f",
        "stranger|SELECT 6|@hourly|-|UTC|f",
    ];
    let twins =
        [format!("twin ({owner})|SELECT 7|@daily|-|UTC|t"), "twin (nobody here)|SELECT 8|@daily|-|UTC|f".into()];
    let mut expected: Vec<String> = carried.iter().map(|job| (*job).to_owned()).chain(twins).collect();
    let mut found = jobs(&database);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    for words in [
        "cron.job 1 \"nightly\" (0 3 * * *): job ",
        "cron.job 2 \"sleepy\" (*/5 8-18 * * mon-fri): job ",
        "created; paused, as it was",
        "cron.job 5 \"boot\" (@reboot): not imported: it runs at the start of its server",
        "cron.job 6 \"never\" (0 0 31 2 *): not imported: it never fires",
        "\"stranger\" (@hourly): job 12 created, paused: job \"stranger\" ran as \"nobody here\" and would run as",
        "; it belongs to",
        "UPDATE mill.job SET scheduled = true WHERE id = 12",
        "2 paused: they ran as other roles",
        "--run-as-queue-user",
        "\"elsewhere\" (@daily): not imported: it runs in the database \"other\"",
        "\"far\" (@daily): not imported: it runs on another server, db2.example",
        "7 created, 0 existing, 4 not imported",
        "run twice; disable them there",
        "jobid IN (1, 3, 4, 8)",
    ] {
        assert!(said.stdout.contains(words), "{words:?} is not in\n{}", said.stdout);
    }
    let owners: Vec<String> = all(&database, "SELECT DISTINCT owner::text FROM mill.job ORDER BY 1");
    assert_eq!(owners, [database.owner(), database.login()]);

    // a second run does nothing; what was changed here since is told, and stays
    database.run("UPDATE mill.job SET input = 'SELECT 33' WHERE name = 'month end'; UPDATE mill.job SET scheduled = false WHERE name = 'nightly'");
    let before = jobs(&database);
    let again = import(&workdir, &database, &[]);
    assert_eq!(again.code, Some(0), "{}", again.all());
    assert!(again.stdout.contains("0 created, 6 existing, 5 not imported"), "{}", again.stdout);
    assert!(again.stdout.contains("has the name \"month end\" and another definition"), "{}", again.stdout);
    assert_eq!(jobs(&database), before);
}

#[test]
fn a_job_of_another_role_comes_in_paused_unless_it_is_to_run_as_the_queues_user() {
    let database = Cluster::shared().database();
    let workdir = workdir(&database);
    make_cron_table(&database);
    let other = format!("{}_other", database.owner());
    let (owner, login, other_ident) = (database.owner(), quote_ident(database.login()), quote_ident(&other));
    // One whose owner is kept, but who is not the queue's user; and the queue's own.
    database.run(&format!(
        "CREATE ROLE {other_ident}; GRANT {other_ident} TO {login}; GRANT INSERT ON public.task TO {other_ident}; \
         INSERT INTO cron.job (jobname, schedule, command, username, active) VALUES ('theirs', '@daily', 'SELECT 1', '{other}', true), \
         ('gone', '@daily', 'SELECT 2', 'gone', true), ('mine', '@daily', 'SELECT 3', '{owner}', true), \
         ('off', '@daily', 'SELECT 4', '{other}', false)"
    ));
    let dry = import(&workdir, &database, &["--dry-run"]);
    assert!(dry.stdout.contains("would be created, paused: job \"theirs\" ran as"), "{}", dry.all());
    let said = import(&workdir, &database, &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    let scheduled = "SELECT concat_ws('|', name, owner, scheduled) FROM mill.job ORDER BY name";
    let expected = |others: bool| {
        let flag = |is: bool| if is { "t" } else { "f" };
        let login = database.login();
        [
            format!("gone|{login}|{}", flag(others)),
            format!("mine|{owner}|t"),
            format!("off|{other}|f"),
            format!("theirs|{other}|{}", flag(others)),
        ]
    };
    assert_eq!(all::<String>(&database, scheduled), expected(false));
    for words in [
        format!("job \"theirs\" ran as {other:?} and would run as {owner:?}"),
        format!("job \"gone\" ran as \"gone\" and would run as {owner:?}; it belongs to {:?}", database.login()),
        "2 paused: they ran as other roles".to_owned(),
        "jobid IN (3)".to_owned(),
    ] {
        assert!(said.stdout.contains(&words), "{words:?} is not in\n{}", said.stdout);
    }
    // nothing of it has run
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE input IN ('SELECT 1', 'SELECT 2')"), 0);
    let again = import(&workdir, &database, &["--run-as-queue-user"]);
    assert!(again.stdout.contains("4 existing"), "{}", again.all());
    assert_eq!(all::<String>(&database, scheduled), expected(false));
    database.run("DELETE FROM mill.job");
    let said = import(&workdir, &database, &["--run-as-queue-user"]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert_eq!(all::<String>(&database, scheduled), expected(true));
    assert!(
        said.stdout.contains(&format!("it runs as {owner:?}, the user of its queue, not as {other:?}")),
        "{}",
        said.all()
    );
    assert!(said.stdout.contains("jobid IN (1, 2, 3)"), "{}", said.stdout);
    database.run(&format!("DROP SCHEMA mill CASCADE; DROP OWNED BY {other_ident}; DROP ROLE {other_ident}"));
}

#[test]
fn jobs_of_a_central_table_go_to_the_database_that_they_run_in() {
    let cluster = Cluster::shared();
    let (central, app) = (cluster.database(), cluster.database());
    make_cron_table(&central);
    let app_workdir = workdir(&app);
    central.run(&format!(
        "GRANT USAGE ON SCHEMA cron TO {login}; GRANT SELECT ON cron.job TO {login}; \
         INSERT INTO cron.job (jobname, schedule, command, database) VALUES ('here', '@daily', 'SELECT 1', 'another'), \
         ('there', '@daily', 'SELECT 2', '{app}')",
        login = quote_ident(app.login()),
        app = app.name(),
    ));
    let said = import(&app_workdir, &app, &["--from", central.name(), "--paused", "--timezone", "Asia/Tokyo"]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert_eq!(jobs(&app), ["there|SELECT 2|@daily|-|Asia/Tokyo|f"]);
    assert!(!said.stdout.contains("twice"), "paused jobs do not run: {}", said.stdout);
    assert!(said.stdout.contains(&format!("--database another --from {}", central.name())), "{}", said.stdout);
}

#[test]
fn an_import_that_cannot_be_says_why_and_changes_nothing() {
    let database = Cluster::shared().database();
    let bare = Workdir::new();
    let config = json!({"connect": database.server().conninfo(database.login())});
    bare.write("mill.json", &config.to_string());
    let said = import(&bare, &database, &[]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("table cron.job does not exist"), "{}", said.stderr);
    make_cron_table(&database);
    let said = import(&bare, &database, &[]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("launcher install"), "{}", said.stderr);

    let workdir = workdir(&database);
    let said = import(&workdir, &database, &["--queue", "public.nothing"]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("public.nothing is not a task table that pgmill has served"), "{}", said.stderr);
    // one that the catalog refuses does not take the others with it
    database.run(
        "ALTER TABLE cron.job ALTER jobname TYPE text; \
         INSERT INTO cron.job (jobname, schedule, command) VALUES ('good', '@daily', 'SELECT 1'), \
         (repeat('x', 300), '@daily', 'SELECT 2'), ('fine', '@daily', 'SELECT 3')",
    );
    let said = import(&workdir, &database, &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert!(said.stdout.contains("2 created, 0 existing, 1 not imported"), "{}", said.stdout);
    assert!(said.stdout.contains("its name must have 1 to 200 characters"), "{}", said.stdout);
}

#[test]
fn jobs_of_the_real_extension_are_carried_over() {
    let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_cron'";
    if one::<i64>(&Cluster::shared().database(), available) == 0 {
        tests::skip("jobs of pg_cron", "this server has no such extension (Debian: postgresql-15-cron)");
        return;
    }
    let cluster = Cluster::configure()
        .setting("shared_preload_libraries", "pg_cron")
        .setting("cron.database_name", "mill_cron")
        .setting("cron.launch_active_jobs", "off")
        .setting("cron.timezone", "Asia/Tokyo")
        .start();
    let database = cluster.database_named("mill_cron", "cron_owner");
    let workdir = workdir(&database);
    let owner = quote_ident(database.owner());
    database.run(&format!(
        "CREATE EXTENSION pg_cron; GRANT USAGE ON SCHEMA cron TO {owner}, {login}; GRANT SELECT ON cron.job TO {login}; \
         SELECT cron.schedule('nightly', '0 3 * * *', 'VACUUM'); SELECT cron.schedule('*/5 * * * *', 'SELECT 1');",
        login = quote_ident(database.login()),
    ));
    // row security: a role that is no superuser sees its own jobs only, and is told so
    let said = import(&workdir, &database, &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    assert!(said.stderr.contains("only its own jobs"), "{}", said.stderr);
    assert!(said.stdout.contains("0 created, 0 existing, 0 not imported"), "{}", said.stdout);
    // a superuser uses no catalog of a lesser role
    database.run(&format!("REASSIGN OWNED BY {owner} TO postgres"));
    let super_config = json!({"connect": database.server().conninfo("postgres")});
    workdir.write("mill.json", &super_config.to_string());
    let said = import(&workdir, &database, &[]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    // versions before 1.5 do not know that setting, and run in GMT whatever it says
    let zone: String = one(
        &database,
        "SELECT CASE WHEN extversion LIKE '1.4%' THEN 'UTC' ELSE 'Asia/Tokyo' END FROM pg_extension WHERE extname = 'pg_cron'",
    );
    let expected = ["nightly|VACUUM|0 3 * * *|-|ZONE|f", "pg_cron 2|SELECT 1|*/5 * * * *|-|ZONE|f"];
    assert_eq!(jobs(&database), expected.map(|job| job.replace("ZONE", &zone)), "they were a superuser's");
    database.run("DELETE FROM mill.job");
    let said = import(&workdir, &database, &["--run-as-queue-user"]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    // the words that it ends with do what they say
    let advice =
        said.stdout.lines().last().and_then(|line| line.split_once(": SELECT")).expect("an advice").1.to_owned();
    database.run(&format!("SELECT{advice}"));
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM cron.job WHERE active"), 0);
}
