//! The worker's session: how it is opened, and what the task finds set in it.

use crate::book::TaskRow;
use crate::wire::{ConnectError, QueryError, Session};
use shared::hand_over::WorkerOrder;
use std::time::{Duration, Instant};

/// The largest number that statement_timeout takes.
const LONGEST_TIMEOUT_MS: i64 = i32::MAX as i64;

/// Connects as the row's user. The server looks for us every 300 ms while it works: a killed worker's statement must
/// not run on.
///
/// Texts are carried as UTF-8, but for a SQL_ASCII database, which may hold any bytes: there they are carried as they
/// are. Nothing in the worker depends on it, because it treats all text as bytes.
pub fn open(order: &WorkerOrder) -> Result<Session, ConnectError> {
    let session = connect(order, "UTF8")?;
    if session.parameter("server_encoding") == Some(b"SQL_ASCII") {
        session.close();
        return connect(order, "SQL_ASCII");
    }
    Ok(session)
}

fn connect(order: &WorkerOrder, encoding: &str) -> Result<Session, ConnectError> {
    let name = format!("pg_task {} {}", order.schema, order.table);
    let parameters = [
        ("application_name", name.as_str()),
        ("client_connection_check_interval", "300"),
        ("client_encoding", encoding),
    ];
    let deadline = Instant::now() + Duration::from_millis(order.target.connect_timeout_ms);
    Session::connect(&order.target, &parameters, deadline)
}

/// Sets what a task's SQL may read, and its time limit. In a message of its own: inside the input's string a
/// procedure could no longer COMMIT.
pub fn dress(session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let task = row.task.to_string();
    let mut name = format!("pg_task {} {} ", order.schema, order.table).into_bytes();
    name.extend_from_slice(&row.group);
    let timeout = row.timeout_ms.clamp(0, LONGEST_TIMEOUT_MS).to_string();
    let text = "SELECT pg_catalog.set_config('pg_task.id', $1, false), pg_catalog.set_config('pg_task.group', $2, false), \
         pg_catalog.set_config('pg_task.schema', $3, false), pg_catalog.set_config('pg_task.table', $4, false), \
         pg_catalog.set_config('application_name', $5, false), \
         CASE WHEN $6 <> '0' THEN pg_catalog.set_config('statement_timeout', $6, false) END";
    let values: [&[u8]; 6] =
        [task.as_bytes(), &row.group, order.schema.as_bytes(), order.table.as_bytes(), &name, timeout.as_bytes()];
    session.execute(text, &values.map(Some)).map(|_| ())
}

/// Between two tasks of one worker: as new, or, if the finished one asked to `save`, all but the path and the time
/// limit, which are each task's own.
pub fn undress(session: &mut Session, save: bool) -> Result<(), QueryError> {
    if save {
        session.execute("RESET search_path", &[])?;
        session.execute("RESET statement_timeout", &[]).map(|_| ())
    } else {
        session.execute("DISCARD ALL", &[]).map(|_| ())
    }
}
