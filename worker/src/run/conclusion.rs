//! What becomes of a task that has run: its result is left to the scheduler or recorded, its row is planned again, or nothing
//! is written.
//!
//! The record claims the next tasks of the group, where this worker may go on; `BetweenTasks` says what happens to the session
//! before them.

use super::task_run::{Next, Outcome, TaskRun};
use super::worker::Worker;
use crate::limits::PLAINEST_BYTES;
use crate::record::{
    Claimant, Consequences, NextClaim, Pace, RecordForm, Recorded, RecordedEnds, Recorder, Try, code, leave_to_parent,
};
use crate::result::error_text::error_text;
use crate::result::outcome::{Cancelled, Ending, FailText, INTERRUPTED, QUERY_CANCELED, Verdict, verdict};
use crate::session::is_as_opened;
use crate::session::reset::BetweenTasks;
use crate::task_row::TaskRow;
use crate::wire::{QueryError, ServerError, Session, TransactionStatus};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::region::{EndState, Phase, TaskResult};
use std::borrow::Cow;

/// The assignment of a worker that only records a result.
pub(crate) fn record_retry(worker: &Worker<'_>, row: &TaskRow, result: &TaskResult<'_>) -> ExitCode {
    match TaskRun::new(worker, row, None).write(None, result.borrowed(), false) {
        Next::Exit(code) => code,
        Next::Continue(_) => ExitCode::Temporary,
    }
}

