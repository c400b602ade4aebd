//! What comes back from the database, by the component that asked; and the events of the loop.

use crate::attempt::attempts::AttemptAnswer;
use crate::claim::claims::ClaimAnswer;
use crate::command::{Refused, SessionName};
use crate::graph::keeper::GraphAnswer;
use crate::jobs::job_queries::JobAnswer;
use crate::pool::connection_pool::PoolAnswer;
use crate::session::installer_session::InstallerAnswer;
use crate::session::queue_session::SessionAnswer;
use crate::table::upkeep::TableAnswer;
use nix::sys::signal::Signal;
use shared::db::db_error::DbError;
use shared::db::link::LinkEvent;

#[derive(Debug)]
pub enum Answer {
    Session(SessionAnswer),
    Installer(InstallerAnswer),
    Table(TableAnswer),
    Claim(ClaimAnswer),
    Attempt(AttemptAnswer),
    Pool(PoolAnswer),
    Job(JobAnswer),
    Graph(GraphAnswer),
    /// The server has refused it, and the session is alive.
    Refused(Refused, DbError),
}

#[derive(Debug)]
pub enum Event {
    Signal(Signal),
    ParentGone,
    Session(SessionName, LinkEvent<Answer>),
    Passed,
}
