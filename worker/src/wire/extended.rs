//! Our own statements with parameters: one, or several in one write under one Sync.
//!
//! Record and take use it. Parameters go as text straight from the caller's memory, their types are the
//! server's to find, results come as text. Notices are passed over. After a `QueryError::Server` the session lives
//! on; a COPY is no business of such statements and ends the link. Prepared statements are parsed once per session
//! and stay; if the task's own SQL has deallocated them, the server says so and the caller's next try parses them
//! anew, under other names.

use crate::limits::{ANSWER_BYTES, OTHER_MESSAGES, ROW_BYTES};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::chain::{Chain, ChainAnswer};
use super::error::{LinkError, QueryError};
use super::incoming::{Incoming, TransactionStatus, receive, unexpected};
use super::outgoing::Outgoing;
use super::server_error::ServerError;
use super::session::Session;
use super::sink::{Deaf, Sink};

/// One row, each value as text, None for NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// One statement of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    pub sql: &'a str,
    pub params: &'a [Option<&'a [u8]>],
    /// Parsed once per session.
    pub prepared: bool,
}

impl<'a> Statement<'a> {
    /// Parsed and forgotten.
    pub fn once(sql: &'a str, params: &'a [Option<&'a [u8]>]) -> Statement<'a> {
        Statement { sql, params, prepared: false }
    }

    /// Parsed once, for statements that come again and again.
    pub fn prepared(sql: &'a str, params: &'a [Option<&'a [u8]>]) -> Statement<'a> {
        Statement { sql, params, prepared: true }
    }
}

impl Session {
    /// Runs one statement and returns its rows. A transaction block that was open stays as the server leaves it.
    pub fn execute(&mut self, sql: &str, params: &[Option<&[u8]>]) -> Result<Vec<Row>, QueryError> {
        let mut answers = self.pipeline(&[Statement::once(sql, params)])?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Sends exactly these statements (BEGIN and COMMIT are the caller's) in one write and returns the rows of
    /// each. After an error the server skips the rest, and a block left open by it is rolled back.
    pub fn transaction(&mut self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
        let answers = self.pipeline(statements);
        if matches!(answers, Err(QueryError::Server(_))) && self.status != TransactionStatus::Idle {
            self.link.set_deadline(Some(Instant::now() + self.answer_timeout));
            self.run(b"ROLLBACK", &mut Deaf)?;
            self.link.set_deadline(None);
        }
        answers
    }

    /// Runs an input as `run` does, behind statements of ours in the same write. If the server refuses one of these, it skips
    /// the input.
    pub fn run_behind(&mut self, first: &[&str], input: &[u8], sink: &mut dyn Sink) -> Result<ChainAnswer, LinkError> {
        match Chain::once(first, input) {
            Ok(mut chain) => self.hear_input(&mut chain, sink, None, &mut || {}),
            Err(refusal) => {
                sink.error(refusal);
                Ok(ChainAnswer::Ran)
            }
        }
    }

    /// How long a server may take for statements of ours: one that never answers must not hold a worker for ever.
    pub fn set_answer_timeout(&mut self, answer_timeout: Duration) {
        self.answer_timeout = answer_timeout;
    }

    fn pipeline(&mut self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
        let mut outgoing = Outgoing::default();
        let mut parsing = VecDeque::new();
        for statement in statements {
            let named = statement.prepared.then(|| self.prepared.index(statement.sql));
            let name = named.map(|index| self.prepared.name(index)).unwrap_or_default();
            let parsed = named.is_some_and(|index| self.prepared.is_parsed(index));
            // Twice in one write: the first one parses it for both.
            let soon = named.is_some() && parsing.contains(&named);
            if !parsed && !soon {
                outgoing.parse(&name, statement.sql).map_err(QueryError::Server)?;
                parsing.push_back(named);
            }
            outgoing.execute(&name, statement.params).map_err(QueryError::Server)?;
        }
        outgoing.sync();
        self.asked += 1;
        self.link.set_deadline(Some(Instant::now() + self.answer_timeout));
        let answered = self.rows(&mut outgoing, &mut parsing, statements.len());
        self.link.forget_long();
        if answered.is_ok() {
            self.link.set_deadline(None);
        }
        if let Ok(Err(refusal)) = &answered
            && matches!(refusal.code(), Some(b"26000" | b"0A000" | b"42P05"))
        {
            self.prepared.forget();
        }
        match answered {
            Ok(Ok(answers)) if answers.len() == statements.len() => Ok(answers),
            Ok(Ok(answers)) => {
                let what = format!("server answered {} of {} statements", answers.len(), statements.len());
                Err(QueryError::Link(self.link.broken(what)))
            }
            Ok(Err(error)) => Err(QueryError::Server(error)),
            Err(error) => Err(QueryError::Link(self.lost(&error))),
        }
    }

    /// What the names of our prepared statements begin with, and those of no others.
    pub fn prepared_prefix(&self) -> &str {
        self.prepared.prefix()
    }

    /// Prepares a statement, unless it is, and returns its name, for a chain.
    pub fn prepare(&mut self, sql: &str) -> Result<String, QueryError> {
        let index = self.prepared.index(sql);
        let name = self.prepared.name(index);
        if self.prepared.is_parsed(index) {
            return Ok(name);
        }
        let mut outgoing = Outgoing::default();
        outgoing.parse(&name, sql).map_err(QueryError::Server)?;
        outgoing.sync();
        self.asked += 1;
        self.link.set_deadline(Some(Instant::now() + self.answer_timeout));
        match self.rows(&mut outgoing, &mut VecDeque::from([Some(index)]), 0) {
            Ok(Ok(_)) => {
                self.link.set_deadline(None);
                Ok(name)
            }
            Ok(Err(refusal)) => {
                self.link.set_deadline(None);
                Err(QueryError::Server(refusal))
            }
            Err(error) => Err(QueryError::Link(self.lost(&error))),
        }
    }

    /// All prepared statements of the session go, ours too.
    pub fn deallocate_all(&mut self) -> Result<(), QueryError> {
        self.prepared.forget();
        self.execute("DEALLOCATE ALL", &[]).map(|_| ())
    }

    /// Everything goes.
    pub fn discard_all(&mut self) -> Result<(), QueryError> {
        self.prepared.forget();
        self.execute("DISCARD ALL", &[]).map(|_| ())
    }

    fn lost(&mut self, error: &io::Error) -> LinkError {
        self.link.broken_by("statement", error)
    }

    /// The rows of each statement that ended, or the first error.
    fn rows(
        &mut self,
        outgoing: &mut Outgoing<'_>,
        parsing: &mut VecDeque<Option<usize>>,
        wanted: usize,
    ) -> io::Result<Result<Vec<Vec<Row>>, ServerError>> {
        let mut answers = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        let mut refusal = None;
        let mut room = ANSWER_BYTES;
        let mut chat = 0;
        loop {
            match receive(&mut self.link, &mut self.parameters, outgoing, room)? {
                Incoming::Row(values) => {
                    let row: Row = values.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
                    let bytes: usize = row.iter().flatten().map(Vec::len).sum();
                    room = room.saturating_sub(bytes + ROW_BYTES * (1 + row.len()));
                    if room == 0 {
                        return Err(io::Error::other("the answer is longer than 1 GiB"));
                    }
                    rows.push(row);
                }
                Incoming::Tag(_) | Incoming::Empty if answers.len() == wanted => return Err(unexpected(b'C')),
                Incoming::Tag(_) | Incoming::Empty => answers.push(std::mem::take(&mut rows)),
                Incoming::Error(error) if refusal.is_none() => refusal = Some(error),
                Incoming::Error(_) | Incoming::Notice(_) | Incoming::Step => {
                    chat += 1;
                    if chat > OTHER_MESSAGES {
                        return Err(io::Error::other("the answer of the server has no end"));
                    }
                }
                Incoming::Parsed => {
                    if let Some(index) = parsing.pop_front().flatten() {
                        self.prepared.set_parsed(index);
                    }
                }
                Incoming::TooLong => return Err(io::Error::other("the answer is longer than 1 GiB")),
                Incoming::Columns(_) => return Err(unexpected(b'T')),
                Incoming::CopyOut => return Err(unexpected(b'H')),
                Incoming::CopyData(_) => return Err(unexpected(b'd')),
                Incoming::CopyIn => return Err(unexpected(b'G')),
                Incoming::Ready(_) if !outgoing.is_empty() => return Err(unexpected(b'Z')),
                Incoming::Ready(status) => {
                    self.answered += 1;
                    self.status = status;
                    return Ok(refusal.map_or(Ok(answers), Err));
                }
            }
        }
    }
}
