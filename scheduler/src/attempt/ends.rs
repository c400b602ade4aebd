//! Results that are recorded by one statement.

use crate::table::make::QueueStatements;
use shared::db::db_error::DbError;
use shared::region::{EndState, TaskResult};
use std::borrow::Cow;
use tokio_postgres::Client;

/// Records results, one or many. Returns the tasks whose results are recorded.
pub async fn write(
    results: &[TaskResult<'static>],
    client: &Client,
    statements: &QueueStatements,
) -> Result<Vec<i64>, DbError> {
    let tasks: Vec<i64> = results.iter().map(|result| result.key.task).collect();
    let attempts: Vec<i32> = results.iter().map(|result| result.key.attempt).collect();
    let failed: Vec<bool> = results.iter().map(|result| result.state == EndState::Fail).collect();
    let outputs: Vec<Option<Cow<'_, str>>> = results.iter().map(|result| result.output.as_deref().map(text)).collect();
    let errors: Vec<Option<Cow<'_, str>>> = results.iter().map(|result| result.error.as_deref().map(text)).collect();
    let reasons: Vec<Option<&str>> = results.iter().map(|result| result.reason).collect();
    // Begins and ends: as the row says, and now.
    let times: Vec<Option<i64>> = vec![None; results.len()];
    let rows = client
        .query(&statements.end_many, &[&tasks, &attempts, &failed, &outputs, &errors, &reasons, &times, &times, &false])
        .await;
    let rows = rows.map_err(|error| DbError::of(&error))?;
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
