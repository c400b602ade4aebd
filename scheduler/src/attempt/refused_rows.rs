//! The rows of attempts that have run and whose end was refused: the queries about them, and what the answers lead to.

use super::attempt_id::AttemptId;
use super::attempt_state::AttemptEvent;
use super::attempts::{AttemptAnswer, Attempts};
use super::leftovers::Unfinished;
use super::refused_end::{Rewritten, rewrite};
use crate::command::{Command, Refused, refusable};
use crate::turn::Turn;

impl Attempts {
    /// Tries once more to end the rows that are still claimed.
    pub(super) fn rewrite(&mut self, claimed: &[Unfinished], turn: &Turn<'_>) -> Vec<Command<AttemptAnswer>> {
        let unrecordable = self.table.still_unrecordable(claimed);
        let Some(statements) = turn.statements() else { return Vec::new() };
        let commands = unrecordable.into_iter().map(|(run, task, attempt)| {
            let statements = statements.clone();
            refusable(Refused::Chore, "ending a task", move |client| async move {
                let what = rewrite(&client, &statements, task, attempt).await?;
                Ok(AttemptAnswer::Rewritten { run, task, what })
            })
        });
        commands.collect()
    }

    pub(super) fn rewritten(
        &mut self,
        (run, task): (AttemptId, i64),
        what: Rewritten,
        turn: &Turn<'_>,
    ) -> Option<Command<AttemptAnswer>> {
        let queue = turn.label();
        match what {
            Rewritten::Failed => {
                shared::info!("task failed: the server had refused the record of its end", queue = queue, task = task)
            }
            Rewritten::Stopped => {
                shared::warning!("task stopped: the server refuses the record of its end", queue = queue, task = task)
            }
            Rewritten::Untouched => return None,
            Rewritten::Refused(error) => {
                if self.table.refused(run, turn.now) {
                    shared::warning!("cannot record the end of a task", queue = queue, task = task, error = error);
                }
                return None;
            }
        }
        self.table.event(run, AttemptEvent::Granted);
        Some(Command::PollAt(turn.now))
    }
}
