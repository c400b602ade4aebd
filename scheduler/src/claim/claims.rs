//! Claims: when the next pass is due, what the one in flight may claim, and what keeps more from being claimed.
//!
//! Slots are reserved before rows are claimed, so that no row is claimed that could not start. A row whose worker cannot be
//! forked, or that comes when the scheduler already stops, is settled back to PLAN like one whose worker died. A pass is begun in
//! `pass_start`, and its result is carried out in `pass_end`.

use super::claimed_rows::GroupCursor;
use super::pass_request::PassResult;
use super::poll_timer::PollTimer;
use super::process_limit::{ProcessLimit, is_shortage};
use crate::attempt::assign::NotStarted;
use crate::attempt::attempt_table::reap::WorkerEnd;
use crate::attempt::attempts::{Attempts, StartHealth};
use crate::attempt::group::Group;
use crate::command::Command;
use crate::limits::{CLAIM_WAIT, FAILED_START_FIRST, FAILED_START_LAST, LONGEST_GATHERING};
use crate::pool::connection_pool::ConnectionPool;
use crate::turn::Turn;
use shared::db::back_off::BackOff;
use shared::db::db_error::DbError;
use shared::process::exit_code::ExitCode;
use shared::region::{Phase, SlotHandle};
use shared::sys::wait::ProcessEnd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A worker exits so when it has run its task and the database refuses every form of its end.
const UNRECORDABLE: i32 = ExitCode::Permanent.status();
/// And so when only its task's remote knows what became of it.
const UNSETTLED: i32 = ExitCode::Unsettled.status();

/// What the database answers to claims.
#[derive(Debug)]
pub enum ClaimAnswer {
    Passed(Box<PassResult>),
    Done,
}

/// The pass in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Slots reserved for its rows.
    pub slots: Vec<SlotHandle>,
    /// Backends whose connections are reserved for its rows.
    pub reserved: Vec<i32>,
    /// It only claims.
    pub claim_only: bool,
    pub began: Instant,
}

#[derive(Debug)]
pub struct Claims {
    pub timer: PollTimer,
    pub(super) pass: Option<InFlight>,
    /// When the next full pass is due.
    pub(super) next_full: Instant,
    /// The last pass has filled all slots that it had.
    pub(super) backlog: bool,
    /// No slot was free at the last pass; the launcher signals when one is.
    wants_slot: bool,
    /// Slots came free by us since the last turn of the loop.
    pub(super) freed: bool,
    pub(super) cursor: GroupCursor,
    /// The group whose plain tasks the last pass has begun, if no other waited.
    pub(super) only: Option<Rc<Group>>,
    /// Locks that tell `mill.why` what is missing.
    pub(super) signs: Vec<i32>,
    /// Too few descriptors or processes.
    pub process_limit: ProcessLimit,
    /// Pause between passes while workers cannot even begin.
    pub(super) failed_starts: BackOff,
    /// A worker's reason for not beginning was reported, and none has got further since.
    pub(super) reported: bool,
}

impl Claims {
    pub fn new(slots: u32, now: Instant) -> Claims {
        Claims {
            timer: PollTimer::new(now),
            pass: None,
            next_full: now,
            backlog: false,
            wants_slot: false,
            freed: false,
            cursor: GroupCursor::default(),
            only: None,
            signs: Vec::new(),
            process_limit: ProcessLimit::new(slots, now),
            failed_starts: BackOff::new(FAILED_START_FIRST, FAILED_START_LAST),
            reported: false,
        }
    }

    pub fn is_passing(&self) -> bool {
        self.pass.is_some()
    }

    pub fn start_health(&self) -> StartHealth {
        let reported = self.reported || self.process_limit.reason().is_some();
        StartHealth { reported, fresh: self.failed_starts.fresh() }
    }

    /// The queue is ours, with a new session.
    pub fn settle_in(&mut self, now: Instant) {
        self.failed_starts.succeeded();
        self.timer.hold_off(now);
        self.timer.forget(now);
        self.signs.clear();
    }

    /// The session is gone, and with it the pass in flight.
    pub fn session_lost(&mut self, pool: &mut ConnectionPool, turn: &Turn<'_>) {
        self.wants_slot = false;
        // From here on the session has its own reason, and takes it back itself.
        self.reported = false;
        self.timer.forget(turn.now);
        self.release(pool, turn);
    }

    /// Whatever the pass in flight had reserved is free again.
    pub fn release(&mut self, pool: &mut ConnectionPool, turn: &Turn<'_>) {
        let Some(InFlight { slots, reserved, .. }) = self.pass.take() else { return };
        reserved.into_iter().for_each(|backend| pool.unreserve(backend));
        for slot in slots {
            turn.base.start.region.slots().release(slot);
            self.freed = true;
        }
    }

