//! Results that are recorded by one statement.

use crate::table::make::Prepared;
use shared::db::trouble::Trouble;
use shared::region::{EndState, TaskResult};
use std::borrow::Cow;
use tokio_postgres::Client;

/// Records results, one or many. Returns the tasks whose results are recorded.
pub async fn write(
    results: &[TaskResult<'static>],
    client: &Client,
    statements: &Prepared,
) -> Result<Vec<i64>, Trouble> {
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
    let rows = rows.map_err(|error| Trouble::of(&error))?;
    Ok(rows.iter().map(|row| row.get("id")).collect())
}

/// A worker records a text of other than UTF-8 itself.
fn text(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// The tasks whose results are recorded. A refusal of the database is logged, and leaves each result to be tried alone; any
/// other error is one of the session.
pub fn unless_refused(written: Result<Vec<i64>, Trouble>) -> Result<Vec<i64>, Trouble> {
    written.or_else(|trouble| {
        if trouble.passes() {
            return Err(trouble);
        }
        shared::warning!("results cannot be written together; each is tried alone", error = trouble);
        Ok(Vec::new())
    })
}
