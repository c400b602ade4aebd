//! The statements about jobs: they call the entry points of the queue, so they carry its OID and are prepared once per session.

use crate::session::catalog;
use shared::db::db_error::DbError;
use shared::db::statement::{self, Queue};
use tokio_postgres::{Client, Statement};

/// Rows of runs that are inserted with one statement.
pub const RUNS_AT_ONCE: i32 = 1000;

/// The statements about jobs, prepared once per session. None where the catalog is missing.
#[derive(Debug)]
pub struct JobStatements {
    pub next_event: Statement,
    pub start: Statement,
    pub put: Statement,
    pub next: Statement,
    pub refuse: Statement,
    pub recall: Statement,
    pub compare: Statement,
    pub watch: Statement,
    pub unfilled: Statement,
    pub fill: Statement,
    pub delete_old: Statement,
}

/// Creates the row triggers of jobs if they are missing, and prepares the statements. Err(why): not now, another session is in
/// the way.
pub async fn prepare(client: &Client, queue: &Queue, relid: u32) -> Result<Result<JobStatements, String>, DbError> {
    if let Some(why) = catalog::attach(client, queue, relid).await? {
        return Ok(Err(why));
    }
    client.batch_execute("LISTEN mill_0").await.map_err(|error| DbError::of(&error))?;
    let text =
        async |text: &str| client.prepare(&queue.fill_of_jobs(text, relid)).await.map_err(|error| DbError::of(&error));
    Ok(Ok(JobStatements {
        next_event: text(statement::NEXT_EVENT).await?,
        start: text(statement::START_JOBS).await?,
        put: text(statement::INSERT_RUNS).await?,
        next: text(statement::NEXT_ORDER).await?,
        refuse: text(statement::REFUSE_RUN).await?,
        recall: text(statement::RECALL_RUNS).await?,
        compare: text(statement::COMPARE_RUNS).await?,
        watch: text(statement::WATCH_JOBS).await?,
        unfilled: text(statement::LIST_UNFILLED).await?,
        fill: text(statement::FILL_NEXT_START).await?,
        delete_old: text(statement::DELETE_OLD_RUNS).await?,
    }))
}

/// Runs that are ordered and due get their rows: all at once, or, if the table refuses a row, one by one, and the job of each
/// refused one is paused with the reason.
pub async fn insert_runs(client: &Client, statements: &JobStatements) -> Result<i32, DbError> {
    let put = async |most: i32, only: Option<i64>| {
        let put = client.execute(&statements.put, &[&most, &only]).await;
        put.map(|rows| i32::try_from(rows).unwrap_or(i32::MAX)).map_err(|error| DbError::of(&error))
    };
    match put(RUNS_AT_ONCE, None).await {
        Err(db_error) if db_error.passes() => return Err(db_error),
        Err(_) => {}
        rows => return rows,
    }
    let mut done = 0;
    for _ in 0..RUNS_AT_ONCE {
        let row = client.query_one(&statements.next, &[]).await.map_err(|error| DbError::of(&error))?;
        let Some(run) = row.get::<_, Option<i64>>("run") else { break };
        match put(1, Some(run)).await {
            Ok(rows) => done += rows,
            Err(db_error) if db_error.passes() => return Err(db_error),
            Err(db_error) => {
                client.query(&statements.refuse, &[&run, &db_error.text]).await.map_err(|error| DbError::of(&error))?;
                shared::warning!("cannot insert a run into its queue", run = run, why = db_error);
            }
        }
    }
    Ok(done)
}
