//! What users do to a database in which tasks run, without a word to us: drop it, rename it, copy it, move it, take
//! the catalog out, put a dump in. All of it succeeds, and what is served afterwards is what is there.

use std::time::Duration;

use postgres::Client;
use postgres::error::SqlState;
use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::messages::{row_state, say, scheduler, waits_for_lock};
use crate::queries::one;

/// The server itself waits five seconds for other sessions to go.
const SOON: Duration = Duration::from_secs(10);

/// A database with running and waiting tasks, in a cluster of its own: a launcher that may make databases is none of it.
fn busy(database: &Database) -> Supervisor<'_> {
    let mill = Supervisor::of(database).queue_key("sleep", 50).key("max_workers", 8).start();
    let insert = "INSERT INTO public.task (input, \"group\", repeat) \
                  SELECT 'SELECT pg_sleep(' || CASE WHEN i <= 3 THEN '60' ELSE '0.05' END || ')', 'g' || i % 9, '100 ms' \
                  FROM generate_series(1, 30) AS i";
    database.connect().batch_execute(insert).expect("insert");
    mill.eventually("tasks run", || mill.workers().len() >= 3);
    mill
}

/// Our sessions in a database.
fn sessions_in(cluster: &Cluster, name: &str) -> i64 {
    let mut client = cluster.connect("postgres");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname::text = $1";
    client.query_one(sql, &[&name]).expect("the query").get(0)
}

#[track_caller]
fn must(client: &mut Client, sql: &str) {
    client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

#[test]
fn a_busy_database_is_dropped_without_force_and_one_of_its_name_is_served_again() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = busy(&database);
    let name = database.name().to_owned();
    let mut root = cluster.connect("postgres");
    // our own look at it must not be what stands in the way
    database.leave();
    must(&mut root, &format!("DROP DATABASE {name}"));
    mill.wait("its row says so").within(SOON).until(|| {
        let row = mill.status()?["databases"][0].clone();
        let dropped = row["why"].as_str().is_some_and(|why| why.contains("dropped"));
        (row["state"] == "DISABLED" && dropped).then_some(())
    });
    assert_eq!(mill.children().len(), 0);
    must(&mut root, &format!("CREATE DATABASE {name} OWNER {}", quote_ident(database.owner())));
    mill.wait("it is served again").within(SOON).until(|| row_state(&mill, 0).as_deref() == Some("STARTED"));
    mill.eventually("the table is there", || {
        !database.tasks().is_empty() || database.query("TABLE public.task", &[]).is_some()
    });
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
}

#[test]
fn a_busy_database_is_renamed_and_served_under_its_new_name() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = busy(&database);
    let (name, mut root) = (database.name().to_owned(), cluster.connect("postgres"));
    database.leave();
    must(&mut root, &format!("ALTER DATABASE {name} RENAME TO renamed"));
    mill.wait("it is served under its new name").within(SOON).until(|| {
        let row = mill.status()?["databases"][0].clone();
        (row["data"] == "renamed" && row["state"] == "STARTED" && row["phase"] == "running").then_some(())
    });
    assert!(mill.schedulers()[0].title.contains(" renamed "), "{}", mill.schedulers()[0].title);
    let mut client = cluster.server().try_connect(database.owner(), "renamed").expect("connect");
    mill.wait("its tasks run").within(SOON).until(|| {
        let sql = "SELECT count(*) FROM public.task WHERE start > now() - interval '1 s'";
        client.query_one(sql, &[]).expect("the query").get::<_, i64>(0) > 0
    });
    assert!(say(&mut client, "restart()"), "messages find it under its new name");
    drop(client);
    must(&mut root, &format!("ALTER DATABASE renamed RENAME TO {name}"));
    mill.wait("and back").within(SOON).until(|| {
        let row = mill.status()?["databases"][0].clone();
        (row["data"] == name && row["phase"] == "running").then_some(())
    });
}

#[test]
fn a_busy_database_is_copied_and_moved() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = busy(&database);
    let (name, mut root) = (database.name().to_owned(), cluster.connect("postgres"));
    database.leave();
    must(&mut root, &format!("CREATE DATABASE copy TEMPLATE {name}"));
    mill.wait("it is served again").within(SOON).until(|| mill.workers().len() >= 2);
    let folder = cluster.home().join("space");
    must(&mut root, "SET allow_in_place_tablespaces = on");
    must(&mut root, "CREATE TABLESPACE space LOCATION ''");
    database.leave();
    must(&mut root, &format!("ALTER DATABASE {name} SET TABLESPACE space"));
    mill.wait("it is served again").within(SOON).until(|| mill.workers().len() >= 2);
    assert!(!folder.exists());
    assert_eq!(sessions_in(&cluster, "copy"), 0, "the copy is nobody's");
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    assert!(database.tasks().iter().all(|row| row["state"] != "FAIL"), "{}", mill.describe());
}

#[test]
fn a_drop_that_fails_lets_everything_go_on() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = busy(&database);
    let mut in_the_way = database.connect();
    database.leave();
    let error = cluster.connect("postgres").batch_execute(&format!("DROP DATABASE {}", database.name()));
    assert!(error.is_err(), "somebody else is connected");
    must(&mut in_the_way, "SELECT 1");
    mill.wait("tasks run again").within(SOON).until(|| mill.workers().len() >= 2);
    assert_eq!(row_state(&mill, 0).as_deref(), Some("STARTED"));
}

