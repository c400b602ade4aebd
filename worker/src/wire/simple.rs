//! The simple query: one input, all its answers into a sink.
//!
//! This is how a task's SQL runs, as one string and so as one implicit transaction. COPY FROM STDIN is refused
//! through the protocol and the session lives on. Whatever the input, the session is ready for the next request
//! when `run` returns Ok; an Err means that it is lost.

use std::io;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::error::LinkError;
use super::incoming::{Incoming, receive, unexpected};
use super::outgoing::Outgoing;
use super::session::Session;
use super::sink::Sink;

/// What the user reads after a COPY FROM STDIN (the server puts its own words before it).
const NO_COPY_IN: &str = "COPY FROM STDIN is not supported";

impl Session {
    /// Runs an input and waits for its end. An input that cannot be sent (it has a NUL, or is longer than the
    /// server accepts) is told to the sink as an error, with the server untouched.
    pub fn run(&mut self, input: &[u8], sink: &mut dyn Sink) -> Result<(), LinkError> {
        let mut outgoing = Outgoing::default();
        if let Err(refusal) = outgoing.query(input) {
            sink.error(refusal);
            return Ok(());
        }
        self.asked += 1;
        let done = self.answers(&mut outgoing, sink);
        self.link.forget_long();
        done.map_err(|error| self.link.broken_by("query", &error))
    }

    pub(super) fn answers(&mut self, outgoing: &mut Outgoing<'_>, sink: &mut dyn Sink) -> io::Result<()> {
        while !self.answer(outgoing, sink)? {}
        if outgoing.is_empty() { Ok(()) } else { Err(unexpected(b'Z')) }
    }

    /// One message of the answers to an input. True: it was the last.
    pub(super) fn answer(&mut self, outgoing: &mut Outgoing<'_>, sink: &mut dyn Sink) -> io::Result<bool> {
        match receive(&mut self.link, &mut self.parameters, outgoing, sink.room())? {
            Incoming::Columns(columns) => sink.columns(&columns),
            Incoming::Row(values) => sink.row(&values),
            Incoming::CopyOut => sink.copy_out(),
            Incoming::CopyData(data) => sink.copy_data(data),
            Incoming::TooLong => sink.overflow(),
            Incoming::Tag(tag) => sink.tag(tag),
            Incoming::Error(error) => sink.error(error),
            Incoming::Notice(notice) => sink.notice(notice),
            Incoming::Empty | Incoming::Parsed | Incoming::Step => {}
            Incoming::CopyIn => {
                let mut refusal = BytesMut::new();
                frontend::copy_fail(NO_COPY_IN, &mut refusal)?;
                outgoing.own(&refusal);
            }
            Incoming::Ready(status) => {
                self.answered += 1;
                self.status = status;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
