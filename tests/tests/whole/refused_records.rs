//! Ends that the server refuses: which of them wait for the server, which are recorded in another form, and that no input
//! runs again for it. A trigger of the table's owner refuses with whatever SQLSTATE a test wants.

use std::time::Duration;

use tests::{Cluster, Database, Supervisor, eventually, steadily};

use crate::queries::{linger, one, one_with, state};

/// How long it may take until everything is recorded once the server writes again.
const SOON: Duration = Duration::from_secs(10);

/// Refuses ends while there is a code, and counts what has run outside of any transaction.
fn prepare(database: &Database, mill: &Supervisor<'_>) {
    mill.eventually("there is a table", || database.query("SELECT FROM public.task", &[]).is_some());
    database.run(
        "CREATE TABLE public.refusal (code text); CREATE SEQUENCE public.ran; GRANT ALL ON public.refusal, public.ran TO PUBLIC; \
         CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE c text := (SELECT code FROM public.refusal); \
         BEGIN IF c IS NOT NULL THEN RAISE EXCEPTION 'refused for the test' USING ERRCODE = c; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER refuse BEFORE UPDATE ON public.task FOR EACH ROW \
         WHEN (OLD.state = 'WORK' AND NEW.state IN ('DONE', 'FAIL')) EXECUTE FUNCTION public.refuse()",
    );
}

/// Tasks in each way of recording: by the scheduler, by a live worker alone and in batches, in one transaction, with a
/// repetition that is counted out.
fn load(database: &Database) -> i64 {
    for (columns, values) in [
        ("\"group\"", "'pooled ' || n"),
        ("\"group\", live", "'live', interval '1 minute'"),
        ("\"group\", atomic", "'atomic ' || n, true"),
        ("\"group\", count", "'counted', 5"),
    ] {
        database.run(&format!(
            "INSERT INTO public.task (input, {columns}) SELECT 'SELECT nextval(''public.ran''), repeat(''x'', 3000)', {values} \
             FROM generate_series(1, 3) AS n"
        ));
    }
    12
}

fn ran(database: &Database) -> i64 {
    one(database, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.ran")
}

/// The outage lasts for a while, then everything is recorded, and nothing has run twice but what was rolled back.
fn outage(code: &str) {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    prepare(&database, &mill);
    database.run(&format!("INSERT INTO public.refusal VALUES ('{code}')"));
    let count = load(&database);
    // and the run of a job
    let job = "INSERT INTO mill.job (name, input) VALUES ('once', 'SELECT nextval(''public.ran''), repeat(''x'', 3000)'); \
               SELECT mill.run_job(id) FROM mill.job";
    mill.eventually("the queue is registered", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1)
    });
    database.connect().batch_execute(job).expect("a job");
    mill.eventually("the log tells that the server does not write", || mill.log_contains("the server does not write"));
    mill.eventually("status tells it too", || {
        mill.status().is_some_and(|status| status.to_string().contains("the server does not write"))
    });
    let ended = "SELECT count(*) FROM public.task WHERE state IN ('DONE', 'FAIL', 'STOP')";
    steadily("nothing ends meanwhile", Duration::from_secs(1), || one::<i64>(&database, ended) == 0);
    let mark = mill.log().mark();
    database.run("DELETE FROM public.refusal");
    let done = "SELECT count(*) FROM public.task WHERE state = 'DONE' AND length(output) > 3000 AND error IS NULL";
    mill.wait("all ends are recorded").within(SOON).until(|| one::<i64>(&database, done) == count + 1);
    let runs: Vec<String> = crate::queries::all(&database, "SELECT state FROM mill.run");
    assert_eq!(runs, ["succeeded"], "{code}: {}", mill.describe());
    // an atomic task that could not be committed has had no effect, and runs again
    let plain = "SELECT count(*) FROM public.task WHERE NOT atomic AND attempt > 1";
    assert_eq!(one::<i64>(&database, plain), 0, "{code}: {}", mill.describe());
    assert!(ran(&database) > count);
    let lines = mill.log().since(mark);
    let told = lines.iter().filter(|line| line.contains("queue waits")).count();
    assert!(told <= 1, "{code}: {lines:#?}");
}

#[test]
fn results_wait_for_a_server_without_disk_space() {
    outage("53100");
}

#[test]
fn results_wait_for_a_server_without_memory() {
    outage("53200");
}

#[test]
fn results_wait_for_a_server_without_connections() {
    outage("53300");
}

#[test]
fn results_wait_for_a_server_that_reads_and_writes_badly() {
    outage("58030");
}

#[test]
fn results_wait_for_a_server_that_is_read_only() {
    outage("25006");
}

/// What such a task has done is undone with its record; it may run as often as that without any space.
#[test]
fn atomic_tasks_that_cannot_be_committed_are_tried_ever_more_seldom_and_little_is_said() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    prepare(&database, &mill);
    database.run("INSERT INTO public.refusal VALUES ('53100')");
    let mark = mill.log().mark();
    database.run("INSERT INTO public.task (input, \"group\", atomic) SELECT 'SELECT 1', 'g' || n, true FROM generate_series(1, 3) AS n");
    mill.eventually("it is said", || mill.log().since(mark).iter().any(|line| line.contains("cannot commit it")));
    steadily("they wait", Duration::from_secs(6), || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state NOT IN ('PLAN', 'TAKE', 'WORK')") == 0
    });
    let attempts: i32 = one(&database, "SELECT max(attempt) FROM public.task");
    assert!((3..=7).contains(&attempts), "{attempts} attempts: {}", mill.describe());
    let lines = mill.log().since(mark);
    assert!(lines.len() <= 12, "{lines:#?}");
    database.run("DELETE FROM public.refusal");
    let done = "SELECT count(*) FROM public.task WHERE state = 'DONE'";
    mill.wait("all are done").within(SOON).until(|| one::<i64>(&database, done) == 3);
}

