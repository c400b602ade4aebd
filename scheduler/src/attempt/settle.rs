//! What became of a task whose worker is gone: its backend is ended, and only when it is gone is the row planned
//! again. Two attempts of one task never overlap.
//!
//! The statement that a killed worker had sent would otherwise run on in the server, and commit. Every statement here
//! is fenced by the attempt, so a late writer, or somebody who finished the row meanwhile, is never overwritten.

use crate::attempt::death::Death;
use crate::attempt::remote_search::Lead;
use shared::db::db_error::DbError;
use shared::db::statement::{self, Queue};
use tokio_postgres::{Client, Statement};

#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// Planned again by us.
    PlannedAgain,
    /// The same, after so many deaths in a row, to start in so many seconds.
    Delayed { crashes: i32, wait: f64 },
    /// It has died too often, and ends as crashed.
    Spent,
    /// The run of a job that had begun: closed, and followed by another row.
    Closed,
    /// Finished, deleted, stopped by a user, or claimed anew: not ours any more.
    NotOurs,
    /// Its backend still lives; it has been cancelled or terminated, unless it may be somebody else's.
    StillRunning,
    /// The database refuses to change the row.
    Refused(String),
    /// It was on a remote: only there can be found out whether it still is.
    Elsewhere(Lead),
}

/// What is asked of a table for it.
#[derive(Clone, Debug)]
pub struct SettleStatements {
    /// The table, for statements whose text depends on its columns.
    pub queue: Queue,
    pub read: Statement,
    pub end_backend: Statement,
    pub plan_again: Statement,
}

impl SettleStatements {
    pub async fn prepare(client: &Client, queue: &Queue) -> Result<SettleStatements, DbError> {
        let text = async |text: &str| client.prepare(&queue.fill(text)).await.map_err(|error| DbError::of(&error));
        Ok(SettleStatements {
            queue: queue.clone(),
            read: text(statement::READ_TASK).await?,
            end_backend: text(statement::END_BACKEND).await?,
            plan_again: text(statement::PLAN_AGAIN).await?,
        })
    }
}

pub async fn settle(
    client: &Client,
    statements: &SettleStatements,
    (task, attempt): (i64, i32),
    mut strangers: Vec<i32>,
    (terminate, patient): (bool, bool),
    (why, death): (&str, Option<Death>),
) -> Result<Settlement, DbError> {
    shared::process::fault::point("scheduler.before_settle");
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let row = client.query_opt(&statements.read, &[&task, &attempt, &strangers]).await.map_err(db_error)?;
    let Some(row) = row else { return Ok(Settlement::NotOurs) };
    let state: String = row.get("state");
    if state != "TAKE" && state != "WORK" {
        return Ok(Settlement::NotOurs);
    }
    if let Some(session) = row.get("remote_session") {
        // A row that is only claimed has no session yet, whatever its last attempt left in it.
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
    if let Some(backend) = row.get::<_, Option<i32>>("backend") {
        if row.get("ours") {
            client
                .query(&statements.end_backend, &[&task, &attempt, &terminate, &strangers])
                .await
                .map_err(db_error)?;
            return Ok(Settlement::StillRunning);
        }
        // Nothing shows that it is ours. A session of a dead worker that has shed all its marks is ended by the server, which
        // looks for its client; one that outlasts that is somebody else's.
        if patient {
            return Ok(Settlement::StillRunning);
        }
        strangers.push(backend);
    }
    match plan_again(client, statements, (task, attempt), &strangers, (why, death)).await {
        Err(db_error) if !db_error.passes() => Ok(Settlement::Refused(db_error.text)),
        answer => answer,
    }
}

/// No backend of it lives, here or elsewhere. `why` it ended is what the run of a job is closed with.
pub async fn plan_again(
    client: &Client,
    statements: &SettleStatements,
    (task, attempt): (i64, i32),
    strangers: &[i32],
    (why, death): (&str, Option<Death>),
) -> Result<Settlement, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let server = death.and_then(Death::server_began_us);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&task, &attempt, &why, &strangers, &death.is_some(), &server];
    let planned = client.query_opt(&statements.plan_again, &values).await.map_err(db_error)?;
    if let (Some(death), true) = (death, planned.as_ref().is_some_and(|row| row.get("spent"))) {
        return crash(client, &statements.queue, (task, attempt), Some(death)).await;
    }
    // Not planned: a user has it locked, or it went from TAKE to WORK, or was finished, between the two statements.
    // Look once more.
    Ok(match planned {
        Some(row) if row.get("closed") => Settlement::Closed,
        Some(row) => match row.get("crashes") {
            Some(crashes @ 2..) => Settlement::Delayed { crashes, wait: row.get("wait") },
            Some(_) | None => Settlement::PlannedAgain,
        },
        None => Settlement::StillRunning,
    })
}

/// It has died too often, or, without a death, nobody knows what became of it and nobody will: the row ends as crashed,
/// with its consequences, or, if the data refuse those, without them.
pub async fn crash(
    client: &Client,
    queue: &Queue,
    (task, attempt): (i64, i32),
    death: Option<Death>,
) -> Result<Settlement, DbError> {
    let how = death.map(|death| death.to_string());
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let columns = client.query(&queue.fill(statement::LIST_COLUMNS), &[]).await.map_err(db_error)?;
    let columns: Vec<String> = columns.iter().map(|row| row.get("name")).collect();
    match client.query(&queue.fill_repeating(statement::CRASH_TASK, &columns), &[&task, &attempt, &how]).await {
        // Somebody has locked it.
        Ok(rows) if death.is_some() && rows.first().is_some_and(|row| row.get::<_, i64>("crashed") == 0) => {
            Ok(Settlement::StillRunning)
        }
        Ok(_) if death.is_some() => Ok(Settlement::Spent),
        Ok(_) => Ok(Settlement::NotOurs),
        Err(error) => {
            let refusal = DbError::of(&error);
            if refusal.passes() {
                return Err(refusal);
            }
            shared::warning!("cannot repeat a crashed task", task = task, error = refusal);
            let text = queue.fill(statement::CRASH_REFUSED);
            client.execute(&text, &[&task, &attempt, &refusal.text, &how]).await.map_err(db_error)?;
            Ok(if death.is_some() { Settlement::Spent } else { Settlement::NotOurs })
        }
    }
}
