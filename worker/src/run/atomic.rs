//! An atomic task: its input, its result and all consequences in one transaction. Exactly once, through any crash.
//!
//! The row is WORK and committed as such; then BEGIN, the input, deferred constraints, the record, COMMIT. If anything
//! dies before the COMMIT nothing has happened, and the row goes back to PLAN; if the answer to the COMMIT is lost, the
//! row itself says which it was: the scheduler reads it. An error rolls everything back, and a second transaction
//! records the failure.

use super::task_run::{Next, Outcome, TaskRun};
use crate::limits::{LONGEST_UNDONE_PAUSE, UNDONE_PAUSE};
use crate::record::{code, refusal_of};
use crate::result::error_text::error_text;
use crate::result::lexer::transaction_control;
use crate::result::outcome::{Cancelled, Ending, INTERRUPTED, QUERY_CANCELED, Verdict, verdict};
use crate::wire::{QueryError, ServerError, Session, TransactionStatus};
use shared::db::refusal::Refusal;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use std::borrow::Cow;
use std::time::{Duration, Instant};

fn undone_pause(attempt: i32) -> Duration {
    let doublings = attempt.clamp(1, 6).unsigned_abs() - 1;
    (UNDONE_PAUSE * (1 << doublings)).min(LONGEST_UNDONE_PAUSE)
}

impl TaskRun<'_> {
    /// An atomic task that would end our transaction is not sent at all; the text of its failure.
    pub(super) fn refused_before_sending(&self, session: &Session) -> Option<Vec<u8>> {
        if !self.row.atomic {
            return None;
        }
        let backslashes = session.parameter("standard_conforming_strings") == Some(b"off");
        let found = transaction_control(&self.row.input, backslashes)?;
        let message = "transaction control is not allowed in an atomic task";
        let mut text = error_text(&ServerError::local("ERROR", "0A000", message), None, self.row.verbosity);
        text.extend_from_slice(
            format!("\nHINT:  Remove {} at byte {}, or insert the task with atomic = false.", found.word, found.at + 1)
                .as_bytes(),
        );
        Some(text)
    }

    /// The input has run: either all of it becomes true, or none.
    pub(super) fn conclude_atomic(&self, outcome: Outcome, cancelled: Option<Cancelled>, timed_out: bool) -> Next {
        let Outcome { ending, session, .. } = &outcome;
        let good = verdict(ending, cancelled, timed_out) == Verdict::Done;
        if !good || session.as_ref().is_none_or(|session| session.status() != TransactionStatus::InBlock) {
            return self.undo(outcome, cancelled, timed_out, good);
        }
        let Outcome { result, session: Some(mut session), .. } = outcome else {
            return Next::Exit(ExitCode::Temporary);
        };
        let result = result.into_done();
        let statements = &self.worker.context.statements;
        // Deferred constraints are the task's own; what fails behind them is the completion's.
        let recorded = match session.execute("SET CONSTRAINTS ALL IMMEDIATE", &[]) {
            Ok(_) => statements.record_in_block(&mut session, &result),
            Err(error) => Err(error),
        };
        fault::point("worker.before_commit");
        let committed = match recorded {
            Ok(true) => session.execute("COMMIT", &[]).map(|_| true),
            other => other,
        };
        match committed {
            Ok(true) => {
                fault::point("worker.after_commit");
                shared::debug!("atomic task finished", task = self.row.task);
                // The next task would be claimed by another transaction, and might run together with the scheduler's claim for
                // the group in between. So the worker exits.
                session.close();
                Next::Exit(ExitCode::Asked)
            }
            Ok(false) => {
                // Deleted, stopped or taken anew: its effects go too.
                let _ = session.execute("ROLLBACK", &[]);
                shared::info!("result not recorded: the task was deleted or stopped", task = self.row.task);
                Next::Exit(ExitCode::Asked)
            }
            // Committed or not: only the row knows. The scheduler reads it.
            Err(QueryError::Link(_)) => Next::Exit(ExitCode::Temporary),
            // Nothing of it has happened, and nothing is wrong with it: it runs again.
            Err(QueryError::Server(error)) if refusal_of(&error) == Refusal::Machine => {
                let rolled_back = session.execute("ROLLBACK", &[]).is_ok();
                self.return_undone(rolled_back.then_some(session), &error)
            }
            Err(QueryError::Server(error)) => {
                let text = error_text(&error, Some(&self.row.input), self.row.verbosity);
                // A user's cancel counts as one also while deferred constraints are checked and the record is written.
                let reason = (error.code() == Some(QUERY_CANCELED)).then_some("cancelled");
                let failed = result.into_failed(text, reason, code(error.code()));
                let rolled_back = session.execute("ROLLBACK", &[]).is_ok();
                self.write(rolled_back.then_some(session), failed, false)
            }
        }
    }

    /// Back to PLAN after a pause, as soon as the server can write that. The next attempt may meet the same server.
    fn return_undone(&self, mut session: Option<Session>, error: &ServerError) -> Next {
        let attempt = self.row.attempt;
        let text = "atomic task rolled back: the server cannot commit it";
        if attempt.count_ones() == 1 {
            shared::warning!(text, task = self.row.task, attempt = attempt, error = error);
        } else {
            shared::debug!(text, task = self.row.task, attempt = attempt, error = error);
        }
        let recorder = self.recorder();
        if !recorder.rests(Instant::now() + undone_pause(attempt)) {
            return Next::Exit(ExitCode::Temporary);
        }
        let statements = &self.worker.context.statements;
        let answer = recorder
            .record(&mut session, 0, |session, _| statements.plan_again(session, self.row.key(), INTERRUPTED, None));
        if let Some(session) = session {
            session.close();
        }
        Next::Exit(match answer {
            Ok(true) => ExitCode::Asked,
            // Not planned: finished by another session, or locked. The scheduler finds out which.
            Ok(false) => ExitCode::Temporary,
            Err(code) => code,
        })
    }

    /// Nothing of it has happened; what is to be said about it is written by itself.
    fn undo(&self, mut outcome: Outcome, cancelled: Option<Cancelled>, timed_out: bool, good: bool) -> Next {
        if let Some(session) = &mut outcome.session
            && session.status() != TransactionStatus::Idle
            && session.execute("ROLLBACK", &[]).is_err()
        {
            outcome.session = None;
        }
        if good {
            // The lexer let something through that ended our block: it cannot be called exactly once.
            let error = ServerError::local("ERROR", "2D000", "the input ended the transaction of an atomic task");
            outcome.ending = Ending::Ran { code: Some(b"2D000".to_vec()) };
            let text = error_text(&error, Some(&self.row.input), self.row.verbosity);
            outcome.result.error = Some(Cow::Owned(text));
        }
        self.conclude(outcome, cancelled, timed_out)
    }
}
