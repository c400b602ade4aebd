//! The commands that components return. A component owns its state, takes an event, and returns what is to be done; the event
//! loop does it. `A` is the component's own kind of answer: the loop wraps it, so that no component knows another one's.

use crate::attempt::attempt_id::AttemptId;
use crate::limits::ANSWER_TIMEOUT;
use crate::session::session_state::SessionEvent;
use shared::conninfo::Target;
use shared::db::trouble::Trouble;
use shared::process::exit_code::ExitCode;
use shared::process::stopping::StopEvent;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

pub type Answering<A> = Pin<Box<dyn Future<Output = Result<A, Trouble>>>>;

/// The database sessions of this process whose answers come to the event loop.
#[allow(dead_code)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionName {
    /// The one that serves the queue.
    Queue,
    /// Reads the settings of a new session on a reload.
    Settings,
    /// Repairs the table beside the service.
    Repair,
    /// As the launcher's login, for what the queue's user may not do.
    Installer,
}

/// A query that the server may refuse without the end of the session: its disk is full, or another transaction is in the way.
/// The part that sent it sends it again later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Look,
    Results,
    Begins,
    Settlement(AttemptId),
    Returns,
    Unfinished(Purpose),
    Retirement(i32),
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

#[allow(dead_code)]
pub enum Command<A> {
    Query(Query<A>),
    /// Opens a session with this target. `beside`: it must be on the server on which the queue is served.
    Open {
        session: SessionName,
        target: Box<Target>,
        beside: bool,
    },
    Close(SessionName),
    /// A pass is due then, or earlier.
    PollAt(Instant),
    /// No pass before then.
    HoldOff(Instant),
    /// An event of the session that serves the queue.
    Session(SessionEvent),
    /// The queue is not served, or not fully: log it once, show it in the slot status.
    Report(Trouble),
    /// That trouble is over.
    ReportEnd,
    /// Reads unfinished rows when no pass is in flight.
    FindUnfinished(Purpose),
    /// The row is claimed and has no worker: settle it.
    Orphaned(i64, i32),
    /// Our user may keep the graph of the database.
    KeepGraph,
    Stop(StopEvent),
    /// Cancels the tasks, plans them again, then exits with this code.
    StopAs(ExitCode),
    /// Exits at once.
    Exit(ExitCode),
}

/// Asks the server on the queue's session; the answer comes back to the component.
pub fn query<A, F>(what: &'static str, question: impl FnOnce(Rc<Client>) -> F + 'static) -> Command<A>
where
    F: Future<Output = Result<A, Trouble>> + 'static,
{
    query_on(SessionName::Queue, what, ANSWER_TIMEOUT, question)
}

#[allow(dead_code)]
/// The same, where a refusal that leaves the session alive is an answer.
pub fn refusable<A, F>(
    refused: Refused,
    what: &'static str,
    question: impl FnOnce(Rc<Client>) -> F + 'static,
) -> Command<A>
where
    F: Future<Output = Result<A, Trouble>> + 'static,
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
    F: Future<Output = Result<A, Trouble>> + 'static,
{
    let question: Box<dyn FnOnce(Rc<Client>) -> Answering<A>> = Box::new(move |client| Box::pin(question(client)));
    Command::Query(Query { session, what, timeout, refusable: None, question })
}

impl<A> Command<A> {
    /// The same command, whose answer is of another kind: for a component that holds others.
    #[allow(dead_code)]
    pub fn map<B: 'static>(self, wrap: fn(A) -> B) -> Command<B>
    where
        A: 'static,
    {
        match self {
            Command::Query(Query { session, what, timeout, refusable, question }) => {
                let question: Box<dyn FnOnce(Rc<Client>) -> Answering<B>> = Box::new(move |client| {
                    let answer = question(client);
                    Box::pin(async move { Ok(wrap(answer.await?)) })
                });
                Command::Query(Query { session, what, timeout, refusable, question })
            }
            Command::Open { session, target, beside } => Command::Open { session, target, beside },
            Command::Close(session) => Command::Close(session),
            Command::PollAt(at) => Command::PollAt(at),
            Command::HoldOff(until) => Command::HoldOff(until),
            Command::Session(event) => Command::Session(event),
            Command::Report(trouble) => Command::Report(trouble),
            Command::ReportEnd => Command::ReportEnd,
            Command::FindUnfinished(purpose) => Command::FindUnfinished(purpose),
            Command::Orphaned(task, attempt) => Command::Orphaned(task, attempt),
            Command::KeepGraph => Command::KeepGraph,
            Command::Stop(event) => Command::Stop(event),
            Command::StopAs(code) => Command::StopAs(code),
            Command::Exit(code) => Command::Exit(code),
        }
    }
}

impl<A> std::fmt::Debug for Command<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Query(query) => write!(f, "Query({})", query.what),
            Command::Open { session, .. } => write!(f, "Open({session:?})"),
            Command::Close(session) => write!(f, "Close({session:?})"),
            Command::PollAt(_) => f.write_str("PollAt"),
            Command::HoldOff(_) => f.write_str("HoldOff"),
            Command::Session(event) => write!(f, "Session({event:?})"),
            Command::Report(trouble) => write!(f, "Report({trouble})"),
            Command::ReportEnd => f.write_str("ReportEnd"),
            Command::FindUnfinished(purpose) => write!(f, "FindUnfinished({purpose:?})"),
            Command::Orphaned(task, attempt) => write!(f, "Orphaned({task}, {attempt})"),
            Command::KeepGraph => f.write_str("KeepGraph"),
            Command::Stop(event) => write!(f, "Stop({event:?})"),
            Command::StopAs(code) => write!(f, "StopAs({code:?})"),
            Command::Exit(code) => write!(f, "Exit({code:?})"),
        }
    }
}
