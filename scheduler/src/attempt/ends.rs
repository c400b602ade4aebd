//! Results that are recorded by one statement.

use crate::table::make::QueueStatements;
use shared::db::db_error::DbError;
use shared::region::{EndState, TaskResult};
use std::borrow::Cow;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

/// Tasks, attempts, failures, outputs and errors, as parameters.
pub type Columns<'a> = (Vec<i64>, Vec<i32>, Vec<bool>, Vec<Option<Cow<'a, str>>>, Vec<Option<Cow<'a, str>>>);

pub fn columns<'a>(results: &'a [TaskResult<'static>]) -> Columns<'a> {
    let mut columns = Columns::default();
    for result in results {
        columns.0.push(result.key.task);
        columns.1.push(result.key.attempt);
        columns.2.push(result.state == EndState::Fail);
        columns.3.push(result.output.as_deref().map(text));
        columns.4.push(result.error.as_deref().map(text));
    }
    columns
}

/// Records results, one or many. Returns the tasks whose results are recorded.
pub async fn write(
    results: &[TaskResult<'static>],
    client: &Client,
    statements: &QueueStatements,
) -> Result<Vec<i64>, DbError> {
    let (tasks, attempts, failed, outputs, errors) = columns(results);
    let reasons: Vec<Option<&str>> = results.iter().map(|result| result.reason).collect();
    // Begins and ends: as the row says, and now.
    let times: Vec<Option<i64>> = vec![None; results.len()];
    let values: [&(dyn ToSql + Sync); 9] =
        [&tasks, &attempts, &failed, &outputs, &errors, &reasons, &times, &times, &false];
    let rows = client.query(&statements.end_many, &values).await.map_err(|error| DbError::of(&error))?;
    Ok(rows.iter().map(|row| row.get("id")).collect())
}

/// A worker records a text of other than UTF-8 itself.
fn text(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// The tasks whose results are recorded. A refusal of the database is logged, and leaves each result to be tried alone; any
/// other error is one of the session.
pub fn unless_refused(written: Result<Vec<i64>, DbError>) -> Result<Vec<i64>, DbError> {
    written.or_else(|db_error| {
        if db_error.passes() {
            return Err(db_error);
        }
        shared::warning!("results cannot be written together; each is tried alone", error = db_error);
        Ok(Vec::new())
    })
}
