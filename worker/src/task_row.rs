//! A task's row as its worker reads it.
//!
//! `task_row` reads one from a begin or a claim of one row, and from what the scheduler's claim returns. `batch_row` reads one
//! of several rows of a claim, whose common values its worker knows. Times are kept as the server writes them.

use crate::limits::LONGEST_TIMEOUT_MS;
use crate::result::error_text::Verbosity;
use crate::result::format::Format;
use crate::wire::Row;
use shared::region::TaskKey;
use std::time::Duration;

/// A task's row, as far as the worker needs it.
#[derive(Clone, Debug)]
pub struct TaskRow {
    pub task: i64,
    pub attempt: i32,
    pub input: Vec<u8>,
    pub group: Vec<u8>,
    /// Runs on another server: its conninfo, or the name of one.
    pub remote: Option<Vec<u8>>,
    pub atomic: bool,
    pub format: Format,
    pub timeout_ms: i64,
    pub verbosity: Verbosity,
    pub postmaster: Vec<u8>,
    /// Seconds, as the server writes them, to be given back to the server.
    pub start: Vec<u8>,
    pub max: i32,
    /// Its own count or live let the worker claim another one after it.
    pub reuse: bool,
    pub save: bool,
    /// It repeats or pauses its group: its end changes more than its row.
    pub consequences: bool,
    /// The job whose run it is, and the logical time that it runs for, as the server writes them.
    pub job: Option<Vec<u8>>,
    pub at: Option<Vec<u8>>,
    pub priority: i32,
    /// The claim, or the login, has set up the session for it.
    pub is_set_up: bool,
    /// The second key of its lock, if the scheduler's claim has returned it.
    pub lock_key: Option<i32>,
}

impl TaskRow {
    pub fn key(&self) -> TaskKey {
        TaskKey { task: self.task, attempt: self.attempt }
    }

    /// Its time limit as the server takes it; 0: none.
    pub fn limit_ms(&self) -> i64 {
        self.timeout_ms.clamp(0, LONGEST_TIMEOUT_MS)
    }

