//! The commands that components return. A component owns its state, takes an event, and returns what is to be done; the
//! event loop does it. `A` is the component's own kind of answer: the loop wraps it, so that no component knows another
//! one's.

use crate::host::Signature;
use crate::limits::ANSWER_TIMEOUT;
use shared::conninfo::Target;
use shared::db::db_error::DbError;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio_postgres::Client;

pub type AnswerFuture<A> = Pin<Box<dyn Future<Output = Result<A, DbError>>>>;

/// A query on the launcher's session. Without a session it is dropped.
pub struct LauncherQuery<A> {
    /// For the log, should no answer come in time.
    pub what: &'static str,
    pub timeout: Duration,
    /// Every statement of the launcher is signed: that is how a standby launcher knows the leader.
    pub question: Box<dyn FnOnce(Rc<Client>, Signature) -> AnswerFuture<A>>,
}

pub enum LoopCommand<A> {
    Query(LauncherQuery<A>),
    /// Opens the launcher's session with this target.
    Open(Box<Target>),
    /// The leader lock is ours: locks are watched, schedulers may start.
    Lead,
    /// Ends all schedulers, or those that serve, until this launcher leads again.
    EndSchedulers {
        all: bool,
    },
}

/// Asks the server on the launcher's session; the answer comes back to the component.
pub fn query<A, F>(what: &'static str, question: impl FnOnce(Rc<Client>, Signature) -> F + 'static) -> LoopCommand<A>
where
    F: Future<Output = Result<A, DbError>> + 'static,
{
    query_within(what, ANSWER_TIMEOUT, question)
}

/// The same with its own timeout.
pub fn query_within<A, F>(
    what: &'static str,
    timeout: Duration,
    question: impl FnOnce(Rc<Client>, Signature) -> F + 'static,
) -> LoopCommand<A>
where
    F: Future<Output = Result<A, DbError>> + 'static,
{
    let question = move |client, signature| Box::pin(question(client, signature)) as AnswerFuture<A>;
    LoopCommand::Query(LauncherQuery { what, timeout, question: Box::new(question) })
}

impl<A> std::fmt::Debug for LoopCommand<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoopCommand::Query(query) => write!(f, "Query({})", query.what),
            LoopCommand::Open(_) => f.write_str("Open"),
            LoopCommand::Lead => f.write_str("Lead"),
            LoopCommand::EndSchedulers { all } => write!(f, "EndSchedulers({all})"),
        }
    }
}
