//! The reset of a session between two tasks: ONE list, and how much of it is done.
//!
//! `DISCARD ALL` does all of it, but prepared statements of ours go too, and parsing and planning them again costs as much
//! as a short task. So where tasks follow each other on one session the list is sent statement by statement, behind BEGIN
//! and before COMMIT of the next transaction of ours. Locks are released by the setup of the next task or by the record.

use super::task_lock;
use crate::task_row::TaskRow;
use crate::wire::{QueryError, Session};
use shared::process::order::WorkerOrder;

/// All that `DISCARD ALL` does, in its order, but for prepared statements and locks.
pub(crate) const RESET: [&str; 6] =
    ["SET SESSION AUTHORIZATION DEFAULT", "RESET ALL", "CLOSE ALL", "UNLISTEN *", "DISCARD TEMP", "DISCARD SEQUENCES"];

/// What is each task's own even if it keeps the session (`save`).
const KEPT: [&str; 2] = ["RESET search_path", "RESET statement_timeout"];

/// What happens to a session between two tasks of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BetweenTasks {
    /// The ended task asked to `save`: the next one finds its session as it was left.
    Keep,
    /// The transaction that records the end does the list. Our prepared statements stay.
    Reset,
    /// Everything goes.
    DiscardAll,
}

impl BetweenTasks {
    /// Of a session whose record has not reset it.
    pub(crate) fn behind(ended: &TaskRow) -> BetweenTasks {
        if ended.save { BetweenTasks::Keep } else { BetweenTasks::DiscardAll }
    }

    /// Prepares the session, on which `ended` ran last, for the next task. `home`: it has our table and the task's lock.
    pub(crate) fn apply(
        self,
        session: &mut Session,
        order: &WorkerOrder,
        ended: &TaskRow,
        home: bool,
    ) -> Result<(), QueryError> {
        match self {
            BetweenTasks::Keep => {
                if home {
                    task_lock::unlock(session, order, ended)?;
                }
                KEPT.into_iter().try_for_each(|text| session.execute(text, &[]).map(|_| ()))
            }
            // Done, in the transaction of the record.
            BetweenTasks::Reset => Ok(()),
            BetweenTasks::DiscardAll => session.discard_all(),
        }
    }
}
