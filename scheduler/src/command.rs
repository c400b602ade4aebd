//! What a part of the scheduler wants done. Parts own their state, take an event, and return commands; the event loop runs
//! them. `A` is the part's own kind of answer: the loop wraps it, so that no part knows of another one's.

use shared::db::trouble::Trouble;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How long the server may take for an answer before the connection is given up.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub type Answering<A> = Pin<Box<dyn Future<Output = Result<A, Trouble>>>>;

/// A query on the session that serves the queue.
pub struct Query<A> {
    /// For the log, should no answer come in time.
    pub what: &'static str,
    pub question: Box<dyn FnOnce(Rc<Client>) -> Answering<A>>,
}

pub enum Command<A> {
    Query(Query<A>),
    /// A pass is due then, or earlier.
    PollAt(Instant),
    /// Our user may keep the graph of the database.
    KeepGraph,
}

/// Asks the server; the answer comes back to the part.
pub fn query<A, F>(what: &'static str, question: impl FnOnce(Rc<Client>) -> F + 'static) -> Command<A>
where
    F: Future<Output = Result<A, Trouble>> + 'static,
{
    Command::Query(Query { what, question: Box::new(move |client| Box::pin(question(client))) })
}

impl<A: std::fmt::Debug> std::fmt::Debug for Command<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Query(query) => write!(f, "Query({})", query.what),
            Command::PollAt(_) => f.write_str("PollAt"),
            Command::KeepGraph => f.write_str("KeepGraph"),
        }
    }
}
