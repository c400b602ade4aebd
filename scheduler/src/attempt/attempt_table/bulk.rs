//! What the bulk writers ask the table: which attempts are to begin, which results are to be recorded, and which tasks of batches
//! are to be planned again. Of each kind one query is in flight at a time.

use super::{Attempt, AttemptTable};
use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_state::{AttemptEvent, AttemptState};
use shared::db::server::ServerName;
use shared::process::begin_channel;
use shared::region::{EndState, SlotHandle, TaskResult};
use std::rc::Rc;
use std::time::Instant;
use worker::TaskRow;

/// An attempt whose begin is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToBegin {
    pub run: AttemptId,
    pub task: i64,
    pub attempt: i32,
    pub backend: i32,
}

/// A claimed row that is to be forked for.
#[derive(Debug)]
pub struct ToStart {
    pub run: AttemptId,
    pub row: Rc<TaskRow>,
    pub slot: SlotHandle,
    pub backend: i32,
}

impl AttemptTable {
    /// The question about these is in flight.
    pub fn asked(&mut self, ids: impl IntoIterator<Item = AttemptId>) {
        for id in ids {
            self.event(id, AttemptEvent::Asked);
        }
    }

    /// Claimed rows whose begin is recorded, in the order of their claim.
    pub fn to_start(&self) -> Vec<ToStart> {
        let claimed = self.attempts.iter().filter(|(_, attempt)| attempt.state == AttemptState::Claimed);
        claimed
            .filter_map(|(run, attempt)| {
                let (slot, backend) = attempt.reserved?;
                Some(ToStart { run: *run, row: attempt.row.clone()?, slot, backend })
            })
            .collect()
    }

    /// Reads which workers have connected meanwhile.
    pub fn read_channels(&mut self) {
        let mut connected = Vec::new();
        for (id, attempt) in &mut self.attempts {
            if let (AttemptState::Assigned { ack_by: None }, Some(worker)) = (attempt.state, &mut attempt.worker)
                && let Some(backend) = worker.channel.as_ref().and_then(begin_channel::asked)
            {
                worker.backend = Some(backend);
                connected.push(*id);
            }
        }
        for id in connected {
            self.event(id, AttemptEvent::Connected);
        }
    }

    /// Some worker waits for its begin, or will.
    pub fn has_waiting(&self) -> bool {
        self.workers().any(|worker| worker.channel.is_some())
    }

    /// Workers that have connected and wait, if no begins are being recorded.
    pub fn to_begin(&self) -> Vec<ToBegin> {
        if self.attempts.values().any(|attempt| attempt.state == AttemptState::Connected { asked: true }) {
            return Vec::new();
        }
        let connected = |(run, attempt): (&AttemptId, &Attempt)| {
            let backend = attempt.worker.as_ref()?.backend?;
            let waits = attempt.state == AttemptState::Connected { asked: false };
            waits.then_some(ToBegin { run: *run, task: attempt.task, attempt: attempt.attempt, backend })
        };
        self.attempts.iter().filter_map(connected).collect()
    }

    /// Nothing that waits for its begin may begin any more.
    pub fn let_go(&mut self) {
        for id in self.ids_where(|attempt| attempt.worker.as_ref().is_some_and(|worker| worker.channel.is_some())) {
            self.event(id, AttemptEvent::LetGo);
        }
    }

    /// The answer to its begin, if the worker still waits for it.
    pub fn begin_event(&mut self, id: AttemptId, event: AttemptEvent) {
        if self.attempts.get(&id).is_some_and(|attempt| attempt.state == AttemptState::Connected { asked: true }) {
            self.event(id, event);
        }
    }

    /// The begins could not be recorded now.
    pub fn begins_unanswered(&mut self, now: Instant) {
        for id in self.ids_where(|attempt| attempt.state == AttemptState::Connected { asked: true }) {
            self.event(id, AttemptEvent::Unanswered { now });
        }
    }

