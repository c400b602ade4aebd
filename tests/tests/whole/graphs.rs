//! What the stories of the graph have in common: a catalog that is ready, declarations, and looks at runs.

use std::time::Duration;

use postgres::Client;
use tests::{Database, Supervisor};

use crate::queries::{all, one};

/// Waits until the queue runs jobs: the catalog is there and knows the table.
#[track_caller]
pub fn ready(mill: &Supervisor<'_>, database: &Database) {
    mill.wait("the queue runs jobs").within(Duration::from_secs(60)).until(|| {
        let sql = "SELECT count(*) >= 5 FROM pg_trigger WHERE tgrelid = to_regclass('public.task') AND tgname LIKE 'mill_job_%'";
        database.query(sql, &[]).is_some_and(|rows| rows[0].get(0))
    });
}

/// Runs statements as the queue's user, who owns the catalog.
#[track_caller]
pub fn declare(database: &Database, sql: &str) {
    say(&mut database.connect(), sql);
}

#[track_caller]
pub fn say(client: &mut Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql) {
        match error.as_db_error() {
            Some(said) => panic!("{sql}: {said:?}"),
            None => panic!("{sql}: {error}"),
        }
    }
}

/// The runs of all jobs, with the state that the task of each has or would have.
pub const RUNS: &str = "(SELECT r.*, CASE WHEN r.outcome IN ('succeeded', 'skipped') THEN 'DONE' WHEN r.outcome IS NOT NULL THEN 'FAIL' \
     WHEN r.start IS NOT NULL THEN 'WORK' ELSE 'PLAN' END AS state FROM mill_private.run r)";

/// How many runs of a job have come to an end, by name.
#[track_caller]
pub fn ended(database: &Database, job: &str, condition: &str) -> i64 {
    one(
        database,
        &format!(
            "SELECT count(*) FROM {RUNS} t JOIN mill.job j ON j.id = t.job WHERE j.name = '{job}' AND t.stop IS NOT NULL AND ({condition})"
        ),
    )
}

/// Waits until a job has ended so many times.
#[track_caller]
pub fn wait_ended(mill: &Supervisor<'_>, database: &Database, job: &str, times: i64) {
    mill.wait(&format!("job {job} has ended {times} times"))
        .within(Duration::from_secs(60))
        .until(|| ended(database, job, "true") >= times);
    assert_eq!(ended(database, job, "true"), times, "job {job}\n{}", mill.describe());
}

/// The counters agree.
#[track_caller]
pub fn balanced(database: &Database) {
    let wrong: Vec<String> = all(database, "SELECT i::text FROM mill.integrity i LIMIT 20");
    assert!(wrong.is_empty(), "the counters do not agree: {wrong:#?}");
}

/// Moves the clock that decides what is due, by an interval.
#[track_caller]
pub fn turn_clock(database: &Database, interval: &str) {
    database.run(&format!("UPDATE mill.meta SET clock = clock + interval '{interval}'"));
}

/// Stops the clock of timers at a moment: what it shows from now on goes on from there.
#[track_caller]
pub fn set_clock(database: &Database, moment: &str) {
    database.run(&format!("UPDATE mill.meta SET clock = timestamptz '{moment}' - clock_timestamp()"));
}

/// The logical times of a job's runs, in the order in which they were activated.
#[track_caller]
pub fn times(database: &Database, job: &str) -> Vec<String> {
    all(
        database,
        &format!(
            "SELECT to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM mill_private.run t JOIN mill.job j ON j.id = t.job \
             WHERE j.name = '{job}' AND t.activation IS NULL ORDER BY t.id"
        ),
    )
}
