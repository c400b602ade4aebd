//! How the task of an assignment begins: who writes it, and on which session.
//!
//! A failure before the begin is the infrastructure's: the scheduler looks and plans the row again. Many workers may fail for
//! one reason, so each leaves it in its slot for the scheduler, which logs it once.

use super::watchdog::Watchdog;
use super::worker::set_title;
use crate::assignment::{Begin, QueueContext, WorkerConnection};
use crate::session::Connector;
use crate::task_row::TaskRow;
use crate::wire::{QueryError, ServerError, Session};
use shared::db::db_error::advice;
use shared::db::server::is_elsewhere;
use shared::process::begin_channel::{self, Reply};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::region::{SlotStatus, TaskKey};
use std::borrow::Cow;
use std::fmt::Display;
use std::os::fd::OwnedFd;

/// Where a task begins.
pub(crate) struct BegunBy<'a> {
    pub(crate) context: &'a QueueContext,
    pub(crate) connector: &'a Connector<'a>,
    pub(crate) watchdog: &'a Watchdog,
    pub(crate) slot_status: SlotStatus<'a>,
    pub(crate) connection: WorkerConnection<'a>,
}

/// The session and the row of a task that has begun, or how the worker exits. `row`: None where it is read by the begin.
pub(crate) fn begin<'a>(
    by: &BegunBy<'a>,
    key: TaskKey,
    row: Option<&'a TaskRow>,
    begin: Begin<'a>,
) -> Result<(Session, Cow<'a, TaskRow>), ExitCode> {
    match (begin, row) {
        (Begin::Claim, Some(row)) => by.claim(row).map(|session| (session, Cow::Borrowed(row))),
        (Begin::Scheduler(scheduler), Some(row)) => by.scheduler(row, scheduler),
        (Begin::Worker | Begin::Claim | Begin::Scheduler(_), _) => {
            by.worker(key).map(|(session, row)| (session, Cow::Owned(row)))
        }
    }
}

impl BegunBy<'_> {
    /// The claim has marked the row WORK, with the backend of a pooled connection.
    fn claim(&self, row: &TaskRow) -> Result<Session, ExitCode> {
        let WorkerConnection::Pooled { description, socket } = self.connection else { return Err(ExitCode::Temporary) };
        fault::point("worker.before_noting");
        self.slot_status.set_running(row.task, row.attempt, description.backend);
        self.connector.inherit(description, socket).ok_or(ExitCode::Temporary)
    }

    /// The worker connects and reports its backend; the scheduler marks the row WORK together with others.
    fn scheduler<'r>(&self, row: &'r TaskRow, scheduler: &OwnedFd) -> Result<(Session, Cow<'r, TaskRow>), ExitCode> {
        let (mut session, is_set_up) =
            self.connector.open_for(row).map_err(|error| self.cannot_begin(row.task, &error, error.server()))?;
        if session.is_encrypted() {
            // The worker may wait for an answer that is decrypted already: no time to wake the watchdog later.
            self.watchdog.wake();
        }
        fault::point("worker.before_begin");
        // Before the row names it: the process that finds this worker dead must know its backend.
        self.slot_status.set_running(row.task, row.attempt, session.backend_pid());
        match begin_channel::ask_to_begin(scheduler, session.backend_pid()) {
            Some(Reply::Begun) => {}
            Some(Reply::Yourself) => {
                // That may take as long as somebody holds the row.
                self.watchdog.wake();
                let begun = self.context.statements.begin(&mut session, row.key());
                session = self.accepted(session, begun, row.task)?.0;
            }
            None => {
                session.close();
                return Err(ExitCode::Temporary);
            }
        }
        Ok((session, Cow::Owned(TaskRow { is_set_up, ..row.clone() })))
    }

    /// The worker marks the row WORK and reads it.
    fn worker(&self, key: TaskKey) -> Result<(Session, TaskRow), ExitCode> {
        let pooled = match self.connection {
            WorkerConnection::Pooled { description, socket } => self.connector.inherit(description, socket),
            WorkerConnection::Own { .. } => None,
        };
        let opened = pooled.map_or_else(|| self.connector.open(), Ok);
        let mut session = opened.map_err(|error| self.cannot_begin(key.task, &error, error.server()))?;
        fault::point("worker.before_begin");
        let statements = &self.context.statements;
        let mut begun = statements.begin(&mut session, key);
        if matches!(begun, Err(QueryError::Link(_))) && matches!(self.connection, WorkerConnection::Pooled { .. }) {
            // A pooled connection may have been cut meanwhile. The fence makes a second try harmless.
            if let Ok(own) = self.connector.open() {
                session = own;
                begun = statements.begin(&mut session, key);
                if matches!(begun, Ok(None)) {
                    // Begun by the lost session, perhaps: the scheduler finds out.
                    return Err(ExitCode::Temporary);
                }
            }
        }
        let (session, row) = self.accepted(session, begun, key.task)?;
        // Before the input is sent: the process that finds this worker dead must know its task.
        self.slot_status.set_running(row.task, row.attempt, session.backend_pid());
        set_title(&self.context.order, &row);
        Ok((session, row))
    }

    fn accepted(
        &self,
        mut session: Session,
        begun: Result<Option<TaskRow>, QueryError>,
        task: i64,
    ) -> Result<(Session, TaskRow), ExitCode> {
        match begun {
            Ok(Some(row)) => Ok((session, row)),
            Ok(None) => {
                shared::debug!("task does not belong to this worker any more", task = task);
                session.close();
                Err(ExitCode::Asked)
            }
            Err(QueryError::Server(refusal)) if is_elsewhere(refusal.code(), refusal.message()) => {
                let why = self.connector.why_elsewhere(&mut session);
                session.taint();
                Err(self.cannot_begin(task, &why, None))
            }
            Err(error) => Err(self.cannot_begin(task, &error, error.server())),
        }
    }

    fn cannot_begin(&self, task: i64, error: &dyn Display, refusal: Option<&ServerError>) -> ExitCode {
        let code = refusal.and_then(ServerError::code).map(String::from_utf8_lossy);
        let known = code.map(|code| format!(" [{code}]{}", advice(&code))).unwrap_or_default();
        shared::debug!("worker cannot begin; its task is planned again", task = task, error = error);
        self.slot_status.set_reason(&format!("{error}{known}"));
        ExitCode::Temporary
    }
}
