//! What the stories of jobs have in common: a queue that runs jobs, a job by an INSERT, its numbers, and the clock that
//! tests may move.

use std::time::Duration;

use postgres::Client;
use postgres::types::FromSqlOwned;
use tests::{Database, Supervisor};

use crate::queries::one;

/// Waits until jobs can be inserted.
#[track_caller]
pub fn open(mill: &Supervisor<'_>, database: &Database) {
    let sql =
        "SELECT count(*) = 5 FROM pg_trigger WHERE tgrelid = to_regclass('public.task') AND tgname LIKE 'mill_job_%'";
    mill.wait("the queue runs jobs").within(Duration::from_secs(30)).until(|| one::<bool>(database, sql));
}

/// Inserts a job as the queue's user; `columns` and `values` are SQL lists.
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
    let rows = database.query("SELECT status, why FROM mill.job_status WHERE job = $1", &[&job]);
    let rows = rows.expect("mill.job_status answers");
    let row = rows.first().expect("the job has a status");
    (row.get(0), row.get(1))
}

/// The states of its runs in the order of their attempts.
#[track_caller]
pub fn runs(database: &Database, job: i32) -> Vec<String> {
    let sql = format!("SELECT state FROM mill.run WHERE job = {job} ORDER BY id");
    // none while the server is away
    database.query(&sql, &[]).unwrap_or_default().iter().map(|row| row.get(0)).collect()
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

/// Activates jobs as it happens in the catalog, but that the runs are held, and puts them into the queue by hand, as rows
/// that are held: no scheduler takes them, and whoever has called this is their worker. `activations` is a query of calls of
/// `mill_private.order_run(.., held => true)`. The tasks, in the order of the runs.
#[track_caller]
pub fn put_held(client: &mut Client, activations: &str) -> Vec<i64> {
    let mut work = client.transaction().expect("BEGIN");
    let runs: Vec<i64> = match work.query(activations, &[]) {
        Ok(rows) => rows.iter().map(|row| row.get::<_, Option<i64>>(0).expect("a run")).collect(),
        Err(error) => panic!("{activations}: {:?}", error.as_db_error()),
    };
    work.execute("UPDATE mill_private.run SET ordered = false, held = false WHERE id = ANY ($1)", &[&runs])
        .expect("the catalog's owner may");
    let sql = "INSERT INTO public.task (input, held, job, run, at, epoch, run_of, failures, attempt, plan) \
         SELECT COALESCE(j.input, ''), true, r.job, r.id, r.at, r.epoch, COALESCE(r.activation, r.id), r.failures, r.attempt, r.due \
           FROM mill_private.run r JOIN mill.job j ON j.id = r.job WHERE r.id = ANY ($1) ORDER BY r.id RETURNING id";
    let rows = work.query(sql, &[&runs]).expect("the rows of the runs");
    assert_eq!(rows.len(), runs.len(), "a row for each run");
    work.commit().expect("COMMIT");
    rows.iter().map(|row| row.get(0)).collect()
}

/// The task of a run, as soon as it is in the queue.
#[track_caller]
pub fn task_of(mill: &Supervisor<'_>, database: &Database, run: i64) -> i64 {
    mill.eventually("the run is in the queue", || {
        let rows = database.query("SELECT id FROM public.task WHERE run = $1", &[&run])?;
        rows.first().map(|row| row.get(0))
    })
}

/// Waits until a run of the job is at work; gives its task, backend and worker.
#[track_caller]
pub fn running(mill: &Supervisor<'_>, database: &Database, job: i32) -> (i64, i32, i32) {
    mill.eventually("a run of the job is at work", || {
        let sql = format!("SELECT id, pid FROM public.task WHERE job = {job} AND state = 'WORK'");
        let rows = database.query(&sql, &[])?;
        let row = rows.first()?;
        let (task, pid): (i64, i32) = (row.get(0), row.get(1));
        Some((task, pid, crate::queries::worker_of(mill, task)?))
    })
}
