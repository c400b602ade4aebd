//! The rows of attempts whose workers are gone: the queries about them, and what the answers lead to.

use super::attempt_id::AttemptId;
use super::attempt_state::AttemptEvent;
use super::attempt_table::ToSettle;
use super::attempts::{AttemptAnswer, Attempts, StartHealth};
use super::settle::{Settlement, settle};
use crate::command::{Command, Refused, refusable};
use crate::pool::connection_pool::ConnectionPool;
use crate::turn::Turn;
use shared::log::Level;

impl Attempts {
    /// Asks about rows whose workers are gone; without a session that writes they are asked about again later.
    pub fn settle(
        &mut self,
        questions: Vec<ToSettle>,
        pool: &ConnectionPool,
        turn: &Turn<'_>,
    ) -> Vec<Command<AttemptAnswer>> {
        let mut commands = Vec::new();
        for ToSettle { run, task, attempt, terminate, patient, why, death } in questions {
            let mut strangers = pool.strangers_to(task, |slot| self.table.task_in(slot));
            strangers.extend(self.table.busy_elsewhere(task));
            let waits = self.table.settles_later(run, self.first_of_session, turn.passing);
            let Some(statements) = turn.writing().filter(|_| !waits).cloned() else {
                self.table.unsettled(run, turn.now);
                continue;
            };
            commands.push(refusable(Refused::Settlement(run), "settling a task", move |client| async move {
                let (named, how, why) = ((task, attempt), (terminate, patient), (why, death));
                let settlement = settle(&client, &statements.settle, named, strangers, how, why).await?;
                Ok(AttemptAnswer::Settled { run, task, settlement })
            }));
        }
        commands
    }

    pub(super) fn settled(
        &mut self,
        (run, task): (AttemptId, i64),
        settlement: Settlement,
        starts: StartHealth,
        turn: &Turn<'_>,
    ) -> Vec<Command<AttemptAnswer>> {
        let (queue, now) = (turn.label(), turn.now);
        self.table.settle_answered(run);
        let how = || self.table.death(run).map(|death| death.to_string()).unwrap_or_default();
        match settlement {
            Settlement::StillRunning => {
                self.table.unsettled(run, now);
                return Vec::new();
            }
            Settlement::Refused(error) => {
                if self.table.refused(run, now) {
                    shared::warning!(
                        "cannot settle a task without a process",
                        queue = queue,
                        task = task,
                        error = error
                    );
                }
                return Vec::new();
            }
            Settlement::Elsewhere(lead) => return self.search_remote(run, lead, turn).into_iter().collect(),
            Settlement::PlannedAgain => {
                // While no worker can begin, all tasks come back again and again, and the reason has been reported.
                let level = if starts.reported { Level::Debug } else { Level::Info };
                shared::log_line!(level, "task planned again", queue = queue, task = task);
                return self.over(run, task, starts.fresh, turn);
            }
            Settlement::Delayed { crashes, wait } => shared::warning!(
                "task crashed: it is planned again",
                queue = queue,
                task = task,
                how = how(),
                in_a_row = crashes,
                wait_s = wait
            ),
            Settlement::Spent => {
                shared::warning!("task failed: it crashed too often", queue = queue, task = task, how = how());
            }
            Settlement::Closed => shared::info!("run of a job closed", queue = queue, task = task),
            Settlement::NotOurs => return self.over(run, task, false, turn),
        }
        self.over(run, task, true, turn)
    }

    /// The row is settled. `poll`: it, or another of its group, may start.
    fn over(&mut self, run: AttemptId, task: i64, poll: bool, turn: &Turn<'_>) -> Vec<Command<AttemptAnswer>> {
        let found = self.remote_found(run, task, turn);
        self.table.event(run, AttemptEvent::Granted);
        found.into_iter().chain(poll.then_some(Command::PollAt(turn.now))).collect()
    }
}