#[test]
fn an_uninstall_that_is_rolled_back_is_waited_for_and_changes_nothing() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let old = scheduler(&mill);
    let mut owner = database.connect();
    must(&mut owner, "BEGIN; DROP SCHEMA mill CASCADE");
    mill.wait("a new scheduler waits")
        .within(SOON)
        .until(|| mill.schedulers().iter().any(|one| one.pid != old) && waits_for_lock(&database, "relation"));
    // for the catalog alone: the row triggers of the task table are not of it, but nobody would take a row meanwhile
    steadily("it waits", Duration::from_millis(500), || waits_for_lock(&database, "relation"));
    must(&mut owner, "ROLLBACK");
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    assert_eq!(one::<String>(&database, "SELECT version FROM mill.meta"), env!("CARGO_PKG_VERSION"));
}

/// Takes the catalog out by this, and looks that the row stays away and nothing is made again.
#[track_caller]
fn uninstalls(sql: &str) {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    // It locks the catalog before the tables, a look at jobs the table before the catalog: the server may end either of them.
    let mut owner = database.connect();
    while let Err(error) = owner.batch_execute(sql) {
        assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "{sql}: {error:?}");
    }
    mill.wait("the queue is disabled").within(SOON).until(|| row_state(&mill, 0).as_deref() == Some("DISABLED"));
    let why = mill.status().expect("status")["databases"][0]["why"].clone();
    assert_eq!(why, "the catalog mill was uninstalled");
    steadily("it is not made again", Duration::from_millis(500), || {
        one::<i64>(&database, "SELECT count(*) FROM pg_namespace WHERE nspname = 'mill'") == 0
    });
    assert_eq!(mill.children().len(), 0);
    // the operator's word makes it anew
    assert_eq!(mill.command(&["start", database.name()]).status.code(), Some(0));
    mill.eventually("it is served again", || database.query("SELECT FROM mill.meta", &[]).is_some());
    mill.eventually("the table too", || database.query("SELECT FROM public.task", &[]).is_some());
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
}

#[test]
fn an_uninstall_that_is_committed_disables_the_row() {
    uninstalls("DROP SCHEMA mill CASCADE");
}

#[test]
fn drop_owned_is_an_uninstall() {
    uninstalls("DROP OWNED BY CURRENT_USER");
}

#[test]
fn a_restore_finds_no_scheduler_and_new_tables_are_known_afterwards() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).key("probe", "200 ms").start();
    let mut owner = database.connect();
    assert!(say(&mut owner, "pre_restore()"));
    assert_eq!(mill.schedulers().len(), 0);
    // as a restore with --clean does
    must(
        &mut owner,
        "CREATE TABLE public.old AS TABLE public.task; ALTER TABLE public.task RENAME TO gone; \
         CREATE TABLE public.task (LIKE public.gone INCLUDING ALL); \
         ALTER SEQUENCE public.task_id_seq OWNED BY public.task.id; DROP TABLE public.gone CASCADE",
    );
    // not even the next start of the launcher disturbs it
    drop(mill);
    let mill = Supervisor::of(&database).queue_key("sleep", 50).key("probe", "200 ms").start();
    mill.eventually("it stays away", || row_state(&mill, 0).as_deref() == Some("DISABLED"));
    steadily("nobody serves it", Duration::from_millis(500), || {
        one::<i64>(
            &database,
            "SELECT count(*) FROM pg_locks WHERE classid = 1835597826 AND locktype = 'advisory' \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        ) == 0
    });
    must(&mut owner, "BEGIN");
    assert!(say(&mut owner, "post_restore()"));
    must(&mut owner, "COMMIT");
    let known: bool = one(&database, "SELECT relid = 'public.task'::regclass FROM mill.queue");
    assert!(known, "the registered table is the restored one");
    mill.eventually("it is served", || row_state(&mill, 0).as_deref() == Some("STARTED"));
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
}

#[test]
fn rows_of_other_servers_are_not_touched_by_what_happens_on_this_one() {
    // Two servers have the same OIDs for what was made in the same order.
    let (here, there) = (Cluster::start(), Cluster::start());
    let (one, other) = (here.database(), there.database());
    let connect = there.server().conninfo(other.owner());
    let mill = Supervisor::of(&one)
        .queue(json!({"data": other.name(), "user": other.owner(), "connect": connect, "table": "elsewhere"}))
        .queue_key("sleep", 50)
        .start();
    let title = "public.elsewhere";
    let pid = || mill.schedulers().into_iter().find(|found| found.title.ends_with(title)).map(|found| found.pid);
    let before = pid().expect("it runs");
    one.leave();
    must(&mut here.connect("postgres"), &format!("DROP DATABASE {}", one.name()));
    mill.wait("the dropped one is known").within(SOON).until(|| row_state(&mill, 0).as_deref() == Some("DISABLED"));
    assert_eq!(pid(), Some(before));
}
