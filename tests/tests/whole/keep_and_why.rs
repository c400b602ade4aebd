//! Old tasks go when their time is over, `status` tells the size of a queue, and `mill.why` tells why a task waits.

use std::time::Duration;

use tests::database::quote_ident;
use tests::{Cluster, Database, Signal, Supervisor, sized};

use crate::queries::{one, running};

/// What the queue's user is told about a task.
#[track_caller]
fn why(database: &Database, id: i64) -> String {
    database.connect().query_one("SELECT mill.why($1::bigint)", &[&id]).expect("mill.why answers").get(0)
}

#[track_caller]
fn says(mill: &Supervisor<'_>, database: &Database, id: i64, words: &str) {
    mill.eventually(&format!("why says: {words}"), || why(database, id).contains(words));
}

#[test]
fn finished_tasks_older_than_keep_are_deleted_in_small_batches() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let count: i64 = sized(2500, 20_000);
    database.run(&format!(
        "INSERT INTO public.task (input, state, plan, start, stop) SELECT 'SELECT 1', (ARRAY['DONE', 'FAIL', 'GONE'])[i % 3 + 1]::public.state, \
         now() - interval '3 hours', now() - interval '2 hours', now() - interval '2 hours' FROM generate_series(1, {count}) AS i; \
         INSERT INTO public.task (input, state, stop, data) VALUES ('SELECT 1', 'DONE', now(), 'young'), \
         ('SELECT 1', 'STOP', NULL, 'stopped'); \
         INSERT INTO public.task (input, plan, data) VALUES ('SELECT 1', now() + interval '1 day', 'waiting'); \
         INSERT INTO public.task (input, state, stop, data) VALUES ('SELECT 1', 'STOP', now() - interval '1 year', 'stopped')"
    ));
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(10));
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task"), count + 4, "without keep nothing goes");
    drop(mill);

    let mill = Supervisor::of(&database).queue_key("keep", "1 hour").queue_key("sleep", 100).start();
    mill.wait("the old ones are gone")
        .within(Duration::from_secs(30))
        .until(|| one::<i64>(&database, "SELECT count(*) FROM public.task WHERE data IS NULL") == 0);
    let left: Vec<String> = crate::queries::all(&database, "SELECT data FROM public.task ORDER BY id");
    assert_eq!(left, ["young", "stopped", "waiting", "stopped"]);
    mill.eventually("the log tells of all batches of a thousand", || {
        mill.log().lines().iter().filter(|line| line.contains("old tasks deleted")).count() >= 3
    });
}

#[test]
fn status_shows_rows_and_bytes_of_every_queue() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run("INSERT INTO public.task (input, state) SELECT 'SELECT 1', 'STOP' FROM generate_series(1, 123)");
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(10));
    drop(mill);
    let mill = Supervisor::of(&database).start();
    let row = mill.eventually("the queue is measured", || {
        let row = mill.status()?["databases"][0].clone();
        (row["rows"] == 123).then_some(row)
    });
    let bytes: i64 = one(&database, "SELECT pg_total_relation_size('public.task')");
    assert_eq!(row["bytes"], bytes);
    let text = String::from_utf8_lossy(&mill.command(&["status"]).stdout).into_owned();
    assert!(text.contains("rows 123") && text.contains(&format!("bytes {bytes}")), "{text}");
}

#[test]
fn why_tells_what_a_task_waits_for_and_what_became_of_it() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("run", 3).start();
    let planned = database.insert_with("SELECT 1", "plan = now() + interval '1 day'");
    says(&mill, &database, planned, "planned for");
    let done = database.insert_with("SELECT 1", "group = 'done'");
    says(&mill, &database, done, "finished at");
    assert!(why(&database, done).contains("DONE"));
    let gone = database.insert_with("SELECT 1", "plan = now() - interval '1 day'");
    says(&mill, &database, gone, "expired");
    let stopped = database.insert_with("SELECT 1", "state = 'STOP'");
    says(&mill, &database, stopped, "stopped by a user");
    let runs = database.insert("SELECT pg_sleep(600)");
    let backend = running(&mill, &database, runs);
    says(&mill, &database, runs, &format!("(backend pid {backend})"));
    let full = database.insert("SELECT 1");
    says(&mill, &database, full, "is full");
    says(&mill, &database, 987_654, "task 987654 does not exist");
    let named: String = database
        .connect()
        .query_one("SELECT mill.why($1::bigint, 'public.task')", &[&planned])
        .expect("with the queue's name")
        .get(0);
    assert!(named.contains("planned for"));

    mill.signal(Signal::SIGINT);
    mill.wait_exit(Duration::from_secs(10));
    says(&mill, &database, full, "no scheduler serves");
}

#[test]
fn why_tells_that_the_queue_may_run_no_more_at_once() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("run", 1).start();
    let first = database.insert_with("SELECT pg_sleep(600)", "group = 'a'");
    running(&mill, &database, first);
    let second = database.insert_with("SELECT 1", "group = 'b'");
    says(&mill, &database, second, "its setting run allows");
}

#[test]
fn why_tells_that_the_limit_of_the_queue_is_0() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("limit", 0).start();
    let task = database.insert("SELECT 1");
    says(&mill, &database, task, "no task of this queue starts: its limit is 0");
}

#[test]
fn why_tells_that_no_slot_is_free() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).key("max_workers", 3).start();
    let first = database.insert_with("SELECT pg_sleep(600)", "group = 'a'");
    let backend = running(&mill, &database, first);
    let second = database.insert_with("SELECT pg_sleep(600)", "group = 'b'");
    says(&mill, &database, second, "no slot is free");
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    running(&mill, &database, second);
    let third = database.insert_with("SELECT 1", "group = 'b'");
    says(&mill, &database, third, "is full");
}

#[test]
fn why_tells_that_workers_get_no_connection_and_the_task_runs_when_they_do() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let owner = quote_ident(database.owner());
    // the scheduler has its session already; for workers none is left
    let own: i64 =
        one(&database, &format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", database.owner()));
    let mut queries = database.connect();
    database.run(&format!("ALTER ROLE {owner} CONNECTION LIMIT {}", own + 1));
    let id: i64 = queries
        .query_one("INSERT INTO public.task (input) VALUES ('SELECT 1') RETURNING id", &[])
        .expect("insert")
        .get(0);
    mill.eventually("why says that there is no connection", || {
        let row = queries.query_one("SELECT mill.why($1::bigint)", &[&id]).expect("mill.why answers");
        row.get::<_, String>(0).contains("cannot connect")
    });
    assert!(mill.log_contains("too many connections for role"));
    database.run(&format!("ALTER ROLE {owner} CONNECTION LIMIT -1"));
    let row = mill.finished(&database, id);
    assert_eq!(row["state"], "DONE", "no connection is not a failure of the task");
}
