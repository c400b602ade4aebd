//! The ends of workers: what each has left, read before its slot is given back.

use super::{Attempt, AttemptTable, CRASHED, INTERRUPTED, ToSettle};
use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_state::{AttemptEvent, AttemptState, WorkerOutcome};
use crate::attempt::death::Death;
use shared::process::exit_code::ExitCode;
use shared::region::{ConnectionReceipt, Phase, SlotHandle, TaskResult};
use shared::sys::wait::ProcessEnd;
use std::time::{Duration, Instant};

/// A worker that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnd {
    pub run: AttemptId,
    pub task: i64,
    pub end: ProcessEnd,
    pub slot: SlotHandle,
    pub pid: i32,
    /// Its server process, if it died without having finished: rows that name it are not run by anybody now.
    pub left: Option<i32>,
    /// Why it could not begin, as it left it in its slot.
    pub reason: Option<String>,
    /// What it noted last about its connection.
    pub returned: Option<ConnectionReceipt>,
    /// How long it took, if it has left a result to be recorded.
    pub took: Option<Duration>,
    /// It was to record a result and has not.
    pub unrecorded: bool,
    /// Its task has begun on another server than the present one.
    pub stray: bool,
}

impl AttemptTable {
    /// Sweeps and reaps the workers that have ended.
    pub fn reap(&mut self, now: Instant) -> (Vec<WorkerEnd>, Vec<ToSettle>) {
        let is_ended = |attempt: &Attempt| attempt.worker.as_ref()?.child.ended();
        let ended: Vec<(AttemptId, ProcessEnd)> =
            self.attempts.iter().filter_map(|(id, attempt)| Some((*id, is_ended(attempt)?))).collect();
        let mut questions = Vec::new();
        let mut ends = Vec::new();
        for (id, end) in ended {
            ends.extend(self.reap_one(id, end, &mut questions, now));
        }
        (ends, questions)
    }

    fn reap_one(
        &mut self,
        id: AttemptId,
        end: ProcessEnd,
        questions: &mut Vec<ToSettle>,
        now: Instant,
    ) -> Option<WorkerEnd> {
        let current = self.current_of(id);
        let (slot, returned, result) = self.left_by(id)?;
        let phase = self.region.slots().slot_status(slot).phase();
        let attempt = self.attempts.get_mut(&id)?;
        let outcome = attempt.outcome(end, result.is_some());
        if let (WorkerOutcome::Unknown | WorkerOutcome::Unrecordable, Some((task, number, _))) = (outcome, current) {
            (attempt.task, attempt.attempt) = (task, number);
        }
        if phase == Some(Phase::Stopping) {
            attempt.why = INTERRUPTED;
        }
        if outcome == WorkerOutcome::Unknown && current.is_some() && attempt.was_left_alone() {
            attempt.death = Death::of(end, self.region.slots().slot_status(slot).severed());
        }
        let took = (outcome == WorkerOutcome::Result).then(|| now.saturating_duration_since(attempt.began));
        if outcome == WorkerOutcome::Result {
            attempt.result = result.map(Box::new);
        }
        if outcome == WorkerOutcome::Unrecordable {
            attempt.result = None;
            let key = attempt.key();
            self.forget_unrecordable(key, id);
            // Others of its batch may be in the same case; those whose end is recorded are in nobody's way.
            for (task, attempt) in self.region.batch_sent(slot) {
                self.unrecordable(task, attempt, id);
            }
        }
        // The cell's ticket is freed by the step, the slot by the sweep, and only then may the pid be reused.
        questions.extend(self.event(id, AttemptEvent::Ended { outcome }));
        let attempt = self.attempts.get_mut(&id)?;
        let worker = attempt.worker.take()?;
        let (task, stray) = (attempt.task, attempt.stray);
        let reason = self.region.slots().slot_status(slot).reason();
        let unrecorded = outcome == WorkerOutcome::Unrecorded;
        let pid = worker.child.pid();
        self.region.sweep(pid);
        worker.child.reap();
        let left = current.filter(|_| outcome == WorkerOutcome::Unknown).map(|(_, _, backend)| backend);
        if attempt.state == AttemptState::Over {
            self.attempts.remove(&id);
        }
        let pid = pid.as_raw();
        Some(WorkerEnd { run: id, task, end, slot, pid, left, reason, returned, took, unrecorded, stray })
    }

    /// The slot of a worker that has ended, what it noted last about its connection, and the result of its own task.
    fn left_by(&self, id: AttemptId) -> Option<(SlotHandle, Option<ConnectionReceipt>, Option<TaskResult<'static>>)> {
        let attempt = self.attempts.get(&id)?;
        let slot = attempt.worker.as_ref()?.slot;
        let result = self.region.take_result(slot);
        let own = result.filter(|result| (result.key.task, result.key.attempt) == attempt.key());
        Some((slot, self.region.left_clean(slot), own))
    }

    /// A task that has run and whose end the database refuses; it is in the table once.
    fn unrecordable(&mut self, task: i64, attempt: i32, but: AttemptId) {
        let known = self.attempts.get(&but).is_some_and(|own| own.key() == (task, attempt));
        if !known && !self.attempts.values().any(|other| other.is_unrecordable(task, attempt)) {
            self.insert(Attempt::new(task, attempt, AttemptState::Unrecordable));
        }
    }

    fn forget_unrecordable(&mut self, (task, attempt): (i64, i32), but: AttemptId) {
        self.attempts.retain(|id, other| *id == but || !other.is_unrecordable(task, attempt));
    }
}

impl Attempt {
    /// A task with a result has run, however its worker ended; and a recorder's result that is not recorded stays here.
    fn outcome(&self, end: ProcessEnd, result: bool) -> WorkerOutcome {
        let records = self.worker.as_ref().is_some_and(|worker| worker.records);
        let finished = end == ProcessEnd::Exited(ExitCode::Asked.status());
        if end == ProcessEnd::Exited(ExitCode::Permanent.status()) {
            WorkerOutcome::Unrecordable
        } else if records {
            if finished { WorkerOutcome::Finished } else { WorkerOutcome::Unrecorded }
        } else if result {
            if self.is_plain() { WorkerOutcome::Result } else { WorkerOutcome::Finished }
        } else if finished {
            WorkerOutcome::Finished
        } else {
            WorkerOutcome::Unknown
        }
    }

    /// The task counts as the cause of its worker's death where that was not asked to end, by us or by anybody who asks us.
    fn was_left_alone(&self) -> bool {
        let running = matches!(
            self.state,
            AttemptState::Assigned { .. }
                | AttemptState::Connected { .. }
                | AttemptState::Running
                | AttemptState::Leaving
        );
        running && self.why == CRASHED
    }

    pub(super) fn is_unrecordable(&self, task: i64, attempt: i32) -> bool {
        self.state == AttemptState::Unrecordable && self.key() == (task, attempt)
    }
}
