//! A queue's table that is renamed, swapped, dropped or made anew while it is served: what the scheduler serves is always the
//! table that has the name, as at a start, and nothing is left in the one that had it.

use std::time::Duration;

use postgres::Client;
use serde_json::json;
use shared::db::statement::{MAKE_STATE, Queue};
use tests::{Cluster, Database, Supervisor, steadily};

use crate::ledger;
use crate::queries::{one, running};

const SOON: Duration = Duration::from_secs(20);

#[track_caller]
fn must(client: &mut Client, sql: &str) {
    client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn launch(database: &Database) -> Supervisor<'_> {
    Supervisor::of(database).queue_key("sleep", 100).arg("--log-level").arg("debug").start()
}

/// A second task table, with columns and indexes as ours and nothing else of it.
fn make_other(client: &mut Client) {
    must(client, "CREATE TABLE public.task2 (LIKE public.task INCLUDING ALL)");
}

const SWAP: &str = "BEGIN; ALTER TABLE public.task RENAME TO task_was; ALTER TABLE public.task2 RENAME TO task; COMMIT";
const SWAP_BACK: &str =
    "BEGIN; ALTER TABLE public.task RENAME TO task2; ALTER TABLE public.task_was RENAME TO task; COMMIT";

/// Lock, wake-up triggers, triggers of jobs and the catalog: all is of the table that has the name now.
fn is_taken_over(database: &Database) -> bool {
    let sql = "SELECT (SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1835597826 \
                        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                        AND l.objid = 'public.task'::regclass::oid), \
                      (SELECT count(*) FROM pg_trigger g WHERE g.tgrelid = 'public.task'::regclass AND g.tgname LIKE 'mill\\_%'), \
                      (SELECT count(*) FROM mill.queue q WHERE q.relid = 'public.task'::regclass::oid), \
                      (SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1835597826 \
                        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    database.query(sql, &[]).is_some_and(|rows| {
        let row: [i64; 4] = [0, 1, 2, 3].map(|column| rows[0].get(column));
        row == [1, 10, 1, 1]
    })
}

#[track_caller]
fn taken_over(mill: &Supervisor<'_>, database: &Database) {
    mill.wait("the table of that name is taken over").within(SOON).until(|| is_taken_over(database));
}

#[test]
fn a_table_swapped_by_rename_is_taken_over_and_what_ran_is_planned_again_in_the_former_one() {
    let database = Cluster::shared().database();
    let mill = launch(&database);
    let mut owner = database.connect();
    make_other(&mut owner);
    ledger::open(&database);
    let (id, backend) = ledger::begin(&mill, &database);
    let live = database.insert_with("SELECT pg_sleep(600)", "group = 'live', live = '1 hour'");
    running(&mill, &database, live);
    must(&mut owner, SWAP);
    taken_over(&mill, &database);
    mill.eventually("the tasks are planned again where they belong", || {
        let sql = "SELECT count(*) FROM public.task_was WHERE id IN ($1, $2) AND state = 'PLAN' AND pid IS NULL";
        database.query(sql, &[&id, &live]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 2)
    });
    mill.eventually("its server process is gone", || !ledger::is_connected(&database, backend));
    // rows of the new one run, and wake the scheduler
    let next = database.insert("SELECT 'here'");
    assert_eq!(mill.finished(&database, next)["output"], "here");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task_was WHERE state <> 'PLAN'"), 0);
    // and back again: what waited there runs
    must(&mut owner, "UPDATE public.task_was SET input = 'SELECT 1' WHERE input LIKE '%600%'");
    must(&mut owner, SWAP_BACK);
    taken_over(&mill, &database);
    ledger::ended(&mill, &database, id, 2);
    assert_eq!(mill.finished(&database, live)["state"], "DONE");
}

