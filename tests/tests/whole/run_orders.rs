//! Orders: the row of a run is in the queue only while the run may start, and what a person says of a run that has not begun holds
//! at once.

use std::time::Duration;

use tests::{Cluster, Database, Supervisor, steadily};

use crate::job_fixture::{self, insert, runs, status};
use crate::queries::{all, one};
use crate::trap_stage::{CatalogOf, Stage};

/// A queue whose only slot is taken by a task that sleeps.
fn busy<'d>(database: &'d Database) -> (Supervisor<'d>, i64) {
    // one slot is the launcher's, and one the scheduler's
    let mill = Supervisor::of(database).key("max_workers", 3).start();
    job_fixture::open(&mill, database);
    let sleeper = database.insert("SELECT pg_sleep(600)");
    crate::queries::running(&mill, database, sleeper);
    (mill, sleeper)
}

/// Orders a run, and waits until its row waits in the queue.
fn put(mill: &Supervisor<'_>, database: &Database, job: i32) -> i64 {
    let run: i64 = database.connect().query_one(&format!("SELECT mill.run_job({job})"), &[]).expect("run_job").get(0);
    mill.eventually("its row waits in the queue", || rows(database, run) == ["PLAN"]);
    run
}

fn rows(database: &Database, run: i64) -> Vec<String> {
    all(database, &format!("SELECT state::text FROM public.task WHERE run = {run}"))
}

fn run_state(database: &Database, run: i64) -> String {
    let sql = format!(
        "SELECT concat_ws(' ', CASE WHEN ordered THEN 'ordered' ELSE 'put' END, CASE WHEN held THEN 'held' END, outcome) \
         FROM mill_private.run WHERE id = {run}"
    );
    one(database, &sql)
}

#[test]
fn a_run_that_is_paused_while_it_waits_for_a_slot_leaves_the_queue_and_comes_back_once() {
    let database = Cluster::shared().database();
    database.run("CREATE TABLE trace (n int); GRANT ALL ON trace TO PUBLIC");
    let (mill, sleeper) = busy(&database);
    let job = insert(&database, "paused", "input", "'INSERT INTO public.trace VALUES (1)'");
    let run = put(&mill, &database, job);
    database.run(&format!("UPDATE mill.job SET scheduled = false WHERE id = {job}"));
    mill.eventually("its row leaves the queue", || rows(&database, run).is_empty());
    assert_eq!(run_state(&database, run), "ordered held");
    let why: String = one(&database, "SELECT mill.why('paused')");
    assert!(why.contains("the job is paused"), "{why}");
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {sleeper}"));
    let free = database.insert("SELECT 1");
    mill.finished(&database, free);
    steadily("a held run does not start", Duration::from_millis(500), || run_state(&database, run) == "ordered held");
    database.run(&format!("UPDATE mill.job SET scheduled = true WHERE id = {job}"));
    mill.eventually("it has run", || runs(&database, job) == ["succeeded"]);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM trace"), 1);
    assert_eq!(rows(&database, run), ["DONE"]);
}

#[test]
fn a_run_that_is_cancelled_or_skipped_while_it_waits_ends_at_once_and_its_row_leaves_the_queue() {
    let database = Cluster::shared().database();
    let (mill, _) = busy(&database);
    let cancelled = insert(&database, "cancelled", "input", "'SELECT 1'");
    let skipped = insert(&database, "skipped", "input", "'SELECT 1'");
    for name in ["alarm", "next"] {
        insert(&database, name, "input", "NULL");
    }
    database.run("INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('alarm', 'cancelled', 'failure'), ('next', 'skipped', 'success')");
    let mut client = database.connect();
    let mut order = |name: &str| -> i64 {
        let sql = format!("SELECT mill.run('{name}', '2026-01-01Z')");
        let run = client.query_one(&sql, &[]).expect("run").get(0);
        mill.eventually("its row waits in the queue", || rows(&database, run) == ["PLAN"]);
        run
    };
    let (first, second) = (order("cancelled"), order("skipped"));
    let said: String = one(&database, "SELECT mill.cancel('cancelled')");
    assert_eq!(said, "1 run cancelled");
    database.run("SELECT mill.skip('skipped', '2026-01-01Z')");
    assert_eq!(
        (runs(&database, cancelled), runs(&database, skipped)),
        (vec!["cancelled".into()], vec!["skipped".into()])
    );
    for run in [first, second] {
        mill.eventually("its row leaves the queue", || rows(&database, run).is_empty());
    }
    mill.eventually("what follows has run", || {
        one::<i64>(&database, "SELECT count(*) FROM mill.run WHERE name IN ('alarm', 'next') AND state = 'succeeded'")
            == 2
    });
    crate::graphs::balanced(&database);
}

