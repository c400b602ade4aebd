//! The results that workers leave to the scheduler: recorded many at once, together with the next claim where one comes.
//!
//! A result stays in the attempt table until the database has it: it survives a lost session, and one that cannot be recorded
//! with the others (its row is locked, repeats by now, or is refused) gets a worker that does nothing else. If the scheduler
//! itself is killed in between, such a task runs again.

use super::attempt_id::AttemptId;
use super::attempt_state::Door;
use super::attempt_table::reap::WorkerEnd;
use super::attempts::{AttemptAnswer, Attempts};
use super::ends::{self, unless_refused};
use crate::command::{Command, Refused, refusable};
use crate::limits::{MEAN_MEMORY, RECORD_RETRY_PAUSE};
use crate::turn::Turn;
use shared::process::failed_task;
use shared::process::spawn::Spawner;
use shared::region::{ProcessKind, TaskResult};
use worker::Assignment;

impl Attempts {
    /// What is to be recorded now, all at once, if nothing is being recorded.
    pub fn take_ends(&mut self) -> Option<Vec<TaskResult<'static>>> {
        let results = self.table.to_record();
        if results.is_empty() {
            return None;
        }
        let ends = results.iter().map(|(_, result)| (*result).clone()).collect();
        let asked: Vec<AttemptId> = results.into_iter().map(|(run, _)| run).collect();
        self.table.asked(asked);
        shared::process::fault::point("scheduler.before_recording");
        Some(ends)
    }

    /// Records by a query of its own.
    pub fn record(&mut self, turn: &Turn<'_>) -> Option<Command<AttemptAnswer>> {
        let statements = turn.writing()?.clone();
        let ends = self.take_ends()?;
        Some(refusable(Refused::Results, "recording results", move |client| async move {
            Ok(AttemptAnswer::Recorded(unless_refused(ends::write(&ends, &client, &statements).await)?))
        }))
    }

    /// These tasks' results are recorded; the others get a worker each.
    pub fn recorded(&mut self, written: &[i64], turn: &Turn<'_>) {
        for (result, job) in self.table.recording().filter(|(result, _)| written.contains(&result.key.task)) {
            failed_task::log(&turn.base.start.region, turn.label(), result, job);
        }
        if !self.table.recorded(written, turn.now) {
            self.next_retry.get_or_insert(turn.now);
        }
    }

    /// Workers are gone: what they have left for us.
    pub(super) fn results_left(&mut self, ends: &[WorkerEnd], turn: &Turn<'_>) {
        for ended in ends {
            if let Some(took) = ended.took {
                self.mean = (self.mean * (MEAN_MEMORY - 1) + took) / MEAN_MEMORY;
                let home = turn.session.home.server();
                if home.is_some_and(|home| self.table.drop_result(ended.run, &home.name, turn.now)) {
                    let (queue, task) = (turn.label(), ended.task);
                    shared::info!("result dropped: its task ran on another server", queue = queue, task = task);
                }
            }
            if ended.unrecorded {
                self.next_retry = Some(turn.now + RECORD_RETRY_PAUSE);
            }
        }
    }

    /// Results that could not be recorded with the others get a worker each, as far as there are slots.
    pub fn retry_records(&mut self, spawner: &Spawner, turn: &Turn<'_>) {
        if turn.statements().is_none() || self.next_retry.is_none_or(|at| turn.now < at) || !self.table.has_retries() {
            return;
        }
        self.next_retry = Some(turn.now + RECORD_RETRY_PAUSE);
        let context = self.queue_context(turn);
        while let Some((run, row, result)) = self.table.to_retry() {
            let Some(slot) = turn.base.start.region.slots().reserve() else { return };
            let task = result.key.task;
            self.expect(slot, turn);
            let spawned = spawner.spawn_plain(
                (slot, ProcessKind::Worker, turn.label()),
                worker::run,
                |start| Assignment::record_retry(start, &context, &row, &result),
                &[],
            );
            match spawned {
                Ok(child) => self.table.forked(run, (child, slot, Door::Recorder), None, None, turn.now),
                Err(error) => {
                    shared::error!("cannot start a worker", queue = turn.label(), task = task, error = error);
                    return;
                }
            }
        }
    }
}
