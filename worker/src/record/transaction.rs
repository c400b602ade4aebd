//! The transaction in which a record is written, around its statements.
//!
//! The task may have done anything to its session: another role, another search_path, read-only, a time limit. So each
//! record is one transaction that first sets what it relies on, for itself alone, and leaves the rest as the task left it.
//! Where the session need not be kept, the transaction resets it first: nothing that the task did can be in the way, its
//! statements stay prepared, and the session is ready for the next task afterwards.

use crate::limits::TRANSACTION_TRIES;
use crate::result::error_text::Verbosity;
use crate::session::reset::RESET;
use crate::session::setup::{BEGIN, COMMIT};
use crate::wire::{QueryError, Row, ServerError, Session, Statement};
use shared::db::identifier::literal;

/// What is known of a session and its server after a record that has reset it.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionReport {
    /// A task has left prepared statements behind.
    pub(super) has_foreign_statements: bool,
    pub(super) verbosity: Verbosity,
    pub(super) postmaster: Vec<u8>,
}

impl SessionReport {
    fn read(mut rows: Vec<Row>) -> SessionReport {
        let mut values = rows.pop().unwrap_or_default().into_iter();
        let mut next = || values.next().flatten().unwrap_or_default();
        let (count, verbosity, postmaster) = (next(), next(), next());
        let verbosity = Verbosity::from_setting(&String::from_utf8_lossy(&verbosity)).unwrap_or_default();
        SessionReport { has_foreign_statements: count != b"0", verbosity, postmaster }
    }
}

/// The statements in a transaction that leaves the session as it is; their rows. `lazy`: its commit need not wait for the
/// disk.
pub(super) fn beside_the_task(
    session: &mut Session,
    lazy: bool,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, QueryError> {
    tried(|| once_beside_the_task(session, lazy, statements))
}

/// The same without another try.
pub(super) fn once_beside_the_task(
    session: &mut Session,
    lazy: bool,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, QueryError> {
    let mut own = frame(server_major(session));
    if lazy {
        own.push(LAZY.to_owned());
    }
    let mut all: Vec<Statement<'_>> = own.iter().map(|sql| Statement::once(sql, &[])).collect();
    all.extend_from_slice(statements);
    all.push(Statement::once(COMMIT, &[]));
    let mut rows = session.transaction(&all)?;
    rows.truncate(own.len() + statements.len());
    Ok(rows.split_off(own.len()))
}

/// The same in a transaction that resets the session first. Prepared statements that a task has left behind go, and ours with
/// them.
pub(super) fn with_reset(
    session: &mut Session,
    lazy: bool,
    statements: &[Statement<'_>],
) -> Result<(Vec<Vec<Row>>, SessionReport), QueryError> {
    let frame = short_frame(session);
    let mut all = vec![Statement::prepared(BEGIN, &[])];
    all.extend(RESET.map(|text| Statement::prepared(text, &[])));
    if lazy {
        all.push(Statement::prepared(LAZY, &[]));
    }
    all.push(Statement::prepared(&frame, &[]));
    let head = all.len();
    all.extend_from_slice(statements);
    all.push(Statement::prepared(COMMIT, &[]));
    let mut rows = tried(|| session.transaction(&all))?;
    rows.truncate(head + statements.len());
    let own = rows.split_off(head);
    let report = SessionReport::read(rows.pop().unwrap_or_default());
    if report.has_foreign_statements {
        session.deallocate_all()?;
    }
    Ok((own, report))
}

/// The statements of the frame alone, inside a block that is open already.
pub(super) fn settings_in_block(session: &Session) -> Vec<String> {
    frame(server_major(session)).split_off(1)
}

/// What a claim relies on, where the transaction has not set it.
pub(super) fn planning() -> String {
    format!("SELECT {}", set_locally(PLANNING.into_iter()))
}

fn tried(mut once: impl FnMut() -> Result<Vec<Vec<Row>>, QueryError>) -> Result<Vec<Vec<Row>>, QueryError> {
    let mut tries = 1;
    loop {
        match once() {
            Err(QueryError::Server(error)) if passes(&error) && tries < TRANSACTION_TRIES => tries += 1,
            answer => return answer,
        }
    }
}

/// Serialization failure, deadlock, a cancel that came late; a statement that is no longer prepared, or whose table changed.
fn passes(error: &ServerError) -> bool {
    matches!(error.code(), Some(b"40001" | b"40P01" | b"57014" | b"26000" | b"42P05"))
        || (error.code() == Some(b"0A000") && error.message().is_some_and(|text| text.starts_with(b"cached plan")))
}

/// Where the queue's owner wants it so, its last commits may be lost with the server.
const LAZY: &str = "SET LOCAL synchronous_commit = off";

/// What a record relies on, for itself alone: nothing stops it, and it sees all rows.
const SETTINGS: [(&str, &str); 5] = [
    ("search_path", "pg_catalog, pg_temp"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("row_security", "off"),
];
/// And where tasks follow each other: waiting rows are read in the order of their index, whatever the statistics say. Those of a
/// table that was just filled know nothing of its rows. A plan of its own for each group would cost more than the claim, and
/// the server would rather read and sort all waiting rows, or join the rows of a batch by a hash. The reads of the triggers of
/// jobs are planned so too, once per session. Nothing is compiled, whatever its estimated cost.
const PLANNING: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("enable_hashjoin", "off"),
    ("jit", "off"),
];
/// From version 17 on.
const TRANSACTION_TIMEOUT: (&str, &str) = ("transaction_timeout", "0");

fn settings(major: u32) -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.into_iter().chain((major >= 17).then_some(TRANSACTION_TIMEOUT))
}

/// The same on a session that is reset, as one statement. It returns how many prepared statements there are that are not
/// ours, and the rest of a `SessionReport`, and releases the task's locks. The text has the prefix of our statements: it is
/// the same for as long as the session lives.
fn short_frame(session: &Session) -> String {
    let set = set_locally(settings(server_major(session)).chain(PLANNING));
    let ours = literal(session.prepared_prefix());
    format!(
        "SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statement() AS p \
         WHERE NOT pg_catalog.starts_with(p.name, {ours})), pg_catalog.current_setting('log_error_verbosity'), \
         extract(epoch FROM pg_catalog.pg_postmaster_start_time()), pg_catalog.pg_advisory_unlock_all(), {set}"
    )
}

/// As items of a SELECT.
fn set_locally<'s>(settings: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let set = settings.map(|(name, value)| format!("pg_catalog.set_config('{name}', '{value}', true)"));
    set.collect::<Vec<_>>().join(", ")
}

fn frame(major: u32) -> Vec<String> {
    let own = [BEGIN, "SET LOCAL SESSION AUTHORIZATION DEFAULT", "SET LOCAL ROLE NONE"].map(str::to_owned);
    own.into_iter()
        .chain(settings(major).map(|(name, value)| format!("SET LOCAL {name} = {}", literal_list(value))))
        .collect()
}

/// A path is a list of names, everything else one word.
fn literal_list(value: &str) -> String {
    if value.contains(',') { value.to_owned() } else { format!("'{value}'") }
}

fn server_major(session: &Session) -> u32 {
    let version = session.parameter("server_version").unwrap_or_default();
    let digits: String = version.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| *byte as char).collect();
    digits.parse().unwrap_or(0)
}