impl TaskRun<'_> {
    pub(super) fn conclude(&self, outcome: Outcome, cancelled: Option<Cancelled>, timed_out: bool) -> Next {
        let Outcome { result, ending, session, last_message, severed, .. } = outcome;
        // After any cancel of ours that connection runs no further task: it might still be on its way.
        let again = cancelled.is_none() && matches!(ending, Ending::Ran { .. });
        match verdict(&ending, cancelled, timed_out) {
            Verdict::Done => self.write(session, result.into_done(), again),
            Verdict::Fail { reason, text } => {
                let error = self.fail_text(text, result.error.as_deref(), last_message);
                let code = match text {
                    FailText::Timeout | FailText::Overrun => code(Some(QUERY_CANCELED)),
                    FailText::Overflow => code(Some(b"54000")),
                    FailText::Collected | FailText::LastWord => code(ending.code()),
                };
                self.write(session, result.into_failed(error, reason, code), again)
            }
            Verdict::PlanAgain { reason } => {
                let severed = severed && cancelled.is_none();
                Next::Exit(self.give_back(session, reason, severed.then(|| self.row.postmaster_us()).flatten()))
            }
            Verdict::Nothing => {
                shared::info!("task ended: a user stopped or deleted it", task = self.row.task);
                if let Some(session) = session {
                    session.close();
                }
                Next::Exit(ExitCode::Asked)
            }
        }
    }

    pub(super) fn fail_text(
        &self,
        text: FailText,
        collected: Option<&[u8]>,
        last_message: Option<ServerError>,
    ) -> Vec<u8> {
        let own = |code: &str, message: &str| {
            error_text(&ServerError::local("ERROR", code, message), Some(&self.row.input), self.row.verbosity)
        };
        match text {
            FailText::Collected => collected.unwrap_or_default().to_vec(),
            FailText::Timeout => own("57014", "canceling statement due to statement timeout"),
            FailText::Overrun => own("57014", "canceling statement due to max_runtime of the job"),
            FailText::Overflow => {
                let limit = self.worker.order().output_limit;
                own("54000", &format!("output exceeds output_limit of {limit} bytes"))
            }
            FailText::LastWord => {
                let mut all = collected.unwrap_or_default().to_vec();
                if let Some(message) = last_message {
                    if !all.is_empty() {
                        all.push(b'\n');
                    }
                    all.extend(error_text(&message, Some(&self.row.input), self.row.verbosity));
                }
                all
            }
        }
    }

    /// The process that settles the row in our place must know if it was no crash.
    pub(super) fn report_interruption(&self, reason: &str) {
        if reason == INTERRUPTED {
            self.slot_status().set_phase(Phase::Stopping);
        }
    }

    /// Back to PLAN by ourselves where there is a session; otherwise the scheduler does it, once the backend is gone.
    /// `severed`: the start of the server that has closed the connection without a word.
    pub(super) fn give_back(&self, session: Option<Session>, reason: &'static str, severed: Option<i64>) -> ExitCode {
        self.report_interruption(reason);
        if let Some(server_began_us) = severed {
            self.slot_status().set_severed(server_began_us);
        }
        let Some(mut session) = session else { return ExitCode::Temporary };
        match self.worker.context.statements.plan_again(&mut session, self.row.key(), reason, severed) {
            Ok(planned) => {
                shared::info!("task interrupted", task = self.row.task, planned_again = planned);
                session.close();
                // Not planned: finished by another session, locked, or tried too often. The scheduler finds out which.
                if planned { ExitCode::Asked } else { ExitCode::Temporary }
            }
            Err(_) => ExitCode::Temporary,
        }
    }

    /// Leaves the result to the parent, or writes the end and claims the next tasks in the same transaction where this worker
    /// may go on. What the server refuses is sent again (`recorder`); the fence makes a second record harmless.
    pub(super) fn write(&self, session: Option<Session>, result: TaskResult<'_>, again: bool) -> Next {
        let worker = self.worker;
        let mut session = match session {
            Some(session) if worker.leaves_results && again => {
                match leave_to_parent(worker.region, worker.slot, session, &result) {
                    Some(session) => Some(session),
                    None => return Next::Exit(ExitCode::Asked),
                }
            }
            session => session,
        };
        let claimant = (again && self.goes_on()).then(|| self.claimant());
        let mut claimed = false;
        let answer = self.recorder().record(&mut session, result.bytes(), |session, attempt| {
            let claimant = claimant.as_ref().filter(|_| attempt.first);
            let answer = self.record_as(session, &result, attempt, claimant);
            // The next tasks may have been claimed all the same.
            claimed |= claimant.is_some() && matches!(answer, Err(QueryError::Link(_)));
            answer
        });
        match (answer, session) {
            (Ok((Recorded { written, next, .. }, between)), Some(session)) => {
                fault::point("worker.after_finish");
                if written.is_empty() {
                    shared::info!("result not recorded: the task was deleted or stopped", task = self.row.task);
                } else {
                    worker.log_end(&result, self.row.job.as_deref());
                }
                if claimed {
                    // The scheduler looks.
                    session.close();
                    return Next::Exit(ExitCode::Temporary);
                }
                self.go_on(session, next, between)
            }
            (Err(code), _) => Next::Exit(code),
            (Ok(_), None) => Next::Exit(ExitCode::Temporary),
        }
    }

    pub(super) fn recorder(&self) -> Recorder<'_> {
        // What a task has done on a remote is there, wherever its end is recorded.
        self.worker.recorder(self.row.task, self.row.remote.is_none())
    }

    /// With the claimed tasks, on a session that is ready for them, or is made so now.
    fn go_on(&self, mut session: Session, next: Vec<TaskRow>, between: BetweenTasks) -> Next {
        let Some(first) = next.first() else {
            session.close();
            return Next::Exit(ExitCode::Asked);
        };
        match between.apply(&mut session, self.worker.order(), self.row, true) {
            Ok(()) => Next::Continue(Box::new((next, session))),
            // The next task is ours and not begun: the scheduler finds it by this session's backend.
            Err(error) => {
                shared::warning!("cannot reset the session; closing it", task = first.task, error = error);
                Next::Exit(ExitCode::Temporary)
            }
        }
    }

    /// In the form that the server may accept.
    pub(super) fn record_as(
        &self,
        session: &mut Session,
        result: &TaskResult<'_>,
        attempt: &Try<'_>,
        claimant: Option<&Claimant>,
    ) -> Result<(Recorded, BetweenTasks), QueryError> {
        let complaint = attempt.complaint.as_bytes();
        let own = result.error.as_deref().unwrap_or_default();
        let (output, error) = match attempt.form {
            RecordForm::Whole => return self.record_whole(session, result, claimant),
            RecordForm::Failed => (result.output.as_deref(), joined(own, complaint)),
            RecordForm::Plainest => (None, joined(&plainest(own), &plainest(complaint))),
        };
        let (output, error) = (output.map(Cow::Borrowed), Some(Cow::Owned(error)));
        let (state, reason) = (EndState::Fail, Some("completion"));
        let failed = [TaskResult { state, output, error, reason, ..result.borrowed() }];
        let ends = RecordedEnds {
            consequences: Consequences::Suppressed,
            of_job: self.row.job.is_some(),
            ..RecordedEnds::of(&failed)
        };
        let recorded = self.worker.context.statements.record(session, ends)?;
        Ok((recorded, BetweenTasks::behind(self.row)))
    }

    /// A row that began to repeat while it ran is only ended together with its repetition.
    fn record_whole(
        &self,
        session: &mut Session,
        result: &TaskResult<'_>,
        claimant: Option<&Claimant>,
    ) -> Result<(Recorded, BetweenTasks), QueryError> {
        let (worker, statements) = (self.worker, &self.worker.context.statements);
        let reset = claimant.is_some() && self.can_reset(session);
        let between = if reset { BetweenTasks::Reset } else { BetweenTasks::behind(self.row) };
        // Runs of jobs are never in a batch, nor is a task behind one whose session is kept or discarded.
        let size = if reset && self.row.job.is_none() { worker.pace.get().size() } else { 1 };
        let scan_start = self.scan_start.filter(|_| reset);
        let results = [result.borrowed()];
        let consequences = if self.row.consequences { Consequences::Full } else { Consequences::NoneExpected };
        // Without a row behind the scan start, which is only a hint, the worker exits, and the scheduler finds the rest. Claimed
        // by another transaction, it might run together with the scheduler's claim for the group meanwhile.
        let claim = claimant.map(|claimant| NextClaim { claimant, size, scan_start });
        let ends =
            RecordedEnds { consequences, of_job: self.row.job.is_some(), claim, reset, ..RecordedEnds::of(&results) };
        let first = statements.record(session, ends)?;
        if first.has_foreign_statements && size > 1 {
            worker.pace.set(Pace::new(false));
        }
        if !first.written.is_empty() || consequences == Consequences::Full {
            return Ok((first, between));
        }
        let again = RecordedEnds { consequences: Consequences::Full, claim: None, reset: false, ..ends };
        let second = statements.record(session, again)?;
        Ok((Recorded { written: second.written, ..first }, between))
    }

    /// Nothing of the session is to be kept for the next task, and nothing else happens at the end of this one.
    fn can_reset(&self, session: &Session) -> bool {
        !self.row.save
            && self.row.remote.is_none()
            && !self.row.atomic
            && !self.row.consequences
            && session.status() == TransactionStatus::Idle
            && is_as_opened(session)
    }
}

/// Two errors, one below the other.
fn joined(first: &[u8], second: &[u8]) -> Vec<u8> {
    let between: &[u8] = if first.is_empty() || second.is_empty() { b"" } else { b"\n" };
    [first, between, second].concat()
}

/// The beginning of a text in ASCII.
fn plainest(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(&text[..text.len().min(PLAINEST_BYTES)]).into_owned();
    text.chars().map(|c| if c.is_ascii() && c != '\0' { c as u8 } else { b'?' }).collect()
}
