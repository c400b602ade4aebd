//! Transactions that hold a lock on the table: DDL that waits for a lock makes everybody else wait behind it.

use shared::db::db_error::DbError;
use shared::db::statement;
use tokio_postgres::Client;

/// The transaction that has been in the way of DDL for more than a moment. Read twice: short transactions come and go, and the
/// lock timeout is there to wait a little for those.
pub async fn holder(client: &Client, relid: u32, strong: bool) -> Result<Option<String>, DbError> {
    let text = statement::bare(statement::LIST_HOLDERS);
    let read = async || -> Result<Vec<(String, String)>, DbError> {
        let rows = client.query(&text, &[&relid, &strong]).await.map_err(|error| DbError::of(&error))?;
        Ok(rows.iter().map(|row| (row.get("transaction"), row.get("holder"))).collect())
    };
    let before = read().await?;
    if before.is_empty() {
        return Ok(None);
    }
    client.query_one("SELECT pg_catalog.pg_sleep(0.3)", &[]).await.map_err(|error| DbError::of(&error))?;
    let now = read().await?;
    Ok(now.into_iter().find(|(transaction, _)| before.iter().any(|(old, _)| old == transaction)).map(|(_, who)| who))
}
