//! The catalog `mill` of the database: made at the first row's first start, if its user may, and told of the queue.
//!
//! Tasks work without it; then `mill.why` is missing, and the log says once which right would help.

use shared::db::statement::{self, Queue};
use shared::db::trouble::Trouble;
use shared::db::{catalog, lock_key};
use tokio_postgres::Client;

pub async fn prepare(client: &Client, queue: &Queue, relid: u32) -> Result<(), Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let mut found = client.query_one(&statement::bare(statement::LOOK_CATALOG), &[]).await.map_err(trouble)?;
    if !found.get::<_, bool>("there") {
        if !found.get::<_, bool>("may") {
            shared::warning!(
                "the catalog mill cannot be made, so there is no mill.why; GRANT CREATE ON DATABASE to the row's user",
                queue = queue.fill("{queue}"),
            );
            return Ok(());
        }
        make(client).await?;
        found = client.query_one(&statement::bare(statement::LOOK_CATALOG), &[]).await.map_err(trouble)?;
    }
    if found.get::<_, bool>("ours") {
        let text = statement::bare(statement::REGISTER_QUEUE);
        client.execute(&text, &[&relid, &queue.schema, &queue.table]).await.map_err(trouble)?;
    } else {
        shared::debug!("the catalog mill belongs to another row's user", queue = queue.fill("{queue}"));
    }
    Ok(())
}

/// All or nothing; two makers at once wait for each other, and the second finds it made.
async fn make(client: &Client) -> Result<(), Trouble> {
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = '2s'; SELECT pg_catalog.pg_advisory_xact_lock({}, 0)",
        lock_key::INSTALL
    );
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    client.batch_execute(&begin).await.map_err(trouble)?;
    let there: bool =
        client.query_one(&statement::bare(statement::LOOK_CATALOG), &[]).await.map_err(trouble)?.get("there");
    if !there {
        client.batch_execute(&catalog::text(env!("CARGO_PKG_VERSION"))).await.map_err(trouble)?;
        shared::info!("catalog mill made");
    }
    client.batch_execute("COMMIT").await.map_err(trouble)
}
