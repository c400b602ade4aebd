//! One input: its session is set up, the input is sent, and its answers go into the texts of the result.
//!
//! What fails before anything of the input is sent is the infrastructure's (the row is planned again) or a time limit of the
//! role's (the task has failed).

use super::task_log::{TaskLog, is_statement_timeout};
use super::task_run::{Next, Outcome, TaskRun, printed};
use super::watchdog::WatchedInput;
use crate::limits::{RECORD_TIMEOUT, SETUP_TRIES, WATCHDOG_DELAY};
use crate::record::{Pace, code, refusal_of, server_start};
use crate::result::error_text::error_text;
use crate::result::format::Output;
use crate::result::outcome::{Cancelled, Ending, INTERRUPTED, QUERY_CANCELED, Server};
use crate::session::setup::{self, BEGIN, COMMIT};
use crate::wire::{ChainAnswer, LinkError, QueryError, ServerError, Session, TransactionStatus};
use shared::db::refusal::Refusal;
use shared::db::server::is_elsewhere;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::region::{Code, TaskResult};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// What came of sending an input.
pub(super) enum Sent {
    Ran(Box<Outcome>),
    /// The server has refused to set the session up, and has skipped the input.
    Refused(Box<Session>, ServerError),
    /// The server has left before it came to the input.
    Left(LinkError),
}