#[test]
fn runs_of_jobs_that_had_begun_in_a_swapped_table_are_closed_and_the_job_goes_on_in_the_new_one() {
    let database = Cluster::shared().database();
    let mill = launch(&database);
    let mut owner = database.connect();
    make_other(&mut owner);
    must(
        &mut owner,
        "CREATE TABLE ran (n int); \
         INSERT INTO mill.job (name, input, schedule_interval, crash_wait, retry_period) \
         VALUES ('often', 'BEGIN; INSERT INTO ran VALUES (1); COMMIT; SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM ran) = 1 THEN 600 ELSE 0 END)', '1 s', '0', '10 ms')",
    );
    mill.eventually("its first run has begun", || {
        database
            .query("SELECT FROM public.task WHERE job IS NOT NULL AND state = 'WORK'", &[])
            .is_some_and(|rows| !rows.is_empty())
    });
    must(&mut owner, SWAP);
    taken_over(&mill, &database);
    mill.wait("the job goes on in the new table").within(SOON).until(|| {
        let sql = "SELECT count(*) FROM public.task WHERE job IS NOT NULL AND state = 'DONE'";
        database.query(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) > 1)
    });
    let open = "SELECT count(*) FROM public.task_was WHERE state IN ('TAKE', 'WORK')";
    assert_eq!(one::<i64>(&database, open), 0);
}

