//! What became of a task whose worker is gone: its backend is ended, and only when it is gone is the row planned
//! again. Two attempts of one task never overlap.
//!
//! The statement that a killed worker had sent would otherwise run on in the server, and commit. Every statement here
//! is fenced by the attempt, so a late writer, or somebody who finished the row meanwhile, is never overwritten.

use crate::elsewhere::Lead;
use shared::db::statement::{self, Queue};
use shared::db::trouble::{Trouble, TroubleKind};
use tokio_postgres::{Client, Statement};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Planned again by us.
    PlannedAgain,
    /// The run of a job that had begun: closed, and followed by another row.
    Closed,
    /// Finished, deleted, stopped by a user, or taken anew: not ours any more.
    NotOurs,
    /// Its backend still lives; it has been cancelled or terminated.
    StillRunning,
    /// It was on a remote: only there can be found out whether it still is.
    Elsewhere(Lead),
}

/// What is asked of a table for it.
#[derive(Clone, Debug)]
pub struct SettleStatements {
    pub look: Statement,
    pub end_backend: Statement,
    pub plan_again: Statement,
}

impl SettleStatements {
    pub async fn prepare(client: &Client, queue: &Queue) -> Result<SettleStatements, Trouble> {
        let text = async |text: &str| client.prepare(&queue.fill(text)).await.map_err(|error| Trouble::of(&error));
        Ok(SettleStatements {
            look: text(statement::LOOK_TASK).await?,
            end_backend: text(statement::END_BACKEND).await?,
            plan_again: text(statement::PLAN_AGAIN).await?,
        })
    }
}

pub async fn settle(
    client: &Client,
    statements: &SettleStatements,
    task: i64,
    attempt: i32,
    strangers: &[i32],
    terminate: bool,
    why: &str,
) -> Result<Settlement, Trouble> {
    shared::fault::point("scheduler.before_settle");
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let row = client.query_opt(&statements.look, &[&task, &attempt, &strangers]).await.map_err(trouble)?;
    let Some(row) = row else { return Ok(Settlement::NotOurs) };
    let state: String = row.get("state");
    if state != "TAKE" && state != "WORK" {
        return Ok(Settlement::NotOurs);
    }
    if let Some(session) = row.get("remote_session") {
        // A row that is only taken has no session yet, whatever its last attempt left in it.
        if state == "WORK" {
            return Ok(Settlement::Elsewhere(Lead {
                task,
                attempt,
                pid: row.get("pid"),
                remote: row.get("remote"),
                session,
            }));
        }
    }
    if row.get::<_, Option<i32>>("backend").is_some() {
        client.query(&statements.end_backend, &[&task, &attempt, &terminate]).await.map_err(trouble)?;
        return Ok(Settlement::StillRunning);
    }
    plan_again(client, statements, task, attempt, strangers, why).await
}

/// No backend of it lives, here or elsewhere. `why` it ended is what the run of a job is closed with.
pub async fn plan_again(
    client: &Client,
    statements: &SettleStatements,
    task: i64,
    attempt: i32,
    strangers: &[i32],
    why: &str,
) -> Result<Settlement, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let planned =
        client.query_opt(&statements.plan_again, &[&task, &attempt, &why, &strangers]).await.map_err(trouble)?;
    // Not planned: a user has it locked, or it went from TAKE to WORK, or was finished, between the two statements.
    // Look once more.
    Ok(match planned.map(|row| row.get("closed")) {
        Some(true) => Settlement::Closed,
        Some(false) => Settlement::PlannedAgain,
        None => Settlement::StillRunning,
    })
}

/// Nobody knows, and nobody will: the row ends as crashed, with its consequences, or, if the data refuse those,
/// without them.
pub async fn crash(client: &Client, queue: &Queue, task: i64, attempt: i32) -> Result<Settlement, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let columns = client.query(&queue.fill(statement::LIST_COLUMNS), &[]).await.map_err(trouble)?;
    let columns: Vec<String> = columns.iter().map(|row| row.get("name")).collect();
    match client.query(&queue.fill_repeating(statement::CRASH_TASK, &columns), &[&task, &attempt]).await {
        Ok(_) => Ok(Settlement::NotOurs),
        Err(error) => {
            let refusal = Trouble::of(&error);
            if refusal.kind == TroubleKind::Passing {
                return Err(refusal);
            }
            shared::warning!("a crashed task cannot be repeated", task = task, error = refusal);
            let text = queue.fill(statement::CRASH_REFUSED);
            client.execute(&text, &[&task, &attempt, &refusal.text]).await.map_err(trouble)?;
            Ok(Settlement::NotOurs)
        }
    }
}
