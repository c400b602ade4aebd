//! The setup of a session for its task: ONE list of settings, rendered where a session is set up.
//!
//! Settings, then the task's lock and the proof that the scheduler's session is on the same server. They go in a
//! transaction of our own before the input: inside the input's string a procedure could no longer COMMIT. `set_up` sends
//! them as parameters, `before_input` as a text for the same write as the input, `PreparedSetup` as a statement that
//! stays prepared while a group's tasks follow each other, `login` and `login_of_group` with the login, `options` with a
//! login on a remote. The claim of a single task (shared/sql/task) sets them too, for the row that it has found.

use super::reset::RESET;
use super::task_lock::lock_keys;
use crate::limits::LONGEST_GROUP_BYTES;
use crate::task_row::TaskRow;
use crate::wire::{QueryError, Session};
use shared::db::identifier::{literal, qualified};
use shared::db::lock_key;
use shared::db::server::proof_item;
use shared::process::order::WorkerOrder;
use std::borrow::Cow;

/// Opens a transaction of ours, and ends it.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
pub(crate) const COMMIT: &str = "COMMIT";

/// Where the value of a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Task,
    Group,
    Schema,
    Table,
    ApplicationName,
    /// The task's time limit, if it has one.
    Limit,
    /// Whose run it is, for which time, and the how-manieth try; of a job's run only.
    Job,
    At,
    Attempt,
}

/// What a task's SQL may read, and its time limit.
const SETTINGS: [(&str, Source); 9] = [
    ("pg_task.id", Source::Task),
    ("pg_task.group", Source::Group),
    ("pg_task.schema", Source::Schema),
    ("pg_task.table", Source::Table),
    ("application_name", Source::ApplicationName),
    ("statement_timeout", Source::Limit),
    ("mill.job", Source::Job),
    ("mill.at", Source::At),
    ("mill.attempt", Source::Attempt),
];

/// The server looks for its client every 300 ms while it works: a killed worker's statement must not run on. A session of
/// our own has it from its login, one behind a pooler may not.
const WATCH_CLIENT: &str = "pg_catalog.set_config('client_connection_check_interval', '300', false)";

/// What pg_stat_activity shows of a session that runs no task.
pub(crate) fn application_name(order: &WorkerOrder) -> String {
    format!("pg_task {} {}", order.schema, order.table)
}

/// The settings of one task that have a value.
fn settings<'a>(order: &'a WorkerOrder, row: &'a TaskRow) -> impl Iterator<Item = (&'static str, Cow<'a, [u8]>)> {
    let value = |source: Source| -> Option<Cow<'a, [u8]>> {
        Some(match source {
            Source::Task => row.task.to_string().into_bytes().into(),
            Source::Group => row.group.as_slice().into(),
            Source::Schema => order.schema.as_bytes().into(),
            Source::Table => order.table.as_bytes().into(),
            Source::ApplicationName => {
                let mut name = format!("{} ", application_name(order)).into_bytes();
                name.extend_from_slice(&row.group);
                name.into()
            }
            Source::Limit if row.limit_ms() == 0 => return None,
            Source::Limit => row.limit_ms().to_string().into_bytes().into(),
            Source::Job => row.job.as_deref()?.into(),
            Source::At => row.job.as_ref().map(|_| row.at.as_deref().unwrap_or_default())?.into(),
            Source::Attempt => row.job.as_ref().map(|_| row.attempt.to_string().into_bytes())?.into(),
        })
    };
    SETTINGS.into_iter().filter_map(move |(name, source)| Some((name, value(source)?)))
}

/// As an item of a SELECT.
fn set(name: &str, value: &str) -> String {
    format!("pg_catalog.set_config('{name}', {value}, false)")
}

fn select<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<String> = names.enumerate().map(|(place, name)| set(name, &format!("${}", place + 1))).collect();
    format!("SELECT {}", items.join(", "))
}

