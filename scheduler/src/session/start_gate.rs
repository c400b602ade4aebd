//! What a scheduler does before anything else: wait, then decide whether there is anything to serve.
//!
//! Whoever asked for its start, or works on the catalog, may still be in an open transaction. The wait is a wait for
//! that transaction's lock, so that everybody can see it and nobody polls; only then, in a transaction of its own, is
//! looked at what the other one has left: a catalog or none, switched on or off, with this queue or with others. Each
//! session of a scheduler begins here. The lock that is waited for can be held for days.

use shared::db::db_error::DbError;
use shared::db::statement::{self, Queue, bare};
use shared::process::exit_code::ExitCode;
use shared::process::order::WaitFor;
use std::rc::Rc;
use std::time::Duration;
use tokio_postgres::Client;

/// As long as somebody else's transaction may take.
pub const TIMEOUT: Duration = Duration::from_secs(366 * 86_400);

pub const UNINSTALLED: &str = "the catalog mill was uninstalled";
const NOT_INSTALLED: &str = "the catalog mill is not installed";

/// What the wait came to.
#[derive(Debug)]
pub enum Admission {
    /// There is something to serve.
    Go {
        marker: Option<u32>,
    },
    Leave {
        code: ExitCode,
        why: String,
    },
}

/// The table whose locks tell of work on the catalog.
#[derive(Clone, Copy, Debug)]
pub struct Marker {
    pub relid: u32,
    /// We may read and lock it.
    may: bool,
    /// Somebody works on it.
    locked: bool,
}

pub fn waits(wait: WaitFor) -> bool {
    wait != WaitFor::default()
}

pub async fn marker(client: &Client, queue: &Queue) -> Result<Option<Marker>, DbError> {
    let names = [queue.schema.as_str(), queue.table.as_str()];
    let found = client
        .query_opt(&bare(statement::READ_MARKER), &[&names[0], &names[1]])
        .await
        .map_err(|error| DbError::of(&error))?;
    Ok(found.map(|row| Marker {
        relid: row.get("marker"),
        may: row.get::<_, Option<bool>>("may").unwrap_or(false),
        locked: row.get("locked"),
    }))
}

/// `found`: it serves what is there and makes nothing. `installed`: there was a catalog, so that one that is gone was
/// uninstalled.
pub async fn stand(
    client: Rc<Client>,
    queue: Queue,
    wait: WaitFor,
    (found, installed): (bool, bool),
) -> Result<Admission, DbError> {
    if let Some((key, database)) = wait.message {
        // The second key is the OID, as the 32 bits of an int.
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&key, &(database as i32)];
        let text = bare(statement::WAIT_MESSAGE);
        client.query_one(&text, &parameters).await.map_err(|error| DbError::of(&error))?;
    }
    wait_for_marker(&client, &queue).await?;
    let Some(marker) = marker(&client, &queue).await? else {
        return Ok(match (installed, found) {
            (true, _) => Admission::Leave { code: ExitCode::NotInstalled, why: UNINSTALLED.to_owned() },
            (false, true) => Admission::Leave { code: ExitCode::NotInstalled, why: NOT_INSTALLED.to_owned() },
            (false, false) => Admission::Go { marker: None },
        });
    };
    if !marker.may {
        return Ok(Admission::Go { marker: Some(marker.relid) });
    }
    let names = [queue.schema.as_str(), queue.table.as_str()];
    let text = bare(statement::READ_META);
    let meta = client.query_opt(&text, &[&names[0], &names[1]]).await.map_err(|error| DbError::of(&error))?;
    if meta.as_ref().is_some_and(|meta| !meta.get::<_, bool>("enabled")) {
        let why = "mill.meta.enabled is false; set it to true, then start it".to_owned();
        return Ok(Admission::Leave { code: ExitCode::SwitchedOff, why });
    }
    if found && meta.is_some_and(|meta| meta.get("others")) && !there(&client, &queue).await? {
        let why = format!("table {} does not exist; other queues of the catalog are served", queue.fill("{queue}"));
        return Ok(Admission::Leave { code: ExitCode::NoQueue, why });
    }
    Ok(Admission::Go { marker: Some(marker.relid) })
}

/// Whoever works on the catalog has locked its marker table: we ask for it too, and let go of it at once.
async fn wait_for_marker(client: &Client, queue: &Queue) -> Result<(), DbError> {
    match marker(client, queue).await? {
        Some(Marker { may: true, .. }) => {
            let locked = client.batch_execute("BEGIN; LOCK TABLE mill.meta IN ACCESS SHARE MODE; COMMIT").await;
            if let Err(error) = locked {
                // It was dropped while we waited: that is what we waited for.
                let gone = error.code().is_some_and(|code| matches!(code.code(), "42P01" | "3F000" | "42501"));
                client.batch_execute("ROLLBACK").await.map_err(|error| DbError::of(&error))?;
                if !gone {
                    return Err(DbError::of(&error));
                }
            }
            Ok(())
        }
        // Not ours to lock: looked at again and again.
        Some(Marker { locked: true, .. }) => {
            Err(DbError::passing("another transaction locks the catalog mill; waiting for its end"))
        }
        Some(_) | None => Ok(()),
    }
}

async fn there(client: &Client, queue: &Queue) -> Result<bool, DbError> {
    let row = client.query_one(&queue.fill(statement::READ_QUEUE), &[]).await.map_err(|error| DbError::of(&error))?;
    Ok(row.get::<_, Option<u32>>("relid").is_some())
}
