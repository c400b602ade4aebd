//! PURE. From the answers of a task's SQL to its `output` and `error` columns.
//!
//! `run::input` gives an `Output` to `Session::run` as the sink and makes a `TaskResult` of it afterwards.
//! The output has a limit: the first row, tag or COPY piece that does not fit is left out whole, with all that
//! follows, and `Watch::overflowed` is called once, at that moment, so that the statement can be cancelled
//! while the rest is still coming. Values go from the wire into the output with no copy between, and the
//! output's memory never grows past the limit.
//!
//! The rules, which the tests below cite:
//! R1 the output is NULL until the first row, tag, COPY or error · R2 a newline goes before a header, a row or a
//! tag if and only if the text so far is not empty · R3 a header comes with the first row of a result of several
//! columns, if asked for · R4 header names are quoted whenever there is a quote · R5 NULL is never quoted, a
//! non-string is bare if `string` is set, all else is quoted, with each quote and escape inside escaped if both
//! are set · R6 the non-strings are known by type · R7 a statement with a row description writes no tag · R8
//! empty statements write nothing · R9 what was written before an error stays · R11 COPY data is appended as it
//! comes, without a tag · R10 a transaction left open is committed, without its tag · R12 notices go to the watch, not into the output. R13 to R15 are `error_text`'s.

use crate::limits::KEPT_ERRORS;
use crate::result::error_text::{Verbosity, error_text};
use crate::wire::{Column, ServerError, Sink};
use shared::region::{TaskKey, TaskResult};
use std::fmt;

/// The shape of the output, as the task's row says. None for a character that is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub header: bool,
    pub string: bool,
    pub delimiter: Option<u8>,
    pub escape: Option<u8>,
    pub quote: Option<u8>,
    pub null: Vec<u8>,
}

impl Default for Format {
    fn default() -> Format {
        Format { header: true, string: true, delimiter: Some(b'\t'), escape: None, quote: None, null: b"\\N".to_vec() }
    }
}

/// Who is told of what does not go into the texts.
pub trait Watch {
    /// The limit was reached, told once: nothing more is kept of what still comes.
    fn overflowed(&mut self);
    /// An error, before its text is kept.
    fn failed(&mut self, error: &ServerError);
    /// A notice or a warning.
    fn noticed(&mut self, notice: ServerError);
}

/// Collects the texts of one task.
pub struct Output<'a> {
    format: &'a Format,
    verbosity: Verbosity,
    statement: &'a [u8],
    limit: usize,
    watch: &'a mut dyn Watch,
    text: Option<Vec<u8>>,
    errors: Option<Vec<u8>>,
    error_count: usize,
    overflowed: bool,
    sent: Sent,
}

/// What the statement at hand has sent so far.
enum Sent {
    Nothing,
    Columns {
        names: Vec<Vec<u8>>,
        strings: Vec<bool>,
        began: bool,
    },
    /// Something whose tag is not shown: COPY data, or a statement of our own.
    Untagged,
}

/// Too much for the limit.
struct Full;

impl<'a> Output<'a> {
    /// `statement` is the input as sent, shown with errors; `limit` is the most bytes of output.
    pub fn new(
        format: &'a Format,
        verbosity: Verbosity,
        statement: &'a [u8],
        limit: usize,
        watch: &'a mut dyn Watch,
    ) -> Output<'a> {
        Output {
            format,
            verbosity,
            statement,
            limit,
            watch,
            text: None,
            errors: None,
            error_count: 0,
            overflowed: false,
            sent: Sent::Nothing,
        }
    }

    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub fn has_error(&self) -> bool {
        self.errors.is_some()
    }

    /// What follows is the worker's own BEGIN or COMMIT (R10): its tag is not shown, its error is.
    pub fn own_statement(&mut self) {
        self.sent = Sent::Untagged;
    }

    /// What has been written, as the result of this attempt.
    pub fn into_result(self, key: TaskKey) -> TaskResult<'static> {
        TaskResult::of_input(key, self.text, self.errors)
    }

    /// Writes all of it or nothing.
    fn write(&mut self, write: impl FnOnce(&mut Page<'_>) -> Result<(), Full>) {
        let text = self.text.get_or_insert_default();
        if self.overflowed {
            return;
        }
        let before = text.len();
        let mut page = Page { text, limit: self.limit, format: self.format };
        if write(&mut page).is_err() {
            text.truncate(before);
            self.overflow();
        }
    }
}