fn queue_text(order: &WorkerOrder) -> String {
    literal(&qualified(&order.schema, &order.table))
}

/// As a further item of a SELECT: fails where the scheduler's session is not.
fn proof(order: &WorkerOrder) -> String {
    order.home.as_ref().map(|home| format!(", {}", proof_item(home.proof))).unwrap_or_default()
}

/// Sets up a session that is not set up in any other way. What the claim has set up lacks only the time limit.
pub(crate) fn set_up(session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let all: Vec<_> = settings(order, row).collect();
    if row.is_set_up {
        let limit = all.iter().find(|(name, _)| *name == "statement_timeout");
        return limit
            .map_or(Ok(()), |(name, value)| session.execute(&select([*name].into_iter()), &[Some(value)]).map(|_| ()));
    }
    let names = select(all.iter().map(|(name, _)| *name));
    let lock = lock_keys(&queue_text(order), &literal(&row.task.to_string()));
    let text = format!(
        "{names}, {WATCH_CLIENT}, pg_catalog.pg_try_advisory_lock({lock}){}, pg_catalog.pg_backend_pid()",
        proof(order)
    );
    let values: Vec<Option<&[u8]>> = all.iter().map(|(_, value)| Some(&value[..])).collect();
    let rows = session.execute(&text, &values)?;
    // A pooler has numbers of its own. A termination needs the server's.
    session.learn_backend(rows.first().and_then(|row| row.last()).and_then(Option::as_deref));
    Ok(())
}

/// The same on a remote, where our table is not, nor the scheduler.
pub(crate) fn set_up_remote(session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let all: Vec<_> = settings(order, row).collect();
    let values: Vec<Option<&[u8]>> = all.iter().map(|(_, value)| Some(&value[..])).collect();
    session.execute(&select(all.iter().map(|(name, _)| *name)), &values).map(|_| ())
}

/// The setup as a text that is sent with the input, for a session of our own, which watches its client from its login. If its
/// login has brought the settings, only the lock and the proof.
pub(crate) fn before_input(order: &WorkerOrder, row: &TaskRow) -> String {
    let mut text = String::with_capacity(512);
    text.push_str("SELECT ");
    if !row.is_set_up {
        for (name, value) in settings(order, row) {
            text.push_str(&set(name, &literal(&String::from_utf8_lossy(&value))));
            text.push_str(", ");
        }
    }
    let keys = match row.lock_key {
        Some(key) => format!("{}, {key}", lock_key::TASK),
        None => lock_keys(&queue_text(order), &literal(&row.task.to_string())),
    };
    text.push_str(&format!("pg_catalog.pg_try_advisory_lock({keys})"));
    text.push_str(&proof(order));
    text
}

/// The settings with the login of a session for one task. None: a login has no encoding, so it carries ASCII only.
pub(crate) fn login<'a>(order: &'a WorkerOrder, row: &'a TaskRow) -> Option<Vec<(&'static str, String)>> {
    let ascii = |value: Cow<'_, [u8]>| String::from_utf8(value.into_owned()).ok().filter(|text| text.is_ascii());
    settings(order, row).map(|(name, value)| Some((name, ascii(value)?))).collect()
}

/// The settings with the login of a session whose tasks are all of one group: however often they are reset, they are right.
pub(crate) fn login_of_group(order: &WorkerOrder, group: &str) -> Vec<(&'static str, String)> {
    let value = |source: Source| match source {
        Source::Group => Some(group.to_owned()),
        Source::Schema => Some(order.schema.clone()),
        Source::Table => Some(order.table.clone()),
        Source::ApplicationName => Some(format!("{} {group}", application_name(order))),
        Source::Task | Source::Limit | Source::Job | Source::At | Source::Attempt => None,
    };
    SETTINGS.into_iter().filter_map(|(name, source)| Some((name, value(source)?))).collect()
}