/// What ran on the server before is there after its restart, and so are the rows.
#[test]
fn results_that_wait_are_kept_through_a_restart_of_the_server() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    prepare(&database, &mill);
    database.run("INSERT INTO public.refusal VALUES ('53100')");
    let count = load(&database);
    let begun = "SELECT count(*) FROM public.task WHERE NOT atomic AND attempt > 0";
    mill.eventually("the log tells that the server does not write", || mill.log_contains("the server does not write"));
    mill.eventually("a task of each group has run", || one::<i64>(&database, begun) >= 5);
    linger(Duration::from_secs(1), "the inputs end, and their results wait");
    let kept = "SELECT array_agg(id) FROM public.task WHERE NOT atomic AND state = 'WORK'";
    let kept: Vec<i64> = one(&database, kept);
    assert!(kept.len() >= 5, "{}", mill.describe());
    cluster.restart(tests::ShutdownMode::Fast);
    eventually("it answers", || database.query("DELETE FROM public.refusal RETURNING code", &[]));
    let done = "SELECT count(*) FROM public.task WHERE state = 'DONE' AND length(output) > 3000 AND error IS NULL";
    mill.wait("all ends are recorded").within(Duration::from_secs(30)).until(|| one::<i64>(&database, done) == count);
    let again: Vec<(i64, String)> = database
        .query("SELECT id, \"group\" FROM public.task WHERE id = ANY ($1) AND attempt > 1", &[&kept])
        .expect("the query")
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert!(again.is_empty(), "these have run twice: {again:?}\n{}", mill.describe());
}

#[test]
fn what_the_owners_rules_refuse_is_recorded_as_a_failure_and_does_not_run_again() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    prepare(&database, &mill);
    database.run(
        "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN IF NEW.state = 'DONE' THEN RAISE EXCEPTION 'no DONE in this table'; END IF; RETURN NEW; END $$",
    );
    let count = load(&database);
    let failed = "SELECT count(*) FROM public.task WHERE state = 'FAIL' AND error LIKE '%no DONE in this table%'";
    mill.wait("all are failures").within(Duration::from_secs(20)).until(|| one::<i64>(&database, failed) == count);
    assert_eq!(one::<i64>(&database, "SELECT max(attempt)::bigint FROM public.task"), 1, "{}", mill.describe());
    assert!(!mill.log_contains("does not write"), "one table's rule is no outage");
}

#[test]
fn a_missing_right_is_waited_for_and_the_whole_result_is_recorded_then() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    prepare(&database, &mill);
    database.run("INSERT INTO public.refusal VALUES ('42501')");
    let id = database.insert_with("SELECT nextval('public.ran')", "live = '1 minute'");
    eventually("it has run", || ran(&database) == 1);
    steadily("it is WORK", Duration::from_secs(1), || state(&database, id) == "WORK");
    database.run("DELETE FROM public.refusal");
    mill.finished(&database, id);
    let (runs, error): (i64, Option<String>) =
        (ran(&database), one_with(&database, "SELECT error FROM public.task WHERE id = $1", &[&id]));
    assert_eq!((runs, state(&database, id).as_str(), error), (1, "DONE", None), "{}", mill.describe());
}

/// Each input writes down what it finds set in its session.
const SET: &str =
    "INSERT INTO public.found SELECT current_setting(''pg_task.id'', true), current_setting(''statement_timeout'')";

#[test]
fn an_input_never_runs_on_a_session_whose_set_up_was_cancelled() {
    let database = Cluster::shared().database();
    database.run("CREATE TABLE public.found (id text, timeout text); GRANT ALL ON public.found TO PUBLIC");
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    let warm = database.insert("SELECT 1");
    mill.finished(&database, warm);
    let count = tests::sized(600, 6000);
    database.run(&format!(
        "INSERT INTO public.task (input, \"group\", timeout) SELECT '{SET}', 'g' || n % 6, '77 s' FROM generate_series(1, {count}) AS n"
    ));
    let cancels = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                    WHERE datname = current_database() AND application_name LIKE 'pg_task %' AND pid <> pg_backend_pid()";
    let mut canceller = database.connect_superuser();
    let open = "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')";
    mill.wait("all have ended").within(Duration::from_secs(60)).until(|| {
        for _ in 0..50 {
            let _ = canceller.query(cancels, &[]);
        }
        one::<i64>(&database, open) == 0
    });
    let unset = "SELECT count(*) FROM public.found WHERE timeout <> '77s' OR id IS NULL OR id = ''";
    assert_eq!(one::<i64>(&database, unset), 0, "{}", mill.describe());
    let cancelled = "SELECT count(*) FROM public.task WHERE state = 'FAIL'";
    println!("{} of {count} were cancelled", one::<i64>(&database, cancelled));
}