    /// All results that wait, if none are being recorded.
    pub fn to_record(&self) -> Vec<(AttemptId, &TaskResult<'static>)> {
        if self.attempts.values().any(|attempt| attempt.state == AttemptState::Recording) {
            return Vec::new();
        }
        let reported = self.attempts.iter().filter(|(_, attempt)| attempt.state == AttemptState::Reported);
        reported.filter_map(|(id, attempt)| Some((*id, attempt.result.as_deref()?))).collect()
    }

    /// Results that are being recorded, with the jobs whose runs they are.
    pub fn recording(&self) -> impl Iterator<Item = (&TaskResult<'static>, Option<&[u8]>)> {
        let recording = self.attempts.values().filter(|attempt| attempt.state == AttemptState::Recording);
        recording.filter_map(|attempt| {
            let job = attempt.row.as_ref().and_then(|row| row.job.as_deref());
            Some((attempt.result.as_deref()?, job))
        })
    }

    /// Of the results that were being recorded, these tasks' are. True: all of them.
    pub fn recorded(&mut self, written: &[i64], now: Instant) -> bool {
        let mut all = true;
        for id in self.ids_where(|attempt| attempt.state == AttemptState::Recording) {
            let Some(attempt) = self.attempts.get(&id) else { continue };
            if written.contains(&attempt.task) {
                let failed = attempt.result.as_ref().is_some_and(|result| result.state == EndState::Fail);
                shared::debug!("task finished", task = attempt.task, failed = failed);
                self.event(id, AttemptEvent::Granted);
            } else {
                all = false;
                self.event(id, AttemptEvent::Refused { now });
            }
        }
        all
    }

    /// They could not be recorded now, or nothing is known: they are recorded again (the fence makes that harmless).
    pub fn records_unanswered(&mut self, now: Instant) {
        for id in self.ids_where(|attempt| attempt.state == AttemptState::Recording) {
            self.event(id, AttemptEvent::Unanswered { now });
        }
    }

    pub fn has_retries(&self) -> bool {
        self.attempts.values().any(|attempt| attempt.state == AttemptState::RecordRetry { under_way: false })
    }

    /// A result that needs a worker of its own.
    pub fn to_retry(&self) -> Option<(AttemptId, Rc<TaskRow>, TaskResult<'static>)> {
        let waits = |attempt: &&Attempt| attempt.state == AttemptState::RecordRetry { under_way: false };
        let (id, attempt) = self.attempts.iter().find(|(_, attempt)| waits(attempt))?;
        Some((*id, attempt.row.clone()?, attempt.result.as_deref()?.clone()))
    }

    /// Results and claimed rows that have begun on a server whose data are not on this one: their rows are settled. The
    /// reserved slots and backends, and the tasks whose results are dropped.
    pub fn drop_others_than(&mut self, name: &ServerName, now: Instant) -> (Vec<(SlotHandle, i32)>, Vec<i64>) {
        let elsewhere = |attempt: &Attempt| attempt.server.as_ref().is_some_and(|at| !name.has_the_data_of(at));
        let lost = self.ids_where(|attempt| {
            elsewhere(attempt) && (attempt.result.is_some() || attempt.state == AttemptState::Claimed)
        });
        let (mut reserved, mut dropped) = (Vec::new(), Vec::new());
        for id in lost {
            self.event(id, AttemptEvent::DataLost { now });
            let Some(attempt) = self.attempts.get_mut(&id) else { continue };
            reserved.extend(attempt.reserved.take());
            dropped.extend(attempt.result.take().map(|result| result.key.task));
        }
        (reserved, dropped)
    }

    /// The same for one attempt whose worker has just ended. True: its result is dropped.
    pub fn drop_result(&mut self, id: AttemptId, name: &ServerName, now: Instant) -> bool {
        let elsewhere = |attempt: &Attempt| attempt.server.as_ref().is_some_and(|at| !name.has_the_data_of(at));
        if !self.attempts.get(&id).is_some_and(|attempt| attempt.result.is_some() && elsewhere(attempt)) {
            return false;
        }
        self.event(id, AttemptEvent::DataLost { now });
        self.attempts.get_mut(&id).is_some_and(|attempt| attempt.result.take().is_some())
    }