impl TaskRun<'_> {
    /// The task has begun, on this session.
    pub(super) fn run(&self, mut session: Session) -> Next {
        if let Some(text) = self.refused_before_sending(&session) {
            return self.write(Some(session), self.failure(text, None, code(Some(b"0A000"))), true);
        }
        if let Err(error) = self.set_up(&mut session) {
            return self.setup_failed(session, error);
        }
        let (worker, watchdog) = (self.worker, self.worker.watchdog);
        let socket = session.as_fd().try_clone_to_owned().ok().map(Arc::new);
        watchdog.started(self.watched(&session, socket, false));
        session.set_answer_timeout(RECORD_TIMEOUT);
        let began = Instant::now();
        if watchdog.is_dormant() {
            let watchdog = watchdog.clone();
            session.set_alarm(began + WATCHDOG_DELAY, move || watchdog.wake());
        }
        let mut outcome = match self.send(session) {
            Sent::Ran(outcome) => *outcome,
            Sent::Refused(session, refusal) => return self.setup_refused(*session, refusal),
            Sent::Left(lost) => {
                watchdog.finished();
                shared::debug!("session lost before the input began", task = self.row.task, error = lost);
                return Next::Exit(ExitCode::Temporary);
            }
        };
        if let Some(session) = &mut outcome.session {
            session.clear_alarm();
        }
        if self.row.reuse {
            // An input that speaks of prepared statements sees none of ours.
            let alone = leaves_statements(&self.row.input);
            worker.pace.set(if alone { Pace::new(false) } else { worker.pace.get().counted(began.elapsed()) });
        }
        self.judge(outcome, began)
    }

    /// What the watchdog has to know of the task.
    pub(super) fn watched(&self, session: &Session, socket: Option<Arc<OwnedFd>>, batch: bool) -> WatchedInput {
        WatchedInput {
            key: self.row.key(),
            canceller: session.canceller(),
            socket,
            timeout: self.row.timeout(),
            target: self.worker.context.target.clone(),
            far: false,
            batch,
        }
    }

    /// The input has run, or its session was lost meanwhile.
    pub(super) fn judge(&self, mut outcome: Outcome, began: Instant) -> Next {
        let timed_out = outcome.said_timeout || self.row.timeout().is_some_and(|timeout| began.elapsed() >= timeout);
        let cancelled = self.cancelled(&outcome);
        if let (Some(_), Some(session)) = (cancelled, &mut outcome.session) {
            session.taint();
        }
        if let Ending::Lost { server, .. } = &mut outcome.ending {
            (*server, outcome.session) = self.read_again();
        }
        fault::point("worker.before_finish");
        if self.row.atomic {
            self.conclude_atomic(outcome, cancelled, timed_out)
        } else {
            self.conclude(outcome, cancelled, timed_out)
        }
    }

    /// The statement has ended; why we have cancelled it, if we have. An output over its limit counts from the moment it was
    /// seen: the end may come before the watchdog's cancel. Where our launcher may not lead any more, the one that leads now
    /// ends what we run, and runs it again: that is no failure.
    pub(super) fn cancelled(&self, outcome: &Outcome) -> Option<Cancelled> {
        let ours = self.worker.watchdog.finished().or(outcome.overflowed.then_some(Cancelled::Overflow));
        ours.or((!outcome.said_timeout && !self.worker.connector.is_led()).then_some(Cancelled::Interrupt))
    }

    /// Sets up the session. A cancel that somebody sends meanwhile hits nothing of the task's: once more.
    fn set_up(&self, session: &mut Session) -> Result<(), QueryError> {
        if self.sets_up_with_input() {
            return Ok(());
        }
        let mut tries = 1;
        loop {
            match setup::set_up(session, self.worker.order(), self.row) {
                Err(QueryError::Server(error)) if error.code() == Some(QUERY_CANCELED) && tries < SETUP_TRIES => {
                    tries += 1
                }
                answer => return answer,
            }
        }
    }

    /// A session that the fork has brought is reset, and a new one too: setup and input go in one write.
    fn sets_up_with_input(&self) -> bool {
        self.worker.leaves_results && !self.row.atomic && self.row.job.is_none()
    }

    /// The session refused to be set up: a time limit in the role's settings, another server than the scheduler's, or the
    /// link. The task has begun on this very session, which can take it back.
    fn setup_failed(&self, mut session: Session, error: QueryError) -> Next {
        match error {
            QueryError::Server(refusal) => match self.unfit(&mut session, &refusal) {
                Some(why) => {
                    self.slot_status().set_reason(&why);
                    Next::Exit(self.give_back(Some(session), INTERRUPTED, None))
                }
                None => self.fail_refused(session, &refusal),
            },
            QueryError::Link(_) => Next::Exit(ExitCode::Temporary),
        }
    }

    /// The same of a session whose setup went together with the input, which the server has skipped. Its task was begun by
    /// the scheduler, which finds out what became of it.
    fn setup_refused(&self, mut session: Session, refusal: ServerError) -> Next {
        session.clear_alarm();
        let cancelled = self.worker.watchdog.finished();
        match self.unfit(&mut session, &refusal) {
            Some(why) => {
                shared::debug!("input not sent", task = self.row.task, why = why);
                self.slot_status().set_reason(&why);
                session.taint();
                session.close();
                Next::Exit(ExitCode::Temporary)
            }
            None if cancelled.is_some() => {
                session.taint();
                let error = error_text(&refusal, Some(&self.row.input), self.row.verbosity);
                let result = (TaskResult::of_input(self.row.key(), None, Some(error)), false);
                let outcome = Outcome::ran(result, refusal.code().map(<[u8]>::to_vec), Some(session), false);
                self.conclude(outcome, cancelled, false)
            }
            None => self.fail_refused(session, &refusal),
        }
    }

    /// Why the task cannot run on this session now, though nothing is wrong with the task.
    fn unfit(&self, session: &mut Session, refusal: &ServerError) -> Option<String> {
        if is_elsewhere(refusal.code(), refusal.message()) {
            return Some(self.worker.connector.why_elsewhere(session));
        }
        let machine = refusal_of(refusal) == Refusal::Machine;
        machine.then(|| format!("cannot set up the session: {refusal}"))
    }

    fn fail_refused(&self, session: Session, refusal: &ServerError) -> Next {
        let text = error_text(refusal, None, self.row.verbosity);
        let timed_out = is_statement_timeout(refusal);
        let reason = match refusal.code() {
            Some(QUERY_CANCELED) if timed_out => Some("timeout"),
            Some(QUERY_CANCELED) => Some("cancelled"),
            _ => None,
        };
        self.write(Some(session), self.failure(text, reason, code(refusal.code())), false)
    }

    /// A failure without output.
    pub(super) fn failure(
        &self,
        error: Vec<u8>,
        reason: Option<&'static str>,
        code: Option<Code>,
    ) -> TaskResult<'static> {
        TaskResult::failed(self.row.key(), Vec::new(), error, reason, code)
    }

    /// Runs the input, and commits what it left open; an atomic one runs in a block of ours, which stays open.
    pub(super) fn send(&self, mut session: Session) -> Sent {
        let (row, order) = (self.row, self.worker.order());
        let limit = usize::try_from(order.output_limit).unwrap_or(usize::MAX);
        let mut log = TaskLog::new(row.task, self.worker.watchdog);
        let mut output = Output::new(&row.format, row.verbosity, &row.input, limit, &mut log);
        let mut ran = if row.atomic {
            // Behind a BEGIN that is refused the input would run outside of any block.
            session.run_behind(&[BEGIN], &row.input, &mut output)
        } else if self.sets_up_with_input() {
            let setup = setup::before_input(order, row);
            session.run_behind(&[BEGIN, &setup, COMMIT], &row.input, &mut output)
        } else {
            session.run(&row.input, &mut output).map(|()| ChainAnswer::Ran)
        };
        if matches!(ran, Ok(ChainAnswer::Ran)) && !row.atomic && session.status() != TransactionStatus::Idle {
            output.own_statement();
            ran = session.run(b"COMMIT", &mut output).map(|()| ChainAnswer::Ran);
        }
        let printed = printed(output, row.key());
        match ran {
            Ok(ChainAnswer::Ran) => {
                Sent::Ran(Box::new(Outcome::ran(printed, log.code, Some(session), log.said_timeout)))
            }
            Ok(ChainAnswer::Refused(refusal)) => Sent::Refused(Box::new(session), refusal),
            Ok(ChainAnswer::Left(lost)) => Sent::Left(lost),
            Err(lost) => Sent::Ran(Box::new(Outcome::lost(printed, lost))),
        }
    }

    /// After a lost session: is it the same server still? A server that does not answer is not.
    fn read_again(&self) -> (Server, Option<Session>) {
        let Ok(mut session) = self.worker.connector.reopen(true) else { return (Server::Other, None) };
        match server_start(&mut session) {
            Ok(start) if start == self.row.postmaster => (Server::Same, Some(session)),
            _ => (Server::Other, Some(session)),
        }
    }
}

