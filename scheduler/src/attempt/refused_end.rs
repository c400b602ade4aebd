//! Tasks that have run and whose end the database refuses in every form, by a trigger or a constraint of the table's owner.
//! To run the input again would be worse than to lose its result.
//!
//! Once in a while the end is tried again, as a failure that says no more than that; where that is refused too the row is
//! stopped, so that its group goes on, and a person decides. What cannot be changed in any way stays WORK and is tried again.

use crate::command::Refused;
use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use crate::session::write_pause::or_refused;
use crate::table::make::Prepared;
use shared::db::statement;
use shared::db::trouble::Trouble;
use tokio_postgres::Client;

/// What became of such a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    Failed,
    Stopped,
    /// Finished, deleted or taken anew by somebody else, or locked: the next look tells.
    Untouched,
    Refused(String),
}

impl Scheduler {
    /// `unwritten`: rows that are still WORK in the attempt that has run.
    pub(crate) fn rewrite(&mut self, unwritten: Vec<(i64, i32)>) {
        let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) else { return };
        for (task, attempt) in unwritten {
            let statements = statements.clone();
            link.ask("ending a task", ANSWER_TIMEOUT, move |client| {
                or_refused(Refused::Chore, async move {
                    Ok(Answer::Rewritten { task, attempt, what: rewrite(&client, &statements, task, attempt).await? })
                })
            });
        }
    }

    pub(crate) fn rewritten(&mut self, task: i64, attempt: i32, what: Rewritten) {
        match what {
            Rewritten::Failed => {
                shared::info!("task failed: its end was refused before", queue = self.base.label, task = task)
            }
            Rewritten::Stopped => {
                shared::warning!("task stopped: its end is refused", queue = self.base.label, task = task);
            }
            Rewritten::Untouched => return,
            Rewritten::Refused(error) => {
                if self.attempts.table.refused_again(task, attempt) {
                    shared::warning!(
                        "the row of a task that has ended cannot be changed",
                        queue = self.base.label,
                        task = task,
                        error = error
                    );
                }
                return;
            }
        }
        self.attempts.table.written(task, attempt);
        self.claims.timer.hurry(std::time::Instant::now());
    }
}

async fn rewrite(client: &Client, statements: &Prepared, task: i64, attempt: i32) -> Result<Rewritten, Trouble> {
    let mut refusal = String::new();
    for (text, what) in [(statement::END_UNWRITTEN, Rewritten::Failed), (statement::STOP_UNWRITTEN, Rewritten::Stopped)]
    {
        match client.query_opt(&statements.queue.fill(text), &[&task, &attempt]).await {
            Ok(Some(_)) => return Ok(what),
            Ok(None) => return Ok(Rewritten::Untouched),
            Err(error) => {
                let trouble = Trouble::of(&error);
                if trouble.passes() {
                    return Err(trouble);
                }
                refusal = trouble.text;
            }
        }
    }
    Ok(Rewritten::Refused(refusal))
}
