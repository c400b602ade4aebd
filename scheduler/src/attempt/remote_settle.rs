//! Tasks of dead workers on remotes: what `remote_search` finds out becomes queries to our own database here.
//!
//! A session that is known to be gone: the task is planned again. A remote that is not reached: a sign for `mill.why` and one line
//! in the log; after `reset` the row ends as crashed. The task is never run again while its outcome is unknown.

use super::attempt_id::AttemptId;
use super::attempts::{AttemptAnswer, Attempts};
use super::death::Death;
use super::remote_search::{Lead, News};
use super::settle::{self, Settlement};
use crate::command::{Command, query};
use crate::turn::Turn;
use shared::db::db_error::DbError;
use shared::db::{lock_key, statement};
use std::time::Duration;

impl Attempts {
    /// A row names a session on a remote. While an answer is awaited from there, the question counts as asked.
    pub(super) fn search_remote(
        &mut self,
        run: AttemptId,
        lead: Lead,
        turn: &Turn<'_>,
    ) -> Option<Command<AttemptAnswer>> {
        let (task, attempt) = (lead.task, lead.attempt);
        let began = self.remotes.begin(run, lead, &turn.base.order.remotes, turn.now)?;
        self.plan_gone(run, (task, attempt), began, turn)
    }

    /// On every turn.
    pub fn search_remotes(&mut self, turn: &Turn<'_>) -> Vec<Command<AttemptAnswer>> {
        if self.remotes.is_empty() {
            return Vec::new();
        }
        let mut commands = Vec::new();
        for (run, task, attempt, news) in self.remotes.turn(&turn.base.application_name(), turn.now) {
            match news {
                News::Gone { server_began_us } => {
                    commands.extend(self.plan_gone(run, (task, attempt), server_began_us, turn));
                }
                News::Unknown { why, first } => {
                    // What to change in our own connect does not help here.
                    let why = why.split("; ").next().unwrap_or_default();
                    if first {
                        shared::warning!(
                            "remote not reachable, outcome unknown",
                            queue = turn.label(),
                            task = task,
                            reason = why
                        );
                    }
                    if turn.session.state.working() && self.remotes.mark(run) {
                        commands.extend(sign(statement::MARK_UNKNOWN, task, turn));
                    }
                }
            }
        }
        let reset = Duration::from_millis(turn.base.settings.reset_ms);
        for (run, task, attempt) in self.remotes.overdue(reset, turn.now) {
            if turn.statements().is_some() {
                let queue = turn.label();
                shared::warning!("task failed: its outcome on its remote is unknown", queue = queue, task = task);
                commands.push(give_up(run, (task, attempt), turn));
            }
        }
        commands
    }

    /// The session there is gone, by a server that began then.
    fn plan_gone(
        &mut self,
        run: AttemptId,
        (task, attempt): (i64, i32),
        server_began_us: i64,
        turn: &Turn<'_>,
    ) -> Option<Command<AttemptAnswer>> {
        // A lost connection tells nothing of the task where the remote was started anew since then.
        let same = |death: &Death| death.server_began_us().is_none_or(|began| began == server_began_us);
        let why = (self.table.why(run), self.table.death(run).filter(same).map(Death::proven));
        let Some(statements) = turn.statements().cloned() else {
            self.table.unsettled(run, turn.now);
            return None;
        };
        Some(query("settling a remote task", move |client| async move {
            let planned = settle::plan_again(&client, &statements.settle, (task, attempt), &[], why).await;
            let settlement = match planned {
                Err(db_error) if !db_error.passes() => Settlement::Refused(db_error.text),
                answer => answer?,
            };
            Ok(AttemptAnswer::Settled { run, task, settlement })
        }))
    }

    /// The row is settled, whatever it was.
    pub(super) fn remote_found(
        &mut self,
        run: AttemptId,
        task: i64,
        turn: &Turn<'_>,
    ) -> Option<Command<AttemptAnswer>> {
        if self.remotes.end(run) { sign(statement::UNMARK_UNKNOWN, task, turn) } else { None }
    }
}

fn give_up(run: AttemptId, (task, attempt): (i64, i32), turn: &Turn<'_>) -> Command<AttemptAnswer> {
    let queue = turn.base.queue.clone();
    query("ending a crashed task", move |client| async move {
        let settlement = settle::crash(&client, &queue, (task, attempt), None).await?;
        Ok(AttemptAnswer::Settled { run, task, settlement })
    })
}

fn sign(text: &str, task: i64, turn: &Turn<'_>) -> Option<Command<AttemptAnswer>> {
    let (text, statements) = (statement::bare(text), turn.statements()?.clone());
    Some(query("signing a remote task", move |client| async move {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&lock_key::UNKNOWN, &statements.relid, &task];
        client.query(&text, &values).await.map_err(|error| DbError::of(&error))?;
        Ok(AttemptAnswer::Done)
    }))
}
