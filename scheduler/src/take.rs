//! Which rows run next: asks the database for as many due tasks as there are slots reserved for them.

use crate::queue::Prepared;
use shared::db::trouble::Trouble;
use std::rc::Rc;
use tokio_postgres::Client;

/// A row that is ours now: state TAKE, this attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub task: i64,
    pub attempt: i32,
}

/// Expires what nobody started in time, then claims up to `count` due rows, in the order they shall start.
pub async fn take(client: Rc<Client>, statements: Rc<Prepared>, count: usize) -> Result<Vec<Taken>, Trouble> {
    client.execute(&statements.expire, &[]).await.map_err(|error| Trouble::of(&error))?;
    let rows = client.query(&statements.take, &[&(count as i64)]).await.map_err(|error| Trouble::of(&error))?;
    Ok(rows.iter().map(|row| Taken { task: row.get("id"), attempt: row.get("attempt") }).collect())
}
