//! Recording results: the same end is sent until the server has it.
//!
//! A server without disk space, memory or connections refuses a record that is right. The worker then keeps the result and its
//! slot, so that the queue claims less meanwhile, and sends the record again (`record_retry` says when, and in which form).
//! Meanwhile the reason is in the worker's slot, where the scheduler reads it. A lost session is opened anew, on the server
//! on which the scheduler is then, if the effects of the task are known there. A worker that is told to give its task back
//! leaves, and the result with it: the row says WORK, and whoever serves the queue settles it.

use super::record_retry::{RecordForm, RecordRetry, Retry};
use crate::limits::{INTERRUPT_PERIOD, RECORD_TIMEOUT};
use crate::session::{Connector, NotReopened};
use crate::wire::{QueryError, ServerError, Session};
use nix::unistd::getppid;
use shared::db::refusal::Refusal;
use shared::process::exit_code::ExitCode;
use shared::process::order::signal_parent;
use shared::region::{Phase, SlotStatus};
use std::cell::Cell;
use std::thread;
use std::time::Instant;

const OUT_OF_MEMORY: &[u8] = b"53200";

/// How a waiting worker hears that it has to give its task back.
pub(crate) trait Interrupts {
    /// From here on it hears.
    fn wake(&self);
    fn interrupted(&self) -> bool;
}

/// Records one end, or those of one batch.
pub(crate) struct Recorder<'a> {
    connector: &'a Connector<'a>,
    interrupts: &'a dyn Interrupts,
    slot_status: SlotStatus<'a>,
    task: i64,
    /// What the task has done is on the server that records its end.
    effects: bool,
    /// The reason for waiting is in the slot.
    waits: Cell<bool>,
}

/// One try: what is sent, and why.
pub(crate) struct Try<'a> {
    pub(crate) form: RecordForm,
    /// What the server has complained of.
    pub(crate) complaint: &'a str,
    /// Nothing was sent before.
    pub(crate) first: bool,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        connector: &'a Connector<'a>,
        interrupts: &'a dyn Interrupts,
        slot_status: SlotStatus<'a>,
        task: i64,
        effects: bool,
    ) -> Recorder<'a> {
        Recorder { connector, interrupts, slot_status, task, effects, waits: Cell::new(false) }
    }

    /// Sends until it is accepted. An error is how the worker leaves.
    pub(crate) fn record<T>(
        &self,
        session: &mut Option<Session>,
        bytes: usize,
        mut send: impl FnMut(&mut Session, &Try<'_>) -> Result<T, QueryError>,
    ) -> Result<T, ExitCode> {
        let mut retry = RecordRetry::new(bytes);
        let (mut form, mut complaint, mut first) = (RecordForm::Whole, String::new(), true);
        loop {
            let passes;
            let next = match self.opened(session)? {
                Err(why) => {
                    (complaint, passes) = (why, true);
                    retry.refused(Refusal::Machine, false, Instant::now())
                }
                Ok(open) => {
                    open.set_answer_timeout(RECORD_TIMEOUT);
                    let answer = send(open, &Try { form, complaint: &complaint, first });
                    first = false;
                    match answer {
                        Ok(done) => {
                            self.recorded();
                            return Ok(done);
                        }
                        Err(QueryError::Link(lost)) => {
                            (*session, passes) = (None, true);
                            complaint = lost.to_string();
                            shared::debug!(
                                "connection lost while a result was recorded",
                                task = self.task,
                                error = complaint
                            );
                            retry.refused(Refusal::Unknown, false, Instant::now())
                        }
                        Err(QueryError::Server(refusal)) => {
                            let kind = refusal_of(&refusal);
                            (complaint, passes) = (refusal.to_string(), kind.passes());
                            if !passes {
                                shared::warning!("result refused", task = self.task, error = complaint);
                            }
                            retry.refused(kind, refusal.code() == Some(OUT_OF_MEMORY), Instant::now())
                        }
                    }
                }
            };
            form = match next {
                Retry::Now(form) => form,
                Retry::At(at, form) => {
                    self.wait(at, &complaint, passes)?;
                    form
                }
                Retry::Leave => {
                    shared::error!(
                        "cannot record the result; the task becomes FAIL without it, or STOP",
                        task = self.task,
                        error = complaint
                    );
                    return Err(ExitCode::Permanent);
                }
            };
        }
    }

    /// The session, opened anew if it was lost; or why not yet.
    fn opened<'s>(&self, session: &'s mut Option<Session>) -> Result<Result<&'s mut Session, String>, ExitCode> {
        if session.is_none() {
            match self.connector.reopen(self.effects) {
                Ok(open) => *session = Some(open),
                Err(NotReopened::Yet(why)) => return Ok(Err(why)),
                Err(NotReopened::Elsewhere(why)) => {
                    shared::warning!("result not recorded; reading the task", task = self.task, why = why);
                    return Err(ExitCode::Temporary);
                }
            }
        }
        Ok(session.as_mut().ok_or_else(String::new))
    }

    /// `passes`: the whole queue has to wait for the server.
    fn wait(&self, until: Instant, why: &str, passes: bool) -> Result<(), ExitCode> {
        self.slot_status.set_reason(why);
        self.slot_status.set_phase(if passes { Phase::Recording } else { Phase::Running });
        if !self.waits.replace(true) {
            signal_parent(getppid());
        }
        if self.rests(until) {
            return Ok(());
        }
        shared::warning!("result dropped: the worker has to exit", task = self.task, why = why);
        Err(ExitCode::Temporary)
    }

    /// Does nothing until then. False: the worker was told to end meanwhile.
    pub(crate) fn rests(&self, until: Instant) -> bool {
        self.interrupts.wake();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.interrupts.interrupted() {
                return left.is_zero();
            }
            thread::sleep(left.min(INTERRUPT_PERIOD));
        }
    }

    fn recorded(&self) {
        if self.waits.replace(false) {
            self.slot_status.set_reason("");
            self.slot_status.set_phase(Phase::Forked);
            signal_parent(getppid());
        }
    }
}

/// What a refusal of the server means.
pub(crate) fn refusal_of(error: &ServerError) -> Refusal {
    let code = error.code().map(String::from_utf8_lossy).unwrap_or_default();
    Refusal::of(&code, error.message().is_some_and(|text| text.starts_with(b"cached plan")))
}