#[test]
fn a_table_that_is_renamed_away_is_named_and_no_empty_one_is_made_in_its_place() {
    let database = Cluster::shared().database();
    let mill = launch(&database);
    let mut owner = database.connect();
    let id = database.insert("SELECT pg_sleep(600)");
    running(&mill, &database, id);
    must(&mut owner, "ALTER TABLE public.task RENAME TO task_was");
    let why = mill.eventually("it says so", || {
        let status = mill.status()?;
        let why = status["databases"][0]["why"].as_str()?.to_owned();
        why.contains("was renamed to").then_some(why)
    });
    assert!(why.contains(r#""public"."task_was""#) && why.contains("restart the queue"), "{why}");
    mill.eventually("what ran is planned again", || {
        let sql = "SELECT count(*) FROM public.task_was WHERE state = 'PLAN' AND pid IS NULL";
        database.query(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 1)
    });
    steadily("none is made", Duration::from_millis(700), || {
        one::<Option<String>>(&database, "SELECT to_regclass('public.task')::text").is_none()
    });
    must(&mut owner, "UPDATE public.task_was SET input = 'SELECT 1'; ALTER TABLE public.task_was RENAME TO task");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    // a restart says that an empty one is wanted
    must(&mut owner, "ALTER TABLE public.task RENAME TO task_was");
    mill.eventually("it says so", || {
        let status = mill.status()?;
        status["databases"][0]["why"].as_str()?.contains("was renamed to").then_some(())
    });
    must(&mut owner, "SELECT mill.restart()");
    let next = mill.wait("one is made").within(SOON).until(|| {
        database.query("SELECT FROM public.task", &[])?;
        Some(database.insert("SELECT 'new'"))
    });
    assert_eq!(mill.finished(&database, next)["output"], "new");
}

#[test]
fn a_former_table_that_was_given_to_a_stranger_is_not_touched() {
    let database = Cluster::shared().database();
    let mill = launch(&database);
    make_other(&mut database.connect());
    let id = database.insert("SELECT pg_sleep(600)");
    let backend = running(&mill, &database, id);
    let stranger = format!("{}_stranger", database.name());
    database.run(&format!(
        "CREATE ROLE {stranger}; CREATE TABLE public.trap (who text); GRANT ALL ON public.trap TO PUBLIC; \
         CREATE FUNCTION public.spring() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN \
             INSERT INTO public.trap VALUES (current_user); RETURN NULL; END$f$; \
         ALTER FUNCTION public.spring() OWNER TO {stranger}; \
         BEGIN; ALTER TABLE public.task RENAME TO task_was; ALTER TABLE public.task2 RENAME TO task; \
         ALTER TABLE public.task_was OWNER TO {stranger}; GRANT ALL ON public.task_was TO PUBLIC; GRANT ALL ON SEQUENCE public.task_id_seq TO PUBLIC; \
         CREATE TRIGGER spring BEFORE UPDATE ON public.task_was FOR EACH STATEMENT EXECUTE FUNCTION public.spring(); COMMIT"
    ));
    taken_over(&mill, &database);
    mill.eventually("its server process is gone", || !ledger::is_connected(&database, backend));
    let next = database.insert("SELECT 'here'");
    assert_eq!(mill.finished(&database, next)["output"], "here");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.trap"), 0, "code of a stranger has run");
    assert!(mill.log_contains("cannot settle the tasks of the former table"), "{}", mill.describe());
    database
        .run(&format!("DROP TABLE public.task_was CASCADE; DROP OWNED BY {stranger} CASCADE; DROP ROLE {stranger}"));
}

#[test]
fn a_schema_that_is_swapped_by_rename_is_taken_over() {
    let database = Cluster::shared().database();
    let mut owner = database.connect();
    must(&mut owner, "CREATE SCHEMA app");
    let mill = Supervisor::of(&database).queue_key("schema", "app").queue_key("sleep", 100).start();
    let run = |text: &str| {
        let id: i64 = database
            .connect()
            .query_one(
                "INSERT INTO app.task (input, header) VALUES ($1, false) RETURNING id",
                &[&format!("SELECT '{text}'")],
            )
            .expect("insert")
            .get(0);
        mill.wait("it is done").within(SOON).until(|| {
            let rows = database.query("SELECT output FROM app.task WHERE id = $1 AND state = 'DONE'", &[&id])?;
            rows.first().map(|row| row.get::<_, String>(0))
        })
    };
    assert_eq!(run("old"), "old");
    let other = Queue { schema: "app2".into(), table: "task".into() };
    let state = other.fill(MAKE_STATE);
    must(&mut owner, &format!("CREATE SCHEMA app2; {state}; {}", shared::db::catalog::table_text(&other)));
    must(&mut owner, "BEGIN; ALTER SCHEMA app RENAME TO app_was; ALTER SCHEMA app2 RENAME TO app; COMMIT");
    assert_eq!(run("new"), "new");
    let locked = "SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1835597826 \
                    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.objid = 'app.task'::regclass::oid";
    mill.wait("its lock is held").within(SOON).until(|| one::<i64>(&database, locked) == 1);
    assert_eq!(run("again"), "again");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM app_was.task"), 1);
}

#[test]
fn a_table_that_another_session_drops_and_makes_anew_is_taken_over() {
    let database = Cluster::shared().database();
    let mill = launch(&database);
    let mut owner = database.connect();
    let id = database.insert("SELECT pg_sleep(600)");
    let backend = running(&mill, &database, id);
    must(
        &mut owner,
        "BEGIN; CREATE TABLE public.task2 (LIKE public.task INCLUDING ALL); ALTER SEQUENCE public.task_id_seq OWNED BY public.task2.id; \
         DROP TABLE public.task CASCADE; ALTER TABLE public.task2 RENAME TO task; COMMIT",
    );
    taken_over(&mill, &database);
    mill.eventually("its server process is gone", || !ledger::is_connected(&database, backend));
    let next = database.insert("SELECT 'here'");
    assert_eq!(mill.finished(&database, next)["output"], "here");
    assert_eq!(database.tasks().len(), 1);
}

#[test]
fn a_queue_found_by_a_star_whose_table_goes_while_its_scheduler_starts_is_not_made_anew() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mut owner = database.connect();
    must(&mut owner, &shared::db::catalog::install_text(env!("CARGO_PKG_VERSION")));
    let mill = Supervisor::bare()
        .key("connect", cluster.server().conninfo(database.login()))
        .key("probe", "200 ms")
        .key("poll", "200 ms")
        .queue(json!({"data": "*", "sleep": 100}))
        .start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    // a scheduler that starts waits for the end of this transaction
    must(&mut owner, "BEGIN");
    assert!(owner.query_one("SELECT mill.restart()", &[]).expect("restart").get::<_, bool>(0));
    must(&mut owner, "DROP TABLE public.task CASCADE; COMMIT");
    mill.wait("its scheduler has left").within(SOON).until(|| mill.schedulers().is_empty());
    steadily("none is made", Duration::from_secs(1), || {
        one::<Option<String>>(&database, "SELECT to_regclass('public.task')::text").is_none()
    });
}
