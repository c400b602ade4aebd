//! Bookkeeping on the user's session: taking up a task and writing its end.
//!
//! The task may have done anything to its session: another role, another search_path, read-only, a time limit. So
//! each booking is one transaction that first sets what it relies on, for itself alone, and leaves the rest as the
//! task left it. Every statement is fenced by id, state and attempt: a worker that lost its task writes nothing.

use crate::wire::{QueryError, Row, ServerError, Session, Statement};
use shared::db::statement::{self, Queue};

/// A deadlock or a late cancel is worth another try; more of them in a row are not bad luck.
const TRIES: usize = 5;

/// A task's row, as far as the worker needs it.
#[derive(Debug)]
pub struct TaskRow {
    pub input: Vec<u8>,
    pub group: Vec<u8>,
    pub remote: bool,
    pub atomic: bool,
    pub format: crate::format::Format,
    pub timeout_ms: i64,
    pub verbosity: crate::error_text::Verbosity,
    pub postmaster: Vec<u8>,
}

/// What is written at the end.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub state: &'static str,
    pub output: Option<&'a [u8]>,
    pub error: Option<&'a [u8]>,
    pub reason: Option<&'static str>,
}

/// The books of one attempt of one task.
#[derive(Debug)]
pub struct Book {
    queue: Queue,
    task: String,
    attempt: String,
}

impl Book {
    pub fn new(queue: Queue, task: i64, attempt: i32) -> Book {
        Book { queue, task: task.to_string(), attempt: attempt.to_string() }
    }

    /// TAKE → WORK. None: the task is no longer ours.
    pub fn begin(&self, session: &mut Session) -> Result<Option<TaskRow>, QueryError> {
        let text = self.queue.fill(statement::BEGIN_TASK);
        let mut rows = transaction(session, &[Statement { sql: &text, params: &self.key() }])?;
        Ok(rows.pop().and_then(|mut rows| rows.pop()).map(task_row))
    }

    /// WORK → DONE or FAIL, and the row's deletion if it has nothing to say. False: the task is no longer ours.
    pub fn finish(&self, session: &mut Session, record: Record<'_>) -> Result<bool, QueryError> {
        let finish = self.queue.fill(statement::FINISH_TASK);
        let delete = self.queue.fill(statement::DELETE_FINISHED);
        let [task, attempt] = self.key();
        let reason = record.reason.map(str::as_bytes);
        let values = [task, attempt, Some(record.state.as_bytes()), record.output, record.error, reason];
        let statements =
            [Statement { sql: &finish, params: &values }, Statement { sql: &delete, params: &[task, attempt] }];
        let rows = retried(session, &statements)?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    /// WORK → PLAN, by the session that ran it and runs nothing any more.
    pub fn plan_again(&self, session: &mut Session) -> Result<bool, QueryError> {
        let text = self.queue.fill(statement::PLAN_AGAIN);
        let rows = retried(session, &[Statement { sql: &text, params: &self.key() }])?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    fn key(&self) -> [Option<&[u8]>; 2] {
        [Some(self.task.as_bytes()), Some(self.attempt.as_bytes())]
    }
}

/// When the server started: a session lost to a restart is told from one that somebody ended.
pub fn postmaster(session: &mut Session) -> Result<Vec<u8>, QueryError> {
    let rows = session.execute("SELECT pg_catalog.pg_postmaster_start_time()::text", &[])?;
    Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
}

fn retried(session: &mut Session, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
    let mut tries = 1;
    loop {
        match transaction(session, statements) {
            Err(QueryError::Server(error)) if passes(&error) && tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

/// Serialization failure, deadlock, a cancel that came late.
fn passes(error: &ServerError) -> bool {
    matches!(error.code(), Some(b"40001" | b"40P01" | b"57014"))
}

/// The statements' rows, without those of the frame around them.
fn transaction(session: &mut Session, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
    let major = server_major(session);
    let own = frame(major);
    let mut all: Vec<Statement<'_>> = own.iter().map(|sql| Statement { sql, params: &[] }).collect();
    all.extend_from_slice(statements);
    all.push(Statement { sql: "COMMIT", params: &[] });
    let mut rows = session.transaction(&all)?;
    rows.truncate(own.len() + statements.len());
    Ok(rows.split_off(own.len()))
}

fn frame(major: u32) -> Vec<&'static str> {
    let mut own = vec![
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        "SET LOCAL SESSION AUTHORIZATION DEFAULT",
        "SET LOCAL ROLE NONE",
        "SET LOCAL search_path = pg_catalog, pg_temp",
        "SET LOCAL statement_timeout = 0",
        "SET LOCAL lock_timeout = 0",
        "SET LOCAL idle_in_transaction_session_timeout = 0",
        "SET LOCAL row_security = off",
    ];
    if major >= 17 {
        own.push("SET LOCAL transaction_timeout = 0");
    }
    own
}

fn server_major(session: &Session) -> u32 {
    let version = session.parameter("server_version").unwrap_or_default();
    let digits: String = version.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| *byte as char).collect();
    digits.parse().unwrap_or(0)
}

/// In the order of the statement's RETURNING list.
fn task_row(row: Row) -> TaskRow {
    let mut values = row.into_iter();
    let mut next = || values.next().flatten();
    let truth = |value: Option<Vec<u8>>| value.as_deref() == Some(b"t");
    let character = |value: Option<Vec<u8>>| value.and_then(|bytes| bytes.first().copied());
    let input = next().unwrap_or_default();
    let group = next().unwrap_or_default();
    let remote = next().is_some();
    let atomic = truth(next());
    let format = crate::format::Format {
        header: truth(next()),
        string: truth(next()),
        delimiter: character(next()),
        escape: character(next()),
        quote: character(next()),
        null: next().unwrap_or_default(),
    };
    let text = |value: Option<Vec<u8>>| value.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let timeout_ms = text(next()).parse().unwrap_or(0);
    let verbosity = crate::error_text::Verbosity::from_setting(&text(next())).unwrap_or_default();
    TaskRow { input, group, remote, atomic, format, timeout_ms, verbosity, postmaster: next().unwrap_or_default() }
}
