//! The worker's session: how it is opened, and what the task finds set in it.

use crate::book::TaskRow;
use crate::wire::{ConnectError, QueryError, Session};
use shared::conninfo::Target;
use shared::db::identifier::qualified;
use shared::db::lock_key;
use shared::db::pinned::WATCH;
use shared::hand_over::WorkerOrder;
use shared::region::{Permit, Region, Seat, server_key};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The largest number that statement_timeout takes.
const LONGEST_TIMEOUT_MS: i64 = i32::MAX as i64;

/// How often a worker that waits for its turn to connect looks again: soon at first, since a connect is short.
const TURN_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_TURN_PAUSE: Duration = Duration::from_millis(100);

/// Where this process asks for its turn and its place in the budget of connections.
static REGION: OnceLock<Region> = OnceLock::new();

/// Once, at the start of the process.
pub fn keep_to(region: &Region) {
    let _ = REGION.set(region.clone());
}

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
    let mut parameters = vec![("application_name", name.as_str()), ("client_encoding", encoding)];
    parameters.extend(WATCH);
    connect_in_turn(&order.target, &parameters, Instant::now() + order.target.patience())
}

/// Within the budget of connections, and not with too many others at once.
pub fn connect_in_turn(
    target: &Target,
    parameters: &[(&str, &str)],
    deadline: Instant,
) -> Result<Session, ConnectError> {
    let (seat, permit) = match REGION.get() {
        Some(region) => {
            let (seat, permit) = wait_for_turn(region, target, deadline)?;
            (Some(seat), Some(permit))
        }
        None => (None, None),
    };
    let session = Session::connect(target, parameters, deadline);
    if let Some(permit) = permit {
        match &session {
            Ok(_) => permit.widen(),
            Err(error) if error.is_away() => permit.narrow(),
            Err(_) => {}
        }
    }
    session.map(|mut session| {
        session.sit(seat);
        session
    })
}

fn wait_for_turn(region: &Region, target: &Target, deadline: Instant) -> Result<(Seat, Permit), ConnectError> {
    let server = server_key(target);
    let mut pause = TURN_PAUSE;
    let mut seat = None;
    loop {
        seat = seat.or_else(|| region.take_seat());
        if seat.is_some()
            && let Some(permit) = region.take_permit(server)
        {
            return seat.map(|seat| (seat, permit)).ok_or(ConnectError::NoSeat);
        }
        if Instant::now() >= deadline {
            return Err(ConnectError::NoSeat);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_TURN_PAUSE);
    }
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
         CASE WHEN $6 <> '0' THEN pg_catalog.set_config('statement_timeout', $6, false) END, \
         pg_catalog.set_config('client_connection_check_interval', '300', false)";
    let text = format!("{text}, pg_catalog.pg_try_advisory_lock({}), pg_catalog.pg_backend_pid()", sign("$7", "$1"));
    let queue = qualified(&order.schema, &order.table);
    let values: [&[u8]; 7] = [
        task.as_bytes(),
        &row.group,
        order.schema.as_bytes(),
        order.table.as_bytes(),
        &name,
        timeout.as_bytes(),
        queue.as_bytes(),
    ];
    let rows = session.execute(&text, &values.map(Some))?;
    if let Some(job) = &row.job {
        let text = "SELECT pg_catalog.set_config('mill.job', $1, false), pg_catalog.set_config('mill.at', $2, false), \
             pg_catalog.set_config('mill.attempt', $3, false)";
        let attempt = row.attempt.to_string();
        let at = row.at.as_deref().unwrap_or_default();
        session.execute(text, &[&job[..], at, attempt.as_bytes()].map(Some))?;
    }
    // A pooler has numbers of its own; who is to be terminated must be known by the server's.
    session.learn_backend(rows.first().and_then(|row| row.last()).and_then(Option::as_deref));
    Ok(())
}

/// Between two tasks of one worker: as new, or, if the finished one asked to `save`, all but the path and the time
/// limit, which are each task's own.
pub fn undress(session: &mut Session, order: &WorkerOrder, finished: &TaskRow) -> Result<(), QueryError> {
    if finished.save {
        let unlock = format!("SELECT pg_catalog.pg_advisory_unlock({})", sign("$1", "$2"));
        let (queue, task) = (qualified(&order.schema, &order.table), finished.task.to_string());
        session.execute(&unlock, &[Some(queue.as_bytes()), Some(task.as_bytes())])?;
        session.execute("RESET search_path", &[])?;
        session.execute("RESET statement_timeout", &[]).map(|_| ())
    } else {
        session.execute("DISCARD ALL", &[]).map(|_| ())
    }
}

/// The two keys of a running task's lock: for `why` and monitoring, no proof of anything.
fn sign(queue: &str, task: &str) -> String {
    let name = format!("pg_catalog.concat({queue}::pg_catalog.regclass::pg_catalog.oid, ':', {task}::pg_catalog.text)");
    format!("{}, pg_catalog.hashtext({name})", lock_key::TASK)
}
