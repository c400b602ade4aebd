//! Which claimed rows are in our hands, and which of them are not to be run again.
//!
//! A worker says in the notes of its slot what it is at, and in the region what is in its batch.

use super::{Hands, RunTable};
use crate::attempt::attempt_id::AttemptId;
use crate::attempt::leftovers::Unfinished;
use crate::claim::group::Group;
use shared::region::SlotHandle;
use std::rc::Rc;
use std::time::Instant;

impl RunTable {
    /// Whether a claimed row is in our hands: by its own name, or because a live worker's backend runs it.
    pub fn knows(&self, task: i64, attempt: i32, backend: Option<i32>) -> bool {
        self.unwritten.contains_key(&(task, attempt))
            || self.runs.values().any(|run| self.at(run) == task)
            || (backend.is_some() && self.current().any(|(_, _, live)| Some(live) == backend))
    }

    /// The same, and exactly: a live worker holds what it is at and what is in its batch, not whatever names its backend.
    pub fn holds(&self, task: i64, attempt: i32) -> bool {
        let in_batch = |hands: &Hands| {
            // A list that moved while it was read is read again.
            (0..3).any(|_| {
                self.region.batch_sent(hands.slot).contains(&(task, attempt))
                    || self.region.batch_in_hand(hands.slot).contains(&(task, attempt))
            })
        };
        self.unwritten.contains_key(&(task, attempt))
            || self.runs.values().any(|run| run.task == task || self.at(run) == task)
            || self.runs.values().filter_map(|run| run.hands.as_ref()).any(in_batch)
    }

    /// What the live worker is at that has this backend.
    pub fn at_backend(&self, backend: i32) -> Option<(i64, i32)> {
        self.current().find(|(_, _, live)| *live == backend).map(|(task, attempt, _)| (task, attempt))
    }

    /// Backends of live workers that are at other tasks.
    pub fn busy_elsewhere(&self, task: i64) -> Vec<i32> {
        self.current().filter(|(other, _, _)| *other != task).map(|(_, _, backend)| backend).collect()
    }

    /// Of the rows that are still claimed, those whose end is refused; the others are forgotten.
    pub fn still_unwritten(&mut self, claimed: &[Unfinished]) -> Vec<(i64, i32)> {
        let is_claimed = |key: &(i64, i32)| claimed.iter().any(|row| (row.task, row.attempt) == *key);
        self.unwritten.retain(|key, _| is_claimed(key));
        self.unwritten.keys().copied().collect()
    }

    pub fn written(&mut self, task: i64, attempt: i32) {
        self.unwritten.remove(&(task, attempt));
    }

    /// The row cannot be changed. True: nobody has heard of it yet.
    pub fn refused_again(&mut self, task: i64, attempt: i32) -> bool {
        self.unwritten.get_mut(&(task, attempt)).is_some_and(|said| !std::mem::replace(said, true))
    }

    /// The database refuses to plan it again: it is asked again later. True: nobody has heard of it yet.
    pub fn refused(&mut self, id: AttemptId, later: Instant) -> bool {
        self.unsettled(id, later);
        self.runs.get_mut(&id).is_some_and(|run| !std::mem::replace(&mut run.refused, true))
    }

    /// What runs at this moment, or is about to.
    pub fn running(&self) -> Vec<(i64, i32)> {
        let mut all: Vec<(i64, i32)> = self.runs.values().filter_map(|run| self.at_work(run)).collect();
        for hands in self.runs.values().filter_map(|run| run.hands.as_ref()) {
            all.extend(self.region.batch_in_hand(hands.slot));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What workers are at, with its group, which nobody finds in the table once the row is deleted.
    pub fn known(&self) -> Vec<(i64, Rc<Group>)> {
        let at_work = self.runs.values().filter(|run| run.hands.as_ref().is_some_and(|hands| !hands.clerk));
        at_work.filter_map(|run| Some((self.at(run), run.group.clone()?))).collect()
    }

    /// What live workers have taken and will not send, because a task of their batch takes long: it is to go back.
    pub fn slow_batches(&self) -> Vec<(i64, i32)> {
        let hands = self.runs.values().filter_map(|run| run.hands.as_ref());
        let slow = hands.filter(|hands| self.region.batch_is_slow(hands.slot));
        slow.flat_map(|hands| self.region.close_batch(hands.slot)).collect()
    }

    /// The rest of the batch that a task waits in, which its owner has taken back: the task itself then stays as it is.
    pub fn batch_around(&self, unwanted: (i64, i32)) -> Vec<(i64, i32)> {
        let hands = self.runs.values().filter_map(|run| run.hands.as_ref());
        let around = hands.filter(|hands| {
            let running = self.region.slots().notes(hands.slot).running();
            running.is_none_or(|(task, attempt, _)| (task, attempt) != unwanted)
                && self.region.batch_in_hand(hands.slot).contains(&unwanted)
        });
        around.flat_map(|hands| self.region.close_batch(hands.slot)).collect()
    }

    /// The task that the worker in a slot is at.
    pub fn task_in(&self, slot: SlotHandle) -> Option<i64> {
        self.runs
            .values()
            .find(|run| run.hands.as_ref().is_some_and(|hands| hands.slot == slot))
            .map(|run| self.at(run))
    }

    pub fn set_group(&mut self, id: AttemptId, group: Rc<Group>) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.group = Some(group);
        }
    }
}
