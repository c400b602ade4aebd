//! Our own statements with parameters: one, or several in one write under one Sync.
//!
//! Record and take use it. Parameters go as text straight from the caller's memory, their types are the
//! server's to find, results come as text. Notices are passed over. After a `QueryError::Server` the session lives
//! on; a COPY is no business of such statements and ends the link.

use std::io;
use std::time::{Duration, Instant};

use super::Session;
use super::error::{LinkError, QueryError};
use super::incoming::{Incoming, TransactionStatus, receive, unexpected};
use super::outgoing::Outgoing;
use super::server_error::ServerError;
use super::sink::Deaf;

/// No answer to a statement of ours is longer than the longest value a server can hold.
const ANSWER_BYTES: usize = 1 << 30;
/// What a row and a value cost besides their bytes.
const ROW_BYTES: usize = 256;
/// What a server may say besides answering before it is not believed to answer at all.
const NOTICES: usize = 100_000;

/// One row, each value as text, None for NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// One statement of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    pub sql: &'a str,
    pub params: &'a [Option<&'a [u8]>],
}

impl Session {
    /// Runs one statement and returns its rows. A transaction block that was open stays as the server leaves it.
    pub fn execute(&mut self, sql: &str, params: &[Option<&[u8]>]) -> Result<Vec<Row>, QueryError> {
        let mut answers = self.pipeline(&[Statement { sql, params }])?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Sends exactly these statements (BEGIN and COMMIT are the caller's) in one write and returns the rows of
    /// each. After an error the server skips the rest, and a block left open by it is rolled back.
    pub fn transaction(&mut self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
        let answers = self.pipeline(statements);
        if matches!(answers, Err(QueryError::Server(_))) && self.status != TransactionStatus::Idle {
            self.link.set_deadline(Some(Instant::now() + self.patience));
            self.run(b"ROLLBACK", &mut Deaf)?;
            self.link.set_deadline(None);
        }
        answers
    }

    /// How long a server may take for statements of ours: one that never answers must not hold a worker for ever.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn pipeline(&mut self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
        let mut outgoing = Outgoing::default();
        for statement in statements {
            outgoing.statement(statement.sql, statement.params).map_err(QueryError::Server)?;
        }
        outgoing.sync();
        self.link.set_deadline(Some(Instant::now() + self.patience));
        let answered = self.rows(&mut outgoing, statements.len());
        self.link.forget_long();
        if answered.is_ok() {
            self.link.set_deadline(None);
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

    fn lost(&mut self, error: &io::Error) -> LinkError {
        self.link.broken(format!("lost the session while a statement ran: {error}"))
    }

    /// The rows of each statement that ended, or the first error.
    fn rows(&mut self, outgoing: &mut Outgoing<'_>, wanted: usize) -> io::Result<Result<Vec<Vec<Row>>, ServerError>> {
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
                    if chat > NOTICES {
                        return Err(io::Error::other("server does not come to an end"));
                    }
                }
                Incoming::TooLong => return Err(io::Error::other("the answer is longer than 1 GiB")),
                Incoming::Columns(_) => return Err(unexpected(b'T')),
                Incoming::CopyOut => return Err(unexpected(b'H')),
                Incoming::CopyData(_) => return Err(unexpected(b'd')),
                Incoming::CopyIn => return Err(unexpected(b'G')),
                Incoming::Ready(_) if !outgoing.is_empty() => return Err(unexpected(b'Z')),
                Incoming::Ready(status) => {
                    self.status = status;
                    return Ok(refusal.map_or(Ok(answers), Err));
                }
            }
        }
    }
}
