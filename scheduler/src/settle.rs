//! What became of a task whose worker is gone: its backend is ended, and only when it is gone is the row planned
//! again. Two attempts of one task never overlap.
//!
//! The statement that a killed worker had sent would otherwise run on in the server, and commit. Every statement here
//! is fenced by the attempt, so a late writer, or somebody who finished the row meanwhile, is never overwritten.

use crate::queue::Prepared;
use shared::db::trouble::Trouble;
use std::rc::Rc;
use tokio_postgres::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Planned again by us.
    PlannedAgain,
    /// The run of a job that had begun: closed, and followed by another row.
    Closed,
    /// Finished, deleted, stopped by a user, or taken anew: not ours any more.
    NotOurs,
    /// Its backend still lives; it has been cancelled or terminated.
    StillRunning,
}

pub async fn settle(
    client: Rc<Client>,
    statements: Rc<Prepared>,
    task: i64,
    attempt: i32,
    terminate: bool,
    why: &str,
) -> Result<Settlement, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let row = client.query_opt(&statements.look, &[&task, &attempt]).await.map_err(trouble)?;
    let Some(row) = row else { return Ok(Settlement::NotOurs) };
    let state: String = row.get("state");
    if state != "TAKE" && state != "WORK" {
        return Ok(Settlement::NotOurs);
    }
    if row.get::<_, Option<i32>>("backend").is_some() {
        client.query(&statements.end_backend, &[&task, &attempt, &terminate]).await.map_err(trouble)?;
        return Ok(Settlement::StillRunning);
    }
    let planned = client.query_opt(&statements.plan_again, &[&task, &attempt, &why]).await.map_err(trouble)?;
    // Not planned: a user has it locked, or it went from TAKE to WORK, or was finished, between the two statements.
    // Look once more.
    Ok(match planned.map(|row| row.get("closed")) {
        Some(true) => Settlement::Closed,
        Some(false) => Settlement::PlannedAgain,
        None => Settlement::StillRunning,
    })
}
