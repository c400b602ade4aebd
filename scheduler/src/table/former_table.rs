//! A queue whose name belongs to another table now: by a rename, a swap of schemas, or because it was made anew.
//!
//! Our statements go by the name, and the lock by the OID. So a scheduler that finds another OID under its name claims nothing
//! more. Tasks that were running belong to the table in which they were claimed: their server processes are ended, and their rows
//! are planned again there, under whatever name it has now. Called by `queue` at the start of a session.

use crate::attempt::settle::{SettleStatements, Settlement, settle};
use shared::db::db_error::DbError;
use shared::db::statement::{self, Queue};
use tokio_postgres::Client;

/// How often a row is looked at until its server process is gone: half a second by a cancel, then by a termination.
const TRIES: u32 = 60;
const CANCELS: u32 = 5;
/// So often a server process is waited for that does not show that it is ours.
const PATIENT: u32 = 20;
/// What runs of jobs that had begun are closed with.
const INTERRUPTED: &str = "interrupted";
const PAUSE: &str = "SELECT pg_catalog.pg_sleep(0.1)";

/// The name that the table has now; None if it was dropped.
pub async fn name(client: &Client, relid: u32) -> Result<Option<Queue>, DbError> {
    let row = client.query_opt(&statement::bare(statement::FIND_NAME), &[&relid]).await;
    let row = row.map_err(|error| DbError::of(&error))?;
    Ok(row.map(|row| Queue { schema: row.get("schema"), table: row.get("name") }))
}

/// Ends what runs in the former table and plans it again there. What only a remote knows stays as it is.
pub async fn give_back(client: &Client, former: &Queue) -> Result<(), DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let unfinished = client.query(&former.fill(statement::LIST_UNFINISHED), &[]).await.map_err(db_error)?;
    let mut left: Vec<(i64, i32)> = unfinished.iter().map(|row| (row.get("id"), row.get("attempt"))).collect();
    if left.is_empty() {
        return Ok(());
    }
    let (all, table) = (left.len(), former.fill("{queue}"));
    let statements = SettleStatements::prepare(client, former).await?;
    for attempt in 0..TRIES {
        let mut running = Vec::new();
        for (task, number) in left {
            let (named, how) = ((task, number), (attempt >= CANCELS, attempt < PATIENT));
            let settled = settle(client, &statements, named, Vec::new(), how, (INTERRUPTED, None)).await?;
            if settled == Settlement::StillRunning {
                running.push((task, number));
            }
        }
        left = running;
        if left.is_empty() {
            shared::info!("tasks of the former table planned again", table = table, tasks = all);
            return Ok(());
        }
        client.query_one(PAUSE, &[]).await.map_err(db_error)?;
    }
    shared::warning!("tasks of the former table are still running", table = table, tasks = left.len());
    Ok(())
}
