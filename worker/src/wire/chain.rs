//! Inputs behind each other: what comes next is on its way while the one before still runs.
//!
//! The batch room calls it. A chain is what is still to be sent; whoever hears an answer sends meanwhile, so that large
//! inputs and large answers never block both sides. Before an input stands a reset, statements of our own: everything
//! that the task before it did to the session goes, and the session is set up for it. They are a transaction of their
//! own, with no Sync behind it: their answers come with those of the input, one write of the server for both, and if one
//! of them is refused the server passes over the input and whatever else is on the wire. So an input never runs on a
//! session that is not as new. An input that may leave a transaction open, or ask for COPY data, must be the last of its
//! chain: what stands behind it would end in its block, or be taken for its data.

use crate::limits::SETUP_MESSAGES;
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use super::error::LinkError;
use super::incoming::{Incoming, TransactionStatus, receive, unexpected};
use super::outgoing::Outgoing;
use super::server_error::ServerError;
use super::session::Session;
use super::sink::Sink;

/// What is to be sent, and how many statements of ours stand before each input that was not heard yet.
#[derive(Debug, Default)]
pub struct Chain<'a> {
    outgoing: Outgoing<'a>,
    before: VecDeque<usize>,
}

/// What became of an input.
#[derive(Debug)]
pub enum ChainAnswer {
    Ran,
    /// The session could not be made as new: neither the input nor any behind it has run.
    Refused(ServerError),
    /// The server has left before it came to the input, and has said so.
    Left(LinkError),
}

impl<'a> Chain<'a> {
    /// A task's SQL behind what makes the session new for it, by statements that stand on it; the last but one of them has
    /// values. Nothing is parsed anew, which would cost as much as a short task does. Refused: it cannot be sent, and
    /// nothing of it is.
    pub fn task(
        &mut self,
        (statements, values): (&[String], [&'a str; 2]),
        input: &'a [u8],
    ) -> Result<(), ServerError> {
        Outgoing::check_query(input)?;
        let values = values.map(|value| Some(value.as_bytes()));
        for (place, name) in statements.iter().enumerate() {
            self.outgoing.execute(name, if place + 2 == statements.len() { &values } else { &[] })?;
        }
        self.before.push_back(statements.len());
        self.outgoing.query(input)
    }

    /// The same behind statements that are parsed for this once.
    pub(super) fn once(statements: &[&'a str], input: &'a [u8]) -> Result<Chain<'a>, ServerError> {
        Outgoing::check_query(input)?;
        let mut chain = Chain::default();
        for text in statements {
            chain.outgoing.parse("", text)?;
            chain.outgoing.execute("", &[])?;
        }
        chain.before.push_back(statements.len());
        chain.outgoing.query(input)?;
        Ok(chain)
    }
}

impl Session {
    /// Hears the answers to the next input of the chain. If they are not over at `slow_at`, that is told, once.
    pub fn hear_input(
        &mut self,
        chain: &mut Chain<'_>,
        sink: &mut dyn Sink,
        slow_at: Option<Instant>,
        slow: &mut dyn FnMut(),
    ) -> Result<ChainAnswer, LinkError> {
        self.asked += 1;
        let mut told = slow_at.is_none();
        let mut ours = chain.before.pop_front().unwrap_or(0);
        let done = loop {
            if let Some(at) = slow_at.filter(|_| !told)
                && !self.link.await_answer(&mut chain.outgoing, at)
            {
                told = true;
                slow();
            }
            let heard = if ours > 0 {
                self.read_reset(chain, &mut ours)
            } else {
                self.answer(&mut chain.outgoing, sink).map(|last| last.then_some(ChainAnswer::Ran))
            };
            match heard {
                Ok(None) => {}
                Ok(Some(heard)) => break Ok(heard),
                Err(error) => break Err(error),
            }
        };
        self.link.forget_long();
        done.or_else(|error| {
            let lost = self.link.broken_by("query", &error);
            // What it said last stands behind all that it did before.
            if ours > 0 && lost.fatal.is_some() { Ok(ChainAnswer::Left(lost)) } else { Err(lost) }
        })
    }

    /// The answers to what stands before an input, as far as they have come; `ours` says how many are missing.
    fn read_reset(&mut self, chain: &mut Chain<'_>, ours: &mut usize) -> io::Result<Option<ChainAnswer>> {
        for _ in 0..SETUP_MESSAGES {
            match receive(&mut self.link, &mut self.parameters, &mut chain.outgoing, 1 << 20)? {
                Incoming::Tag(_) => *ours -= 1,
                Incoming::Error(refusal) => {
                    return self.come_to_order(chain).map(|()| Some(ChainAnswer::Refused(refusal)));
                }
                Incoming::Row(_) | Incoming::Empty | Incoming::Notice(_) => {}
                Incoming::Parsed | Incoming::Step | Incoming::Columns(_) => {}
                Incoming::Ready(_) => return Err(unexpected(b'Z')),
                Incoming::TooLong => return Err(unexpected(b'D')),
                Incoming::CopyOut | Incoming::CopyData(_) => return Err(unexpected(b'H')),
                Incoming::CopyIn => return Err(unexpected(b'G')),
            }
            if *ours == 0 || !self.link.has_unread() {
                return Ok(None);
            }
        }
        Err(io::Error::other("the answer of the server has no end"))
    }

    /// The server passes over all that is on the wire until it is told where to go on; its answer to that stands for the
    /// one to the input.
    fn come_to_order(&mut self, chain: &mut Chain<'_>) -> io::Result<()> {
        chain.before.clear();
        chain.outgoing.sync();
        let _ = self.hear_quietly(&mut chain.outgoing)?;
        if self.status == TransactionStatus::Idle {
            return Ok(());
        }
        self.asked += 1;
        chain.outgoing.query(b"ROLLBACK").map_err(|refusal| io::Error::other(refusal.to_string()))?;
        self.hear_quietly(&mut chain.outgoing)?.map_err(|refusal| io::Error::other(refusal.to_string()))
    }

    pub(super) fn hear_quietly(&mut self, outgoing: &mut Outgoing<'_>) -> io::Result<Result<(), ServerError>> {
        let mut refusal = None;
        for _ in 0..SETUP_MESSAGES {
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
        Err(io::Error::other("the answer of the server has no end"))
    }
}
