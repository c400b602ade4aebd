//! A row "*": every task table of the server whose database has the catalog is served, as its owner, from the moment
//! it is there until it is gone; other databases are left alone.

use std::time::Duration;

use postgres::Client;
use serde_json::{Value, json};
use tests::{Cluster, Supervisor, sized, steadily};

use crate::messages::say;

const SOON: Duration = Duration::from_secs(20);
const LOGIN: &str = "mill";
const OWNER: &str = "app";

/// A cluster with a login for the launcher, and some databases of a role of which it is a member.
fn cluster_with(databases: &[&str]) -> Cluster {
    let cluster = Cluster::configure().max_connections(300).start();
    let mut root = cluster.connect("postgres");
    must(&mut root, &format!("CREATE ROLE {LOGIN} LOGIN; CREATE ROLE {OWNER} LOGIN; GRANT {OWNER} TO {LOGIN}"));
    for name in databases {
        must(&mut root, &format!("CREATE DATABASE {name} OWNER {OWNER}"));
    }
    cluster
}

fn launcher(cluster: &Cluster) -> tests::launch::Launch<'static> {
    let connect = cluster.server().conninfo(LOGIN);
    Supervisor::bare().key("connect", connect).key("probe", "300 ms").key("poll", "200 ms").row(json!({"data": "*"}))
}