/// Nothing it may do keeps the input behind it from being read as it is meant: it opens no transaction, asks for no
/// COPY data, and leaves prepared statements alone. Read coarsely: a word that only looks like one of these costs no more than
/// a round trip.
pub(super) fn is_quiet(input: &[u8]) -> bool {
    !has_word(input, &[b"begin", b"start", b"copy"]) && !leaves_statements(input)
}

/// It may make prepared statements, or deallocate ours.
pub(super) fn leaves_statements(input: &[u8]) -> bool {
    has_word(input, &[b"prepare", b"deallocate", b"discard"])
}

fn has_word(input: &[u8], words: &[&[u8]]) -> bool {
    let at =
        |at: usize, word: &[u8]| input.get(at..at + word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    (0..input.len()).any(|i| words.iter().any(|word| word[0] == input[i] | 0x20 && at(i, word)))
}

#[cfg(test)]
mod tests {
    use super::is_quiet;

    #[test]
    fn an_input_that_may_leave_a_transaction_open_or_ask_for_data_is_not_quiet() {
        for input in ["SELECT 1", "CALL p()", "UPDATE t SET a = 1; SELECT 2", "COMMIT", ""] {
            assert!(is_quiet(input.as_bytes()), "{input}");
        }
        for input in [
            "BEGIN",
            "begin; SELECT 1",
            "SELECT 1;Start transaction",
            "COPY t FROM STDIN",
            "copy t from stdin",
            "DISCARD ALL",
        ] {
            assert!(!is_quiet(input.as_bytes()), "{input}");
        }
    }
}
