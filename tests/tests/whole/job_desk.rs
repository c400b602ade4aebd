//! What the stories of jobs have in common: a queue that runs jobs, a job by an INSERT, its numbers, and the clock that
//! tests may move.

use std::time::Duration;

use postgres::types::FromSqlOwned;
use tests::{Database, Supervisor};

use crate::asking::one;

/// Waits until jobs can be inserted.
#[track_caller]
pub fn open(mill: &Supervisor<'_>, database: &Database) {
    let sql =
        "SELECT count(*) = 5 FROM pg_trigger WHERE tgrelid = to_regclass('public.task') AND tgname LIKE 'mill_job_%'";
    mill.wait("the queue runs jobs").within(Duration::from_secs(30)).until(|| one::<bool>(database, sql));
}

/// Inserts a job as the row user; `columns` and `values` are SQL lists.
#[track_caller]
pub fn insert(database: &Database, name: &str, columns: &str, values: &str) -> i32 {
    let sql = format!("INSERT INTO mill.job (name, {columns}) VALUES ('{name}', {values}) RETURNING id");
    match database.connect().query_one(&sql, &[]) {
        Ok(row) => row.get(0),
        Err(error) => panic!("{sql}: {:?}", error.as_db_error()),
    }
}

/// A column of the job's statistics.
#[track_caller]
pub fn stat<T: FromSqlOwned>(database: &Database, job: i32, expression: &str) -> T {
    one(database, &format!("SELECT {expression} FROM mill.job_stat WHERE job = {job}"))
}

/// What `mill.job_status` says: status and why.
#[track_caller]
pub fn status(database: &Database, job: i32) -> (String, String) {
    let rows = database.look("SELECT status, why FROM mill.job_status WHERE job = $1", &[&job]);
    let rows = rows.expect("mill.job_status answers");
    let row = rows.first().expect("the job has a status");
    (row.get(0), row.get(1))
}

/// The states of its runs in the order of their attempts.
#[track_caller]
pub fn runs(database: &Database, job: i32) -> Vec<String> {
    let sql = format!("SELECT state FROM mill.run WHERE job = {job} ORDER BY task");
    // none while the server is away
    database.look(&sql, &[]).unwrap_or_default().iter().map(|row| row.get(0)).collect()
}

/// Moves the clock of jobs to the next start of a job, and a moment further.
#[track_caller]
pub fn skip_to_next_start(database: &Database, job: i32) {
    let sql = format!(
        "UPDATE mill.meta SET clock = clock + GREATEST((SELECT next_start - mill.now() FROM mill.job_stat WHERE job = {job}), '0') \
         + interval '1 ms'"
    );
    database.connect().batch_execute(&sql).expect("the catalog's owner may move the clock");
}

/// Waits until a run of the job is at work; gives its task, backend and worker.
#[track_caller]
pub fn running(mill: &Supervisor<'_>, database: &Database, job: i32) -> (i64, i32, i32) {
    mill.eventually("a run of the job is at work", || {
        let sql = format!("SELECT id, pid FROM public.task WHERE job = {job} AND state = 'WORK'");
        let rows = database.look(&sql, &[])?;
        let row = rows.first()?;
        let (task, pid): (i64, i32) = (row.get(0), row.get(1));
        Some((task, pid, crate::asking::worker_of(mill, task)?))
    })
}