#[track_caller]
fn must(client: &mut Client, sql: &str) {
    client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn enter(cluster: &Cluster, database: &str) -> Client {
    cluster.server().try_connect(OWNER, database).expect("connect")
}

/// The catalog and public.task.
fn catalog() -> String {
    format!("{}; {}", shared::db::catalog::text(env!("CARGO_PKG_VERSION")), shared::db::catalog::task_text())
}

fn install(cluster: &Cluster, database: &str) {
    must(&mut enter(cluster, database), &format!("BEGIN; {}; COMMIT", catalog()));
}

/// The rows of a database in `status`, as (schema.table, state).
fn rows_of(mill: &Supervisor<'_>, database: &str) -> Vec<(String, String)> {
    let status = mill.status().unwrap_or(Value::Null);
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut rows: Vec<(String, String)> = status["databases"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| row["data"] == database)
        .map(|row| (format!("{}.{}", text(row, "schema"), text(row, "table")), text(row, "state")))
        .collect();
    rows.sort();
    rows
}

#[track_caller]
fn becomes(mill: &Supervisor<'_>, database: &str, wanted: &[(&str, &str)]) {
    let wanted: Vec<(String, String)> =
        wanted.iter().map(|(queue, state)| ((*queue).to_owned(), (*state).to_owned())).collect();
    mill.wait(&format!("{database} is {wanted:?}")).within(SOON).until(|| rows_of(mill, database) == wanted);
}

/// Runs a task there and waits for its end.
#[track_caller]
fn runs(mill: &Supervisor<'_>, client: &mut Client, table: &str) {
    mill.wait("the table is there")
        .within(SOON)
        .until(|| client.batch_execute(&format!("SELECT FROM {table}")).is_ok());
    let insert = format!("INSERT INTO {table} (input) VALUES ('SELECT 1') RETURNING id");
    let id: i64 = client.query_one(&insert, &[]).expect("insert").get(0);
    mill.wait("the task is done").within(SOON).until(|| {
        let look = format!("SELECT state::text FROM {table} WHERE id = $1");
        client.query_one(&look, &[&id]).expect("look").get::<_, String>(0) == "DONE"
    });
}

fn schedulers(mill: &Supervisor<'_>) -> usize {
    mill.schedulers().len()
}

const PUBLIC: &str = "public.task";

#[test]
fn databases_come_and_go_and_those_with_a_catalog_are_served() {
    let cluster = cluster_with(&["has", "lacks", "shut", "half", "model"]);
    let mut root = cluster.connect("postgres");
    must(
        &mut root,
        "ALTER DATABASE shut ALLOW_CONNECTIONS false; ALTER DATABASE model IS_TEMPLATE true; \
         UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'half'",
    );
    install(&cluster, "has");
    let mill = launcher(&cluster).start();
    becomes(&mill, "has", &[(PUBLIC, "STARTED")]);
    for left_alone in ["lacks", "shut", "half", "model", "template0", "template1"] {
        assert_eq!(rows_of(&mill, left_alone), [], "{left_alone}");
    }
    runs(&mill, &mut enter(&cluster, "has"), PUBLIC);
    // nothing is made where nobody asked for it
    let made: i64 = enter(&cluster, "lacks")
        .query_one("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace", &[])
        .expect("look")
        .get(0);
    assert_eq!(made, 0);

    // A table alone is not served.
    must(&mut enter(&cluster, "lacks"), &shared::db::catalog::task_text());
    mill.eventually("it says why", || {
        let status = mill.status()?;
        let row = status["databases"].as_array()?.iter().find(|row| row["data"] == "lacks").cloned()?;
        (row["why"] == "the catalog mill is not installed").then_some(())
    });
    // installed by hand: a slow look finds it
    install(&cluster, "lacks");
    becomes(&mill, "lacks", &[(PUBLIC, "STARTED")]);
    // a copy has what its model has; a busy model is no hindrance
    must(&mut root, "CREATE DATABASE copy TEMPLATE has");
    becomes(&mill, "copy", &[(PUBLIC, "STARTED")]);
    becomes(&mill, "has", &[(PUBLIC, "STARTED")]);
    must(&mut root, "ALTER DATABASE copy RENAME TO other");
    becomes(&mill, "other", &[(PUBLIC, "STARTED")]);
    assert_eq!(rows_of(&mill, "copy"), []);
    runs(&mill, &mut enter(&cluster, "other"), PUBLIC);
    must(&mut root, "DROP DATABASE other");
    mill.wait("it is forgotten").within(SOON).until(|| rows_of(&mill, "other").is_empty());
    must(&mut root, "ALTER DATABASE lacks ALLOW_CONNECTIONS false");
    mill.wait("it is forgotten").within(SOON).until(|| rows_of(&mill, "lacks").is_empty());
    mill.eventually("one scheduler is left", || schedulers(&mill) == 1);
    assert!(!mill.log_contains("scheduler died"), "{}", mill.describe());
}

#[test]
fn a_database_that_the_config_names_is_served_once_and_by_its_own_row() {
    let cluster = cluster_with(&["named", "found"]);
    must(
        &mut cluster.connect("postgres"),
        &format!("CREATE ROLE other LOGIN; GRANT other TO {LOGIN}; ALTER DATABASE named OWNER TO other"),
    );
    install(&cluster, "found");
    let mill = launcher(&cluster).row(json!({"data": "named", "user": "other", "table": "jobs"})).start();
    becomes(&mill, "named", &[("public.jobs", "STARTED")]);
    becomes(&mill, "found", &[(PUBLIC, "STARTED")]);
    steadily("it stays so", Duration::from_secs(1), || schedulers(&mill) == 2);
    let status = mill.status().expect("status");
    let users: Vec<&str> =
        status["databases"].as_array().into_iter().flatten().filter_map(|row| row["user"].as_str()).collect();
    assert_eq!(users, ["other", OWNER], "{status:#}");
}

#[test]
fn every_queue_that_a_found_catalog_knows_is_served_and_no_table_is_made_beside_them() {
    let cluster = cluster_with(&["several"]);
    // two queues that rows have made, as an operator would
    let connect = cluster.server().conninfo(LOGIN);
    let maker = Supervisor::bare()
        .key("connect", connect)
        .row(json!({"data": "several", "user": OWNER, "schema": "one", "table": "jobs"}))
        .row(json!({"data": "several", "user": OWNER, "schema": "two", "table": "jobs"}))
        .start();
    let mut client = enter(&cluster, "several");
    maker.wait("both are known").within(SOON).until(|| {
        let known = client.query_one("SELECT count(*) FROM mill.queue", &[]);
        known.is_ok_and(|row| row.get::<_, i64>(0) == 2)
    });
    drop(maker);
    let mill = launcher(&cluster).start();
    let both = [("one.jobs", "STARTED"), ("two.jobs", "STARTED")];
    becomes(&mill, "several", &both);
    runs(&mill, &mut client, "one.jobs");
    runs(&mill, &mut client, "two.jobs");
    let made: Option<String> = client.query_one("SELECT to_regclass('public.task')::text", &[]).expect("look").get(0);
    assert_eq!(made, None);
    assert!(say(&mut client, "stop()"));
    assert_eq!(schedulers(&mill), 0);
    assert!(say(&mut client, "start()"));
    becomes(&mill, "several", &both);
    // One whose scheduler is still on its way to it is made anew.
    runs(&mill, &mut client, "two.jobs");
    must(&mut client, "DROP TABLE two.jobs CASCADE");
    mill.wait("a queue that is gone is forgotten")
        .within(SOON)
        .until(|| !rows_of(&mill, "several").iter().any(|(queue, _)| queue == "two.jobs"));
}

#[test]
fn an_install_ends_with_a_restart_and_is_served_when_it_is_committed() {
    let cluster = cluster_with(&["fresh"]);
    let mill = launcher(&cluster).key("probe", "1 hour").start();
    mill.wait_ready();
    let mut client = enter(&cluster, "fresh");
    must(&mut client, &format!("BEGIN; {}", catalog()));
    assert!(say(&mut client, "restart()"));
    steadily("it waits", Duration::from_millis(500), || schedulers(&mill) == 0);
    must(&mut client, "ROLLBACK");
    steadily("there is nothing", Duration::from_millis(500), || rows_of(&mill, "fresh").is_empty());
    must(&mut client, &format!("BEGIN; {}", catalog()));
    assert!(say(&mut client, "restart()"));
    must(&mut client, "COMMIT");
    becomes(&mill, "fresh", &[(PUBLIC, "STARTED")]);
    runs(&mill, &mut client, PUBLIC);
    // and out again
    must(&mut client, "DROP SCHEMA mill CASCADE");
    becomes(&mill, "fresh", &[(PUBLIC, "DISABLED")]);
    mill.eventually("nobody is in there", || schedulers(&mill) == 0);
}

#[test]
fn many_databases_come_up_and_go_down() {
    let count: usize = sized(8, 50);
    let names: Vec<String> = (0..count).map(|number| format!("d{number}")).collect();
    let cluster = cluster_with(&[]);
    let mut root = cluster.connect("postgres");
    must(&mut root, &format!("CREATE DATABASE d0 OWNER {OWNER}"));
    install(&cluster, "d0");
    for name in &names[1..] {
        must(&mut root, &format!("CREATE DATABASE {name} OWNER {OWNER} TEMPLATE d0"));
    }
    let mill = launcher(&cluster).key("max_workers", 2 * count + 4).start();
    let long = Duration::from_secs(sized(60, 180));
    mill.wait("all are served").within(long).until(|| {
        let status = mill.status().unwrap_or(Value::Null);
        let serving = |row: &&Value| row["phase"] == "running";
        status["databases"].as_array().is_some_and(|rows| rows.iter().filter(serving).count() == count)
    });
    runs(&mill, &mut enter(&cluster, &names[count - 1]), PUBLIC);
    for name in &names {
        must(&mut root, &format!("DROP DATABASE {name}"));
    }
    mill.wait("all are forgotten").within(long).until(|| schedulers(&mill) == 0);
    mill.wait("only the launcher holds a slot")
        .within(SOON)
        .until(|| mill.status().is_some_and(|status| status["slots"]["used"] == 1));
    assert!(!mill.log_contains("scheduler died"), "{}", mill.describe());
}

#[test]
fn one_slot_is_left_for_workers_and_who_waits_for_one_says_so() {
    let cluster = cluster_with(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        install(&cluster, name);
    }
    let mill = launcher(&cluster).key("max_workers", 4).start();
    mill.wait("two are served, and two wait").within(SOON).until(|| schedulers(&mill) == 2);
    let waiting = mill.wait("one says that it waits").within(SOON).until(|| {
        let status = mill.status()?;
        let rows = status["databases"].as_array()?.clone();
        let mut waiting = rows.into_iter().filter(|row| row["state"] == "ENABLED");
        waiting.find(|row| row["why"].as_str().is_some_and(|why| why.contains("max_workers")))
    });
    let name = waiting["data"].as_str().expect("a name").to_owned();
    assert!(!say(&mut enter(&cluster, &name), "start()"), "it cannot be started");
    let said = |line: &&String| line.contains("queue waits for a slot") && line.contains(&format!("\"{name} "));
    assert_eq!(mill.log().lines().iter().filter(said).count(), 1, "{}", mill.describe());
    // whoever is stopped makes room
    let served: Vec<&str> = ["a", "b", "c"].into_iter().filter(|one| *one != name).collect();
    runs(&mill, &mut enter(&cluster, served[0]), PUBLIC);
    assert!(say(&mut enter(&cluster, served[0]), "stop()"));
    becomes(&mill, &name, &[(PUBLIC, "STARTED")]);
    runs(&mill, &mut enter(&cluster, &name), PUBLIC);
}