    pub fn timeout(&self) -> Option<Duration> {
        u64::try_from(self.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// When the server began that has handed the row out, in microseconds.
    pub fn postmaster_us(&self) -> Option<i64> {
        let seconds: f64 = std::str::from_utf8(&self.postmaster).ok()?.parse().ok()?;
        Some((seconds * 1e6).round() as i64)
    }
}

/// A value of type "char". A byte that is no ASCII is written by newer servers as a backslash and three octal digits.
fn character(value: Option<Vec<u8>>) -> Option<u8> {
    let bytes = value?;
    match bytes[..] {
        [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
        }
        _ => bytes.first().copied(),
    }
}

/// The values of a row, in the order of the statement's RETURNING list.
struct RowValues(std::vec::IntoIter<Option<Vec<u8>>>);

impl RowValues {
    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.0.next().flatten()
    }

    fn text(&mut self) -> String {
        self.bytes().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn number<T: std::str::FromStr + Default>(&mut self) -> T {
        self.text().parse().unwrap_or_default()
    }

    /// As a truth value is written, or as it is cast to text.
    fn truth(&mut self) -> bool {
        matches!(self.bytes().as_deref(), Some(b"t" | b"true"))
    }

    fn format(&mut self) -> Format {
        Format {
            header: self.truth(),
            string: self.truth(),
            delimiter: character(self.bytes()),
            escape: character(self.bytes()),
            quote: character(self.bytes()),
            null: self.bytes().unwrap_or_default(),
        }
    }
}

pub fn task_row(row: Row) -> TaskRow {
    let mut values = RowValues(row.into_iter());
    TaskRow {
        task: values.number(),
        attempt: values.number(),
        input: values.bytes().unwrap_or_default(),
        group: values.bytes().unwrap_or_default(),
        remote: values.bytes(),
        atomic: values.truth(),
        format: values.format(),
        timeout_ms: values.number(),
        verbosity: Verbosity::from_setting(&values.text()).unwrap_or_default(),
        postmaster: values.bytes().unwrap_or_default(),
        start: values.bytes().unwrap_or_default(),
        max: values.number(),
        reuse: values.truth(),
        save: values.truth(),
        consequences: values.truth(),
        job: values.bytes(),
        at: values.bytes(),
        priority: values.number(),
        is_set_up: false,
        lock_key: None,
    }
}

/// What is the same for all rows of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchCommon<'a> {
    pub group: &'a [u8],
    pub start: &'a [u8],
    pub verbosity: Verbosity,
    pub postmaster: &'a [u8],
}

pub fn batch_row(row: Row, common: BatchCommon<'_>) -> TaskRow {
    let mut values = RowValues(row.into_iter());
    TaskRow {
        task: values.number(),
        attempt: values.number(),
        input: values.bytes().unwrap_or_default(),
        group: common.group.to_vec(),
        remote: None,
        atomic: values.truth(),
        format: values.format(),
        timeout_ms: values.number(),
        verbosity: common.verbosity,
        postmaster: common.postmaster.to_vec(),
        start: common.start.to_vec(),
        max: values.number(),
        reuse: values.truth(),
        save: values.truth(),
        consequences: values.truth(),
        job: None,
        at: None,
        priority: values.number(),
        is_set_up: false,
        lock_key: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::db::statement::{RowValue, TASK_ROW};

    /// A value for each name, which tells from where it was read.
    fn values(wanted: impl Fn(&RowValue) -> bool) -> Row {
        let value = |name: &str| match name {
            "id" | "attempt" | "timeout_ms" | "max" | "priority" => name.len().to_string(),
            "atomic" | "string" | "reuse" => "t".to_owned(),
            "header" | "save" | "consequences" => "f".to_owned(),
            "verbosity" => "terse".to_owned(),
            other => other.to_owned(),
        };
        TASK_ROW.iter().filter(|row| wanted(row)).map(|row| Some(value(row.name).into_bytes())).collect()
    }

    fn is_read_by_name(row: &TaskRow) {
        assert_eq!((row.task, row.attempt, row.timeout_ms, row.max, row.priority), (2, 7, 10, 3, 8));
        assert_eq!(row.input, b"input");
        assert!(row.atomic && row.format.string && row.reuse && !row.format.header && !row.save && !row.consequences);
        let Format { delimiter, escape, quote, null, .. } = &row.format;
        assert_eq!((delimiter, escape, quote, &null[..]), (&Some(b'd'), &Some(b'e'), &Some(b'q'), &b"null"[..]));
    }

    #[test]
    fn a_row_is_read_in_the_order_in_which_statements_return_it() {
        let row = task_row(values(|_| true));
        is_read_by_name(&row);
        assert_eq!((&row.group[..], row.remote.as_deref()), (&b"group"[..], Some(&b"remote"[..])));
        assert_eq!((&row.postmaster[..], &row.start[..]), (&b"postmaster"[..], &b"start"[..]));
        assert_eq!((row.job.as_deref(), row.at.as_deref()), (Some(&b"job"[..]), Some(&b"at"[..])));
        assert_eq!(row.verbosity, Verbosity::from_setting("terse").expect("known"));
    }

    #[test]
    fn a_row_of_several_has_the_values_that_differ_from_row_to_row() {
        let common = BatchCommon { group: b"", start: b"", verbosity: Verbosity::default(), postmaster: b"" };
        is_read_by_name(&batch_row(values(|row| row.in_batch), common));
    }

    #[test]
    fn a_character_is_one_byte_however_the_server_writes_it() {
        let read = |text: &[u8]| character(Some(text.to_vec()));
        assert_eq!(read(b"\t"), Some(b'\t'));
        assert_eq!(read(b"\\"), Some(b'\\'));
        assert_eq!(read(b"\\303"), Some(0xc3));
        assert_eq!(read(b"\\377"), Some(0xff));
        assert_eq!(read(b"\xe9"), Some(0xe9));
        assert_eq!((read(b""), character(None)), (None, None));
    }
}
