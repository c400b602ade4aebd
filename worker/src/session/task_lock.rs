//! The advisory lock of a running task: for `why` and monitoring, no proof of anything.

use crate::task_row::TaskRow;
use crate::wire::{QueryError, Session};
use shared::db::identifier::qualified;
use shared::db::lock_key;
use shared::process::order::WorkerOrder;

/// Its two keys, for a queue and a task that are SQL themselves.
pub(super) fn lock_keys(queue: &str, task: &str) -> String {
    let name = format!("pg_catalog.concat({queue}::pg_catalog.regclass::pg_catalog.oid, ':', {task}::pg_catalog.text)");
    format!("{}, pg_catalog.hashtext({name})", lock_key::TASK)
}

/// The lock of a task that runs on a remote, held by the session that will record its end.
pub(crate) fn lock(home: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    of_lock("pg_try_advisory_lock", home, order, row)
}

/// The same lock, released.
pub(super) fn unlock(session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    of_lock("pg_advisory_unlock", session, order, row)
}

fn of_lock(call: &str, session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let text = format!("SELECT pg_catalog.{call}({})", lock_keys("$1", "$2"));
    let (queue, task) = (qualified(&order.schema, &order.table), row.task.to_string());
    session.execute(&text, &[Some(queue.as_bytes()), Some(task.as_bytes())]).map(|_| ())
}
