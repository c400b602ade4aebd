//! Which claimed rows this scheduler accounts for, and which of them are not to be run again.
//!
//! A worker writes its present task into the slot status, and its batch into the region.

use super::{Attempt, AttemptTable, WorkerProcess};
use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_state::{AttemptEvent, AttemptState};
use crate::attempt::group::Group;
use crate::attempt::leftovers::Unfinished;
use nix::sys::signal::Signal;
use shared::region::{Cancel, Request, SlotHandle};
use std::rc::Rc;

impl AttemptTable {
    /// (task, attempt, backend) of a live worker that has begun.
    pub fn current_of(&self, id: AttemptId) -> Option<(i64, i32, i32)> {
        self.status_of(self.attempts.get(&id)?.worker.as_ref()?)
    }

    fn status_of(&self, worker: &WorkerProcess) -> Option<(i64, i32, i32)> {
        self.region.slots().notes(worker.slot).running()
    }

    /// The present task of an entry.
    fn present_task(&self, attempt: &Attempt) -> i64 {
        let current = attempt.worker.as_ref().and_then(|worker| self.status_of(worker));
        current.map_or(attempt.task, |(task, _, _)| task)
    }

    /// (task, attempt, backend) of every live worker that has begun.
    fn current(&self) -> impl Iterator<Item = (i64, i32, i32)> {
        self.workers().filter_map(|worker| self.status_of(worker))
    }

    /// What an attempt runs, or will. A worker that has not written its status yet will run what it was started for: the row may
    /// show that already, and be stopped. A recorder runs nothing.
    pub(super) fn at_work(&self, attempt: &Attempt) -> Option<(i64, i32)> {
        let Some(worker) = &attempt.worker else {
            return (attempt.state == AttemptState::Claimed).then(|| attempt.key());
        };
        let status = self.status_of(worker).map(|(task, attempt, _)| (task, attempt));
        status.or((!worker.records).then(|| attempt.key()))
    }

    /// Asks the worker that runs this attempt, or will, to cancel it. The worker checks that it still does. A later attempt of the
    /// same task, in another worker, goes on.
    pub fn drop_unwanted(&self, unwanted: (i64, i32)) {
        let (task, number) = unwanted;
        for attempt in self.attempts.values().filter(|attempt| self.at_work(attempt) == Some(unwanted)) {
            if let Some(worker) = &attempt.worker {
                let notes = self.region.slots().notes(worker.slot);
                notes.request(Request { cancel: Cancel::Unwanted, task, attempt: number });
                worker.child.signal(Signal::SIGUSR1);
            }
        }
    }

    /// The same of one that is claimed and has no worker yet.
    pub fn claimed_id(&self, unwanted: (i64, i32)) -> Option<AttemptId> {
        let is_it = |attempt: &Attempt| attempt.state == AttemptState::Claimed && attempt.key() == unwanted;
        self.attempts.iter().find(|(_, attempt)| is_it(attempt)).map(|(id, _)| *id)
    }

    /// Whether a claimed row is accounted for: by its own name, or because a live worker's backend runs it.
    pub fn knows(&self, task: i64, attempt: i32, backend: Option<i32>) -> bool {
        let is_it = |own: &Attempt| match own.state {
            AttemptState::Unrecordable => own.key() == (task, attempt),
            AttemptState::Returning { .. } => false,
            _ => self.present_task(own) == task,
        };
        self.attempts.values().any(is_it)
            || (backend.is_some() && self.current().any(|(_, _, live)| Some(live) == backend))
    }

    /// The same, and exactly: a live worker accounts for its task and its batch, not for every row that names its backend.
    pub fn holds(&self, task: i64, attempt: i32) -> bool {
        let in_batch = |worker: &WorkerProcess| {
            // A list that moved while it was read is read again.
            (0..3).any(|_| {
                self.region.batch_sent(worker.slot).contains(&(task, attempt))
                    || self.region.batch_in_hand(worker.slot).contains(&(task, attempt))
            })
        };
        let is_it = |own: &Attempt| match own.state {
            AttemptState::Unrecordable | AttemptState::Returning { .. } => own.key() == (task, attempt),
            _ => own.task == task || self.present_task(own) == task,
        };
        self.attempts.values().any(is_it) || self.workers().any(in_batch)
    }

