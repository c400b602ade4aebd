//! Where the answers to a task's SQL go, one call per message, in the order of the wire.
//!
//! `Session::run` calls it; `format::Output` is the sink of a task. Nothing is kept between two calls, so whoever
//! wants to keep a name or a value copies it, and `room` says how much it still takes.

use super::server_error::ServerError;

/// One column of a row description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    pub name: &'a [u8],
    pub type_oid: u32,
}

/// Receives the answers of one simple query.
pub trait Sink {
    /// A statement that answers with rows begins; there may be none to come.
    fn columns(&mut self, columns: &[Column<'_>]);
    /// One row of the result begun last.
    fn row(&mut self, values: &[Option<&[u8]>]);
    /// A COPY .. TO STDOUT begins; there may be no data to come.
    fn copy_out(&mut self);
    /// A piece of that COPY, as sent.
    fn copy_data(&mut self, data: &[u8]);
    /// A statement ended well. Called for every statement, those with rows or COPY data included.
    fn tag(&mut self, tag: &[u8]);
    /// A statement failed; the rest of the input is not run. FATAL errors do not come here, they are in the
    /// `LinkError` that follows from them.
    fn error(&mut self, error: ServerError);
    /// A warning, a notice or other chat.
    fn notice(&mut self, notice: ServerError);
    /// How many bytes of values or COPY data it still takes.
    fn room(&self) -> usize;
    /// Called in place of `row` or `copy_data` for each message that has more bytes than `room`; its bytes were
    /// passed over without being kept.
    fn overflow(&mut self);
}

/// Hears nothing: for statements whose answer is of no interest.
#[derive(Debug)]
pub(super) struct Deaf;

impl Sink for Deaf {
    fn columns(&mut self, _: &[Column<'_>]) {}
    fn row(&mut self, _: &[Option<&[u8]>]) {}
    fn copy_out(&mut self) {}
    fn copy_data(&mut self, _: &[u8]) {}
    fn tag(&mut self, _: &[u8]) {}
    fn error(&mut self, _: ServerError) {}
    fn notice(&mut self, _: ServerError) {}
    fn room(&self) -> usize {
        0
    }
    fn overflow(&mut self) {}
}