impl Sink for Output<'_> {
    fn columns(&mut self, columns: &[Column<'_>]) {
        let names = if self.format.header && columns.len() > 1 {
            columns.iter().map(|column| column.name.to_vec()).collect()
        } else {
            Vec::new()
        };
        let strings = columns.iter().map(|column| is_string(column.type_oid)).collect();
        self.sent = Sent::Columns { names, strings, began: false };
    }

    fn row(&mut self, values: &[Option<&[u8]>]) {
        // Taken out and put back, because writing needs the whole of self.
        let mut sent = std::mem::replace(&mut self.sent, Sent::Nothing);
        if let Sent::Columns { names, strings, began } = &mut sent {
            self.write(|page| {
                if !*began && !names.is_empty() {
                    page.header(names)?;
                }
                page.row(values, strings)
            });
            *began = true;
        }
        self.sent = sent;
    }

    fn copy_out(&mut self) {
        self.sent = Sent::Untagged;
        self.write(|_| Ok(()));
    }

    fn copy_data(&mut self, data: &[u8]) {
        self.write(|page| page.put(data));
    }

    fn tag(&mut self, tag: &[u8]) {
        if matches!(std::mem::replace(&mut self.sent, Sent::Nothing), Sent::Nothing) {
            self.write(|page| {
                page.part()?;
                page.put(tag)
            });
        }
    }

    fn error(&mut self, error: ServerError) {
        self.sent = Sent::Nothing;
        self.text.get_or_insert_default();
        self.watch.failed(&error);
        self.error_count += 1;
        if self.error_count > KEPT_ERRORS {
            return;
        }
        let text = error_text(&error, Some(self.statement), self.verbosity);
        match &mut self.errors {
            None => self.errors = Some(text),
            Some(errors) => {
                errors.push(b'\n');
                errors.extend_from_slice(&text);
            }
        }
    }

    fn notice(&mut self, notice: ServerError) {
        self.watch.noticed(notice);
    }

    fn room(&self) -> usize {
        if self.overflowed { 0 } else { self.limit - self.text.as_ref().map_or(0, Vec::len) }
    }

    fn overflow(&mut self) {
        self.text.get_or_insert_default();
        if !self.overflowed {
            self.overflowed = true;
            self.watch.overflowed();
        }
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.text.as_ref().map(Vec::len);
        write!(f, "Output({bytes:?} of {} bytes, {} errors)", self.limit, self.error_count)
    }
}

/// The output being written, with its limit.
struct Page<'a> {
    text: &'a mut Vec<u8>,
    limit: usize,
    format: &'a Format,
}

impl Page<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let needed = self.text.len() + bytes.len();
        if needed > self.limit {
            return Err(Full);
        }
        if needed > self.text.capacity() {
            let wanted = needed.max(self.text.capacity().saturating_mul(2).max(1024).min(self.limit));
            self.text.reserve_exact(wanted - self.text.len());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    /// Parts what comes from what is there.
    fn part(&mut self) -> Result<(), Full> {
        if self.text.is_empty() { Ok(()) } else { self.put(b"\n") }
    }

    fn header(&mut self, names: &[Vec<u8>]) -> Result<(), Full> {
        self.part()?;
        for (index, name) in names.iter().enumerate() {
            self.delimit(index)?;
            self.quoted(name)?;
        }
        Ok(())
    }

    fn row(&mut self, values: &[Option<&[u8]>], strings: &[bool]) -> Result<(), Full> {
        self.part()?;
        for (index, value) in values.iter().enumerate() {
            self.delimit(index)?;
            let string = strings.get(index).copied().unwrap_or(true);
            match value {
                None => self.put(&self.format.null)?,
                Some(value) if self.format.string && !string => self.put(value)?,
                Some(value) => self.quoted(value)?,
            }
        }
        Ok(())
    }

    fn delimit(&mut self, index: usize) -> Result<(), Full> {
        match self.format.delimiter {
            Some(delimiter) if index > 0 => self.put(&[delimiter]),
            _ => Ok(()),
        }
    }

    fn quoted(&mut self, value: &[u8]) -> Result<(), Full> {
        let Some(quote) = self.format.quote else {
            return self.put(value);
        };
        self.put(&[quote])?;
        match self.format.escape {
            None => self.put(value)?,
            Some(escape) => {
                let mut rest = value;
                while let Some(at) = rest.iter().position(|&byte| byte == quote || byte == escape) {
                    self.put(&rest[..at])?;
                    self.put(&[escape, rest[at]])?;
                    rest = &rest[at + 1..];
                }
                self.put(rest)?;
            }
        }
        self.put(&[quote])
    }
}

/// Bool, int8, int2, int4, oid, tid, xid, cid, float4, float8, bit and numeric are bare; all else is a string.
fn is_string(type_oid: u32) -> bool {
    !matches!(type_oid, 16 | 20 | 21 | 23 | 26 | 27 | 28 | 29 | 700 | 701 | 1560 | 1700)
}

#[cfg(test)]
mod tests;