    /// The present task of the live worker that has this backend.
    pub fn at_backend(&self, backend: i32) -> Option<(i64, i32)> {
        self.current().find(|(_, _, live)| *live == backend).map(|(task, attempt, _)| (task, attempt))
    }

    /// Backends of live workers that run other tasks.
    pub fn busy_elsewhere(&self, task: i64) -> Vec<i32> {
        self.current().filter(|(other, _, _)| *other != task).map(|(_, _, backend)| backend).collect()
    }

    /// Of the rows that are still claimed, those whose end is refused; the others are forgotten.
    pub fn still_unrecordable(&mut self, claimed: &[Unfinished]) -> Vec<(AttemptId, i64, i32)> {
        let is_claimed = |key: (i64, i32)| claimed.iter().any(|row| (row.task, row.attempt) == key);
        let unrecordable = |attempt: &Attempt| attempt.state == AttemptState::Unrecordable;
        for id in self.ids_where(|attempt| unrecordable(attempt) && !is_claimed(attempt.key())) {
            self.event(id, AttemptEvent::Granted);
        }
        let left = self.attempts.iter().filter(|(_, attempt)| unrecordable(attempt));
        left.map(|(id, attempt)| (*id, attempt.task, attempt.attempt)).collect()
    }

    /// What runs at this moment, or is about to.
    pub fn running(&self) -> Vec<(i64, i32)> {
        let mut all: Vec<(i64, i32)> = self.attempts.values().filter_map(|attempt| self.at_work(attempt)).collect();
        for worker in self.workers() {
            all.extend(self.region.batch_in_hand(worker.slot));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The same, with the group, which is not found in the table any more once the row is deleted.
    pub fn known(&self) -> Vec<(i64, Rc<Group>)> {
        let runs = |attempt: &&Attempt| attempt.worker().is_some() || attempt.state == AttemptState::Claimed;
        let at_work = self.attempts.values().filter(runs);
        at_work.filter_map(|attempt| Some((self.present_task(attempt), attempt.group.clone()?))).collect()
    }

    /// What live workers have claimed and will not send, because a task of their batch takes long: it is to go back.
    pub fn slow_batches(&self) -> Vec<(i64, i32)> {
        let slow = self.workers().filter(|worker| self.region.batch_is_slow(worker.slot));
        slow.flat_map(|worker| self.region.close_batch(worker.slot)).collect()
    }

    /// The rest of the batch that a task waits in, which its owner has taken back: the task itself then stays as it is.
    pub fn batch_around(&self, unwanted: (i64, i32)) -> Vec<(i64, i32)> {
        let around = self.workers().filter(|worker| {
            self.status_of(worker).is_none_or(|(task, attempt, _)| (task, attempt) != unwanted)
                && self.region.batch_in_hand(worker.slot).contains(&unwanted)
        });
        around.flat_map(|worker| self.region.close_batch(worker.slot)).collect()
    }

    /// The present task of the worker in a slot.
    pub fn task_in(&self, slot: SlotHandle) -> Option<i64> {
        let is_there = |attempt: &&Attempt| attempt.worker.as_ref().is_some_and(|worker| worker.slot == slot);
        self.attempts.values().find(is_there).map(|attempt| self.present_task(attempt))
    }

    /// The use of a slot that a worker has.
    pub fn slot_of(&self, slot: u32, pid: i32) -> Option<SlotHandle> {
        let is_there = |worker: &&WorkerProcess| worker.slot.index() == slot && worker.child.pid().as_raw() == pid;
        self.workers().find(is_there).map(|worker| worker.slot)
    }
}