    /// Tasks of batches that are not to be sent any more.
    pub fn return_later(&mut self, tasks: Vec<(i64, i32)>, now: Instant) {
        for (task, attempt) in tasks {
            self.insert(Attempt::new(task, attempt, AttemptState::Returning { next: Some(now) }));
        }
    }

    pub fn return_deadline(&self) -> Option<Instant> {
        let mut earliest: Option<Instant> = None;
        for attempt in self.attempts.values() {
            match attempt.state {
                AttemptState::Returning { next: None } => return None,
                AttemptState::Returning { next: Some(at) } => earliest = Some(earliest.map_or(at, |min| min.min(at))),
                _ => {}
            }
        }
        earliest
    }

    /// Those that are due, if none are being planned again.
    pub fn to_return(&self, now: Instant) -> Vec<(AttemptId, i64, i32)> {
        if self.return_deadline().is_none_or(|at| now < at) {
            return Vec::new();
        }
        let is_due =
            |attempt: &Attempt| matches!(attempt.state, AttemptState::Returning { next: Some(at) } if now >= at);
        let due = self.attempts.iter().filter(|(_, attempt)| is_due(attempt));
        due.map(|(id, attempt)| (*id, attempt.task, attempt.attempt)).collect()
    }

    /// They are planned again, but for those that are locked. True: some are.
    pub fn returned(&mut self, locked: &[(i64, i32)], now: Instant) -> bool {
        let mut some = false;
        for id in self.ids_where(|attempt| attempt.state == AttemptState::Returning { next: None }) {
            let is_locked = self.attempts.get(&id).is_some_and(|attempt| locked.contains(&attempt.key()));
            some |= !is_locked;
            self.event(id, if is_locked { AttemptEvent::Refused { now } } else { AttemptEvent::Granted });
        }
        some
    }

    pub fn returns_unanswered(&mut self, now: Instant) {
        for id in self.ids_where(|attempt| attempt.state == AttemptState::Returning { next: None }) {
            self.event(id, AttemptEvent::Unanswered { now });
        }
    }

    /// What every attempt of this moment has begun on, or begins on, is another server's from now on.
    pub fn mark_strays(&mut self) {
        self.attempts.values_mut().for_each(|attempt| attempt.stray = true);
    }

    /// The row of an attempt could not be settled; it is asked about again.
    pub fn unsettled(&mut self, id: AttemptId, now: Instant) {
        self.event(id, AttemptEvent::Unanswered { now });
    }

    /// The database has answered what became of it.
    pub fn settle_answered(&mut self, id: AttemptId) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.answered = true;
        }
    }

    /// Entries before `first` are of an earlier session. The server may have lost their claims in a crash; then the next claim
    /// of the row gets the same number. So they are asked about before anything is claimed.
    pub fn settles_first(&self, first: AttemptId) -> bool {
        let unasked = |attempt: &Attempt| matches!(attempt.state, AttemptState::Settling { .. }) && !attempt.answered;
        self.attempts.range(..first).any(|(id, attempt)| unasked(attempt) && !self.is_claimed_again(*id))
    }

    /// Whether that question must wait. While another entry has the same task and number, it is the other's row.
    pub fn settles_later(&self, id: AttemptId, first: AttemptId, passing: bool) -> bool {
        let unasked = self.attempts.get(&id).is_some_and(|attempt| !attempt.answered);
        (passing && id < first && unasked) || self.is_claimed_again(id)
    }

    fn is_claimed_again(&self, id: AttemptId) -> bool {
        let Some(key) = self.attempts.get(&id).map(Attempt::key) else { return false };
        self.attempts.iter().any(|(other, attempt)| match attempt.state {
            AttemptState::Settling { .. } | AttemptState::Over => false,
            _ => *other != id && self.at_work(attempt).unwrap_or(attempt.key()) == key,
        })
    }
}
