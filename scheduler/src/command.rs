//! The commands that components return. A component owns its state, takes an event, and returns what is to be done; the event
//! loop does it. `A` is the component's own kind of answer: the loop wraps it, so that no component knows another one's.

use crate::attempt::attempt_id::AttemptId;
use crate::limits::ANSWER_TIMEOUT;
use crate::session::catalog::Access;
use crate::session::session_state::SessionEvent;
use shared::conninfo::Target;
use shared::db::db_error::DbError;
use shared::process::exit_code::ExitCode;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

pub type Answering<A> = Pin<Box<dyn Future<Output = Result<A, DbError>>>>;

/// The database sessions of this process but those on remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionName {
    /// The one that serves the queue.
    Queue,
    /// Reads the settings on a reload: a role's own count only for new sessions.
    Settings,
    /// Repairs the table beside the service.
    Repair,
    /// As the launcher's login, for what the queue's user may not do.
    Installer,
    /// Keeps the graph of the database.
    Graph,
}

impl SessionName {
    /// It is closed when its query is answered.
    pub fn answers_once(self) -> bool {
        match self {
            SessionName::Settings | SessionName::Repair | SessionName::Installer => true,
            SessionName::Queue | SessionName::Graph => false,
        }
    }
}

/// A query that the server may refuse without the end of the session: its disk is full, or another transaction is in the way.
/// The part that sent it sends it again later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Pass,
    Results,
    Begins,
    Settlement(AttemptId),
    Returns,
    Unfinished(Purpose),
    Termination(i32),
    Chore,
}

/// Why unfinished rows are read; a reason that comes up while they are being read is for the next time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purpose {
    /// To find rows that nobody runs.
    pub sweep: bool,
    /// To settle what a dead worker has left.
    pub adopt: bool,
}

/// A query on one of the sessions. Without that session it is dropped.
pub struct Query<A> {
    pub session: SessionName,
    /// For the log, should no answer come in time.
    pub what: &'static str,
    pub timeout: Duration,
    /// Such a refusal is an answer; without it, any refusal ends the session.
    pub refusable: Option<Refused>,
    pub question: Box<dyn FnOnce(Rc<Client>) -> Answering<A>>,
}

pub enum Command<A> {
    Query(Query<A>),
    /// Opens a session.
    Open(Opening),
    Close(SessionName),
    /// A pass is due then, or earlier.
    PollAt(Instant),
    /// An event of the session that serves the queue.
    Session(SessionEvent),
    /// Looks at the table and the catalog once more: the catalog was upgraded.
    Prepare,
    /// The queue is not served, or not fully: log it once, show it in the slot status.
    Report(DbError),
    /// The reason in the slot status has changed where no error of the session hides it.
    ShowReason,
    /// The error that was reported is over.
    ReportEnd,
    /// Tells `mill.why` what keeps workers from beginning, or that nothing does any more.
    Note(Option<String>),
    /// The queue is registered with the catalog.
    Admitted(Access),
    /// Our user may keep the graph of the database.
    KeepGraph,
    /// Cancels the tasks, plans them again, then exits with this code.
    StopAs(ExitCode),
    /// Exits at once.
    Exit(ExitCode),
}

/// A session that is to be opened.
pub struct Opening {
    pub session: SessionName,
    pub target: Box<Target>,
    /// It must be on the server on which the queue is served.
    pub beside: bool,
    /// It may be behind a pooler, and has to prove a backend of its own.
    pub doubtful: bool,
}

impl Opening {
    /// A session beside the service.
    pub fn beside<A>(session: SessionName, target: Target) -> Command<A> {
        Command::Open(Opening { session, target: Box::new(target), beside: true, doubtful: false })
    }

    pub fn alone<A>(session: SessionName, target: Target) -> Command<A> {
        Command::Open(Opening { session, target: Box::new(target), beside: false, doubtful: false })
    }
}

/// Asks the server on the queue's session; the answer comes back to the component.
pub fn query<A, F>(what: &'static str, question: impl FnOnce(Rc<Client>) -> F + 'static) -> Command<A>
where
    F: Future<Output = Result<A, DbError>> + 'static,
{
    query_on(SessionName::Queue, what, ANSWER_TIMEOUT, question)
}

/// The same, where a refusal that leaves the session alive is an answer.
pub fn refusable<A, F>(
    refused: Refused,
    what: &'static str,
    question: impl FnOnce(Rc<Client>) -> F + 'static,
) -> Command<A>
where
    F: Future<Output = Result<A, DbError>> + 'static,
{
    let question: Box<dyn FnOnce(Rc<Client>) -> Answering<A>> = Box::new(move |client| Box::pin(question(client)));
    let (session, refusable) = (SessionName::Queue, Some(refused));
    Command::Query(Query { session, what, timeout: ANSWER_TIMEOUT, refusable, question })
}

/// The same on any session, and with its own timeout.
pub fn query_on<A, F>(
    session: SessionName,
    what: &'static str,
    timeout: Duration,
    question: impl FnOnce(Rc<Client>) -> F + 'static,
) -> Command<A>
where
    F: Future<Output = Result<A, DbError>> + 'static,
{
    let question: Box<dyn FnOnce(Rc<Client>) -> Answering<A>> = Box::new(move |client| Box::pin(question(client)));
    Command::Query(Query { session, what, timeout, refusable: None, question })
}
