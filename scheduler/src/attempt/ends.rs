//! Several results as parameters of one statement.

use crate::table::make::Prepared;
use shared::db::trouble::Trouble;
use shared::region::{EndState, TaskResult};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

#[derive(Clone, Debug)]
pub struct Ends {
    tasks: Vec<i64>,
    attempts: Vec<i32>,
    failed: Vec<bool>,
    outputs: Vec<Option<String>>,
    errors: Vec<Option<String>>,
    reasons: Vec<Option<&'static str>>,
    /// Begins and ends: as the row says, and now.
    times: Vec<Option<i64>>,
}

impl Ends {
    pub fn of(results: &[&TaskResult<'_>]) -> Ends {
        // A result with texts of other than UTF-8 is never left to the scheduler.
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        Ends {
            tasks: results.iter().map(|result| result.key.task).collect(),
            attempts: results.iter().map(|result| result.key.attempt).collect(),
            failed: results.iter().map(|result| result.state == EndState::Fail).collect(),
            outputs: results.iter().map(|result| result.output.as_deref().map(text)).collect(),
            errors: results.iter().map(|result| result.error.as_deref().map(text)).collect(),
            reasons: vec![None; results.len()],
            times: vec![None; results.len()],
        }
    }

    pub fn values(&self) -> [&(dyn ToSql + Sync); 9] {
        let Ends { tasks, attempts, failed, outputs, errors, reasons, times } = self;
        [tasks, attempts, failed, outputs, errors, reasons, times, times, &false]
    }

    /// Whose results are recorded.
    pub async fn write(&self, client: &Client, statements: &Prepared) -> Result<Vec<i64>, Trouble> {
        let rows = client.query(&statements.end_many, &self.values()).await;
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
        shared::warning!("cannot record results in one statement; recording each alone", error = trouble);
        Ok(Vec::new())
    })
}