    /// SIGUSR2 or the like: a slot may be free.
    pub fn signalled(&mut self, now: Instant) {
        if self.wants_slot && self.failed_starts.fresh() {
            self.timer.hurry(now);
        }
    }

    /// For how long ends of workers and reset connections wait for the answer of a claim-only pass: nothing could be done with
    /// them before, and each would make the loop go round.
    pub fn absorbs_for(&self, attempts: &Attempts) -> Option<Duration> {
        let pass = self.pass.as_ref().filter(|pass| pass.claim_only)?;
        let left = CLAIM_WAIT.checked_sub(pass.began.elapsed()).filter(|left| !left.is_zero())?;
        (attempts.table.claimed() == 0).then_some(left)
    }

    /// A claim-only pass is in flight, or a pass begins in a moment: that one records results in its transaction.
    pub fn will_record(&self, attempts: &Attempts, turn: &Turn<'_>) -> bool {
        match &self.pass {
            Some(pass) => pass.claim_only,
            None => {
                self.timer.is_hurried()
                    && attempts.knows_unfinished()
                    && !attempts.settles_first()
                    && !turn.stop.asked()
                    && turn.leads()
                    && self.timer.next_poll() <= Instant::now() + LONGEST_GATHERING
            }
        }
    }

    /// Workers could not be forked.
    pub fn not_started(&mut self, failed: Vec<NotStarted>, turn: &Turn<'_>) {
        for NotStarted { task, error } in failed {
            if self.process_limit.worker_failed(task, &error, turn) {
                let pause = self.failed_starts.next(turn.now);
                self.timer.hold_off(pause);
            }
        }
    }

    /// Workers have ended: whether workers can begin, and when their successors are claimed.
    pub fn workers_ended(
        &mut self,
        ends: &[WorkerEnd],
        attempts: &Attempts,
        turn: &Turn<'_>,
    ) -> Vec<Command<ClaimAnswer>> {
        let now = turn.now;
        let mut commands = Vec::new();
        let of_this_session =
            |worker: &WorkerEnd| turn.session.state.working() && attempts.is_of_this_session(worker.run);
        for worker in ends {
            match worker.end {
                ProcessEnd::Exited(0 | UNRECORDABLE) => {
                    self.failed_starts.succeeded();
                    if std::mem::take(&mut self.reported) {
                        commands.extend([Command::ReportEnd, Command::Note(None)]);
                    }
                }
                ProcessEnd::Killed(_) => {
                    shared::warning!("worker died", queue = turn.label(), task = worker.task, end = worker.end);
                }
                ProcessEnd::Exited(UNSETTLED) => {}
                // It was started by an earlier session of ours, and is late for this one.
                ProcessEnd::Exited(_) if !of_this_session(worker) => {}
                ProcessEnd::Exited(_) => self.not_begun(worker, &mut commands, turn),
            }
        }
        self.freed |= !ends.is_empty();
        let failed = |end: ProcessEnd| matches!(end, ProcessEnd::Exited(status) if ![0, UNRECORDABLE, UNSETTLED].contains(&status));
        if ends.iter().any(|worker| failed(worker.end) && of_this_session(worker)) {
            let pause = self.failed_starts.next(now);
            self.timer.hold_off(pause);
        } else if !ends.is_empty() && self.failed_starts.fresh() {
            // A finished task makes room for its successor at once, or with the next ones where many come and go.
            let gathering = if self.backlog { attempts.gathering() } else { Duration::ZERO };
            self.timer.hurry(now + gathering);
        }
        commands
    }

    /// A worker has left its task.
    fn not_begun(&mut self, worker: &WorkerEnd, commands: &mut Vec<Command<ClaimAnswer>>, turn: &Turn<'_>) {
        if let Some(reason) = worker.reason.as_ref().filter(|reason| is_shortage(reason)) {
            self.process_limit.worker_lacked(reason, turn);
        } else if let Some(reason) = &worker.reason {
            if !std::mem::replace(&mut self.reported, true) {
                commands.push(Command::Note(Some(reason.clone())));
            }
            let text = format!("its workers cannot begin; their tasks are planned again: {reason}");
            commands.push(Command::Report(DbError::between(text)));
        }
        shared::debug!("worker left its task", queue = turn.label(), task = worker.task, end = worker.end);
    }

    /// No slot was free: the launcher signals when one is.
    pub(super) fn set_wants_slot(&mut self, wants: bool, turn: &Turn<'_>) {
        turn.base.slot_status().set_wants_slot(wants);
        self.wants_slot = wants;
        if wants {
            show_running(turn);
        }
    }

    /// Slots came free since this was asked last.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}

/// In the slot status: the queue is served, whatever is due.
pub(super) fn show_running(turn: &Turn<'_>) {
    let slot_status = turn.base.slot_status();
    if slot_status.phase() == Some(Phase::Waiting) {
        slot_status.set_phase(Phase::Running);
        turn.base.start.signal_parent();
    }
}
