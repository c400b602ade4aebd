//! Tasks that have run and whose end the database refuses in every form, by a trigger or a constraint of the table's owner.
//! To run the input again would be worse than to lose its result.
//!
//! Once in a while the end is tried again, as a failure that says no more than that; where that is refused too the row is
//! stopped, so that its group goes on, and a person decides. What cannot be changed in any way stays WORK and is tried again.

use crate::table::make::QueueStatements;
use shared::db::db_error::DbError;
use shared::db::statement;
use tokio_postgres::Client;

/// What became of such a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    Failed,
    Stopped,
    /// Finished, deleted or claimed anew meanwhile, or locked: the next sweep tells.
    Untouched,
    Refused(String),
}

/// Ends such a row as a failure, or stops it.
pub async fn rewrite(
    client: &Client,
    statements: &QueueStatements,
    task: i64,
    attempt: i32,
) -> Result<Rewritten, DbError> {
    let mut refusal = String::new();
    for (text, what) in [(statement::END_UNWRITTEN, Rewritten::Failed), (statement::STOP_UNWRITTEN, Rewritten::Stopped)]
    {
        match client.query_opt(&statements.queue.fill(text), &[&task, &attempt]).await {
            Ok(Some(_)) => return Ok(what),
            Ok(None) => return Ok(Rewritten::Untouched),
            Err(error) => {
                let db_error = DbError::of(&error);
                if db_error.passes() {
                    return Err(db_error);
                }
                refusal = db_error.text;
            }
        }
    }
    Ok(Rewritten::Refused(refusal))
}
