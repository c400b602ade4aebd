//! Several results as parameters of one statement.

use crate::table::make::Prepared;
use shared::db::trouble::Trouble;
use shared::region::HandedIn;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

#[derive(Clone, Debug)]
pub struct Ends {
    tasks: Vec<i64>,
    attempts: Vec<i32>,
    failed: Vec<bool>,
    outputs: Vec<Option<String>>,
    errors: Vec<Option<String>>,
}

impl Ends {
    pub fn of(results: &[&HandedIn]) -> Ends {
        Ends {
            tasks: results.iter().map(|result| result.task).collect(),
            attempts: results.iter().map(|result| result.attempt).collect(),
            failed: results.iter().map(|result| result.failed).collect(),
            outputs: results.iter().map(|result| result.output.clone()).collect(),
            errors: results.iter().map(|result| result.error.clone()).collect(),
        }
    }

    pub fn values(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.tasks, &self.attempts, &self.failed, &self.outputs, &self.errors]
    }

    /// Whose results are recorded.
    pub async fn write(&self, client: &Client, statements: &Prepared) -> Result<Vec<i64>, Trouble> {
        let rows = client.query(&statements.finish_errands, &self.values()).await;
        let rows = rows.map_err(|error| Trouble::of(&error))?;
        Ok(rows.iter().map(|row| row.get("id")).collect())
    }
}

/// Whose results are recorded. A refusal of the database is logged, and leaves each of them to be tried alone; anything else
/// is the session's trouble.
pub fn unless_refused(written: Result<Vec<i64>, Trouble>) -> Result<Vec<i64>, Trouble> {
    written.or_else(|trouble| {
        if trouble.passes() {
            return Err(trouble);
        }
        shared::warning!("results cannot be written together; each is tried alone", error = trouble);
        Ok(Vec::new())
    })
}
