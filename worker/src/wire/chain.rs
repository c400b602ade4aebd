//! Inputs behind each other: what comes next is on its way while the one before still runs.
//!
//! The batch room calls it. A chain is what is still to be sent; whoever hears an answer sends meanwhile, so that large
//! inputs and large answers never block both sides. Before an input stands a renewal, statements of our own: everything
//! that the task before it did to the session goes, and the session is dressed for it. An input that may leave a
//! transaction open, or ask for COPY data, must be the last of its chain: what stands behind it would end in its block, or
//! be taken for its data.

use std::io;
use std::time::Instant;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::Session;
use super::error::LinkError;
use super::incoming::{Incoming, receive, unexpected};
use super::outgoing::Outgoing;
use super::server_error::ServerError;
use super::simple::NO_COPY_IN;
use super::sink::Sink;

/// What a server may say besides answering to a renewal.
const CHATTER: usize = 10_000;

/// What is to be sent, and how many answers are still to be heard.
#[derive(Debug, Default)]
pub struct Chain<'a> {
    outgoing: Outgoing<'a>,
}

impl<'a> Chain<'a> {
    /// A task's SQL. Refused: it cannot be sent, and nothing of it is.
    pub fn input(&mut self, input: &'a [u8]) -> Result<(), ServerError> {
        self.outgoing.query(input)
    }

    /// What makes the session new, by statements that stand on it, in one transaction; the last of them has values. Nothing
    /// is parsed anew, which would cost as much as a short task does.
    pub fn renewal(&mut self, (statements, values): (&[String], [&'a str; 2])) -> Result<(), ServerError> {
        let values = values.map(|value| Some(value.as_bytes()));
        for (place, name) in statements.iter().enumerate() {
            self.outgoing.execute(name, if place + 1 == statements.len() { &values } else { &[] })?;
        }
        self.outgoing.sync();
        Ok(())
    }
}

impl Session {
    /// Hears the answers to the next input of the chain. If they are not over at `slow_at`, that is told, once.
    pub fn hear_input(
        &mut self,
        chain: &mut Chain<'_>,
        sink: &mut dyn Sink,
        slow_at: Instant,
        slow: &mut dyn FnMut(),
    ) -> Result<(), LinkError> {
        self.asked += 1;
        let done = self.hear(chain, sink, slow_at, slow);
        self.link.forget_long();
        done.map_err(|error| self.link.broken(format!("lost the session while a query ran: {error}")))
    }

    fn hear(
        &mut self,
        chain: &mut Chain<'_>,
        sink: &mut dyn Sink,
        slow_at: Instant,
        slow: &mut dyn FnMut(),
    ) -> io::Result<()> {
        let mut told = false;
        loop {
            if !told && !self.link.await_answer(&mut chain.outgoing, slow_at) {
                told = true;
                slow();
            }
            match receive(&mut self.link, &mut self.parameters, &mut chain.outgoing, sink.room())? {
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
                    chain.outgoing.own(&refusal);
                }
                Incoming::Ready(status) => {
                    self.answered += 1;
                    self.status = status;
                    return Ok(());
                }
            }
        }
    }

    /// Hears the answers to the next renewal of the chain. Refused: the session is not as new.
    pub fn hear_renewal(&mut self, chain: &mut Chain<'_>) -> Result<Result<(), ServerError>, LinkError> {
        self.asked += 1;
        let heard = self.hear_quietly(&mut chain.outgoing);
        self.link.forget_long();
        heard.map_err(|error| self.link.broken(format!("lost the session while it was renewed: {error}")))
    }

    pub(super) fn hear_quietly(&mut self, outgoing: &mut Outgoing<'_>) -> io::Result<Result<(), ServerError>> {
        let mut refusal = None;
        for _ in 0..CHATTER {
            match receive(&mut self.link, &mut self.parameters, outgoing, 1 << 20)? {
                Incoming::Error(error) => refusal = refusal.or(Some(error)),
                Incoming::Row(_) | Incoming::Tag(_) | Incoming::Empty | Incoming::Notice(_) => {}
                Incoming::Parsed | Incoming::Step | Incoming::Columns(_) => {}
                Incoming::Ready(status) => {
                    self.answered += 1;
                    self.status = status;
                    return Ok(refusal.map_or(Ok(()), Err));
                }
                Incoming::TooLong => return Err(unexpected(b'D')),
                Incoming::CopyOut | Incoming::CopyData(_) => return Err(unexpected(b'H')),
                Incoming::CopyIn => return Err(unexpected(b'G')),
            }
        }
        Err(io::Error::other("server does not come to an end"))
    }
}