#[test]
fn a_row_that_the_queue_refuses_pauses_its_job_alone() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    database.run("ALTER TABLE public.task ADD CONSTRAINT lucky CHECK (input <> 'SELECT 13')");
    let bad = insert(&database, "bad", "input", "'SELECT 13'");
    let good = insert(&database, "good", "input", "'SELECT 7'");
    database.run(&format!("SELECT mill.run_job({bad}), mill.run_job({good}), mill.run_job({good})"));
    mill.eventually("the others have run", || runs(&database, good) == ["succeeded", "succeeded"]);
    mill.eventually("its job is paused", || status(&database, bad).0 == "Paused");
    let why = status(&database, bad).1;
    assert!(why.contains("cannot be started") && why.contains("lucky"), "{why}");
    database.run(&format!(
        "ALTER TABLE public.task DROP CONSTRAINT lucky; UPDATE mill.job SET scheduled = true WHERE id = {bad}"
    ));
    mill.eventually("it has run after all", || runs(&database, bad) == ["succeeded"]);
}

#[test]
fn runs_and_rows_that_disagree_are_settled_by_the_next_session() {
    let database = Cluster::shared().database();
    let (mill, _) = busy(&database);
    let job = insert(&database, "lost", "input", "'SELECT 1'");
    put(&mill, &database, job);
    drop(mill);
    // no row trigger sees this, and nothing knows this run
    database.run("TRUNCATE public.task");
    database.run(&format!("INSERT INTO public.task (input, job, run, at) VALUES ('SELECT 1', {job}, 4711, now())"));
    let mill = Supervisor::of(&database).start();
    mill.eventually("the run without a row is cancelled", || runs(&database, job) == ["cancelled"]);
    mill.eventually("the row without a run is closed", || rows(&database, 4711) == ["FAIL"]);
    let error: String = one(&database, "SELECT error FROM public.task WHERE run = 4711");
    assert!(error.contains("the catalog does not know the run"), "{error}");
    mill.eventually("that is logged", || mill.log_contains("runs and rows differed and were settled"));
    put_and_done(&mill, &database, job);
}

/// A further run of the job goes its way.
fn put_and_done(mill: &Supervisor<'_>, database: &Database, job: i32) {
    database.run(&format!("SELECT mill.run_job({job})"));
    mill.eventually("the next run succeeds", || runs(database, job).last().is_some_and(|state| state == "succeeded"));
}

#[test]
fn why_names_the_missing_keeper_of_timers_and_tokens() {
    let stage = Stage::new(CatalogOf::Superuser);
    let app = stage.database.owner().to_owned();
    stage.database.run(&format!("SELECT mill.admit('{app}', keeps => false)"));
    let mill = stage.serve();
    stage.say(
        &app,
        "INSERT INTO mill.job (name, input) VALUES ('first', 'SELECT 1'), ('second', NULL); \
         INSERT INTO mill.edge (job, from_job) VALUES ('second', 'first'); SELECT mill.run('first', '2026-01-01Z')",
    );
    mill.eventually("the first has run", || {
        one::<bool>(
            &stage.database,
            "SELECT EXISTS (SELECT FROM mill.run WHERE name = 'first' AND state = 'succeeded')",
        )
    });
    let mut client = stage.session(&app);
    let mut why = || -> String { client.query_one("SELECT mill.why('second')", &[]).expect("why").get(0) };
    assert!(why().contains("keeps => true"), "{}", why());
    stage.database.run(&format!("SELECT mill.admit('{app}', keeps => true)"));
    drop(mill);
    let mill = stage.serve();
    mill.eventually("the second has run", || {
        one::<bool>(
            &stage.database,
            "SELECT EXISTS (SELECT FROM mill.run WHERE name = 'second' AND state = 'succeeded')",
        )
    });
}