/// The `options` of a login on a remote: what a task's SQL may read from the first moment on. `options` of the conninfo
/// come before them.
pub(crate) fn options(order: &WorkerOrder, task: i64) -> String {
    let value = |source: Source| match source {
        Source::Task => Some(task.to_string()),
        Source::Schema => Some(order.schema.clone()),
        Source::Table => Some(order.table.clone()),
        Source::Group | Source::ApplicationName | Source::Limit | Source::Job | Source::At | Source::Attempt => None,
    };
    let given = SETTINGS.into_iter().filter_map(|(name, source)| Some((name, value(source)?)));
    given.map(|(name, value)| format!("-c {name}={}", escaped(&value))).collect::<Vec<_>>().join(" ")
}

/// A value in `options`: blanks and backslashes get a backslash.
fn escaped(value: &str) -> String {
    value.chars().flat_map(|c| (c.is_whitespace() || c == '\\').then_some('\\').into_iter().chain([c])).collect()
}

/// The setup as a statement that stays prepared while tasks of one group follow each other: the task's id ($1) and time limit
/// ($2) are open. It also releases the locks of the task before. For a session of our own, whose login may have brought the
/// settings of the group. None: the group cannot be written into a statement, or its name is too long.
pub(crate) fn prepared_text(order: &WorkerOrder, group: &[u8], by_login: bool) -> Option<String> {
    let group = std::str::from_utf8(group).ok().filter(|group| group.len() <= LONGEST_GROUP_BYTES)?;
    let of_group = login_of_group(order, group);
    let item = |(name, source): (&'static str, Source)| match source {
        Source::Task => Some(set(name, "$1")),
        Source::Limit => Some(format!("CASE WHEN $2 OPERATOR(pg_catalog.<>) '0' THEN {} END", set(name, "$2"))),
        _ if by_login => None,
        _ => of_group.iter().find(|(own, _)| *own == name).map(|(_, value)| set(name, &literal(value))),
    };
    let items: Vec<String> = SETTINGS.into_iter().filter_map(item).collect();
    Some(format!(
        "SELECT pg_catalog.pg_advisory_unlock_all(), {}, pg_catalog.pg_try_advisory_lock({}){}",
        items.join(", "),
        lock_keys(&queue_text(order), "$1"),
        proof(order)
    ))
}

/// What is sent before each task of a batch: a transaction in which the session is reset, unless it is, and set up. By the
/// names of prepared statements; the setup is the last but one, and its values are the task's.
#[derive(Debug)]
pub(crate) struct PreparedSetup {
    with_reset: Vec<String>,
    without: Vec<String>,
    values: Vec<[String; 2]>,
}

impl PreparedSetup {
    /// For these rows, which are all of one group.
    pub(crate) fn new(
        session: &mut Session,
        order: &WorkerOrder,
        rows: &[TaskRow],
    ) -> Result<PreparedSetup, QueryError> {
        let setup = rows.first().and_then(|row| prepared_text(order, &row.group, session.is_of_group(&row.group)));
        let setup = setup.unwrap_or_default();
        let mut prepare =
            |texts: &[&str]| texts.iter().map(|text| session.prepare(text)).collect::<Result<Vec<_>, _>>();
        let without = prepare(&[BEGIN, &setup, COMMIT])?;
        let with_reset = [&without[..1], &prepare(&RESET)?, &without[1..]].concat();
        let values = rows.iter().map(|row| [row.task.to_string(), row.limit_ms().to_string()]).collect();
        Ok(PreparedSetup { with_reset, without, values })
    }

    /// What is sent before the row in this place. The first one finds a session that is reset.
    pub(crate) fn before(&self, place: usize) -> (&[String], [&str; 2]) {
        let statements = if place == 0 { &self.without } else { &self.with_reset };
        (statements, self.values[place].each_ref().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_value_in_options_stays_one_value() {
        assert_eq!(escaped("public"), "public");
        assert_eq!(escaped("my schema\\x -c a=b"), "my\\ schema\\\\x\\ -c\\ a=b");
    }
}
