//! One run of one task on its session, and what came of its input.

use super::worker::Worker;
use crate::record::{Claimant, RemoteClaimant, ScanStart};
use crate::result::format::Output;
use crate::result::outcome::{CRASH_SHUTDOWN, Ending, Server};
use crate::task_row::TaskRow;
use crate::wire::{LinkError, ServerError, Session};
use shared::process::exit_code::ExitCode;
use shared::region::{Notes, TaskKey, TaskResult};

/// What a task leads to.
pub(crate) enum Next {
    /// This worker is done.
    Exit(ExitCode),
    /// Further tasks of the group have been claimed, on the same session.
    Continue(Box<(Vec<TaskRow>, Session)>),
}

/// One task that this worker is at.
pub(super) struct TaskRun<'a> {
    pub(super) worker: &'a Worker<'a>,
    pub(super) row: &'a TaskRow,
    /// From where on the next claim scans.
    pub(super) scan_start: Option<ScanStart>,
    /// The session that runs its input on a remote.
    pub(super) remote: Option<RemoteClaimant>,
}

impl<'a> TaskRun<'a> {
    pub(super) fn new(worker: &'a Worker<'a>, row: &'a TaskRow, scan_start: Option<ScanStart>) -> TaskRun<'a> {
        TaskRun { worker, row, scan_start, remote: None }
    }

    pub(super) fn notes(&self) -> Notes<'a> {
        self.worker.notes()
    }

    /// This worker may claim another task after this one. If its launcher may not lead any more, that is for the one that does.
    pub(super) fn goes_on(&self) -> bool {
        self.row.reuse && !self.worker.watchdog.last_task() && self.worker.connector.is_led()
    }

    /// The worker as its next claim knows it.
    pub(super) fn claimant(&self) -> Claimant {
        Claimant {
            group: self.row.group.clone(),
            max: self.worker.max,
            started: self.worker.started.clone(),
            executed: self.worker.executed.get(),
            remote: self.remote.clone(),
            job: self.row.job.clone(),
        }
    }
}

/// What came of the input.
pub(super) struct Outcome {
    /// What it has printed, until the verdict makes it the result.
    pub(super) result: TaskResult<'static>,
    /// It has printed more than the limit.
    pub(super) overflowed: bool,
    pub(super) ending: Ending,
    /// Gone when the link was lost.
    pub(super) session: Option<Session>,
    /// The last message of the server before it closed the session.
    pub(super) last_message: Option<ServerError>,
    /// The server itself reports a statement timeout: the role's, or one that the task has set.
    pub(super) said_timeout: bool,
    /// The connection was closed by the other side, without a message.
    pub(super) severed: bool,
}

impl Outcome {
    /// The session survived; a batch keeps it for its next input.
    pub(super) fn ran(
        (result, overflowed): (TaskResult<'static>, bool),
        code: Option<Vec<u8>>,
        session: Option<Session>,
        said_timeout: bool,
    ) -> Outcome {
        let ending = Ending::Ran { code };
        Outcome { result, overflowed, ending, session, last_message: None, said_timeout, severed: false }
    }

    pub(super) fn lost((result, overflowed): (TaskResult<'static>, bool), lost: LinkError) -> Outcome {
        let code = lost.fatal.as_ref().and_then(farewell);
        let severed = lost.closed && lost.fatal.is_none();
        let last_message = Some(lost.fatal.unwrap_or_else(|| {
            ServerError::local("FATAL", "08006", &format!("connection to server was lost: {}", lost.what))
        }));
        let ending = Ending::Lost { code, server: Server::Other };
        Outcome { result, overflowed, ending, session: None, last_message, said_timeout: false, severed }
    }
}

/// What was printed, and whether that was more than the limit.
pub(super) fn printed(output: Output<'_>, key: TaskKey) -> (TaskResult<'static>, bool) {
    let overflowed = output.overflowed();
    (output.into_result(key), overflowed)
}

/// The SQLSTATE of the server's last message. An immediate shutdown ends with the code of an orderly one, but as a mere
/// warning.
fn farewell(message: &ServerError) -> Option<Vec<u8>> {
    match message.code() {
        Some(code) if message.is_fatal() => Some(code.to_vec()),
        Some(_) => Some(CRASH_SHUTDOWN.to_vec()),
        None => None,
    }
}
