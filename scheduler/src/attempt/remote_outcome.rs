//! What the scheduler does about tasks of dead workers on remotes: what `elsewhere` finds out becomes questions to our
//! own database here.
//!
//! Known to be gone: planned again. Not to be reached: a sign for `mill.why` and one line in the log; after `reset` the
//! row ends as crashed. Never is it run again while nobody knows.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::death::Death;
use crate::attempt::remote_search::{Lead, News};
use crate::attempt::settle::{self, Settlement};
use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use shared::db::trouble::Trouble;
use shared::db::{lock_key, statement};
use std::time::{Duration, Instant};

impl Scheduler {
    /// A row names a session on a remote. While an answer is awaited from there, the question counts as put.
    pub(crate) fn look_elsewhere(&mut self, run: AttemptId, lead: Lead, now: Instant) {
        let (task, attempt) = (lead.task, lead.attempt);
        if let Some(began) = self.attempts.remotes.begin(run, lead, &self.base.order.remotes, now) {
            self.plan_gone(run, (task, attempt), began, now);
        }
    }

    /// On every turn.
    pub(crate) fn search_elsewhere(&mut self, now: Instant) {
        let name = self.base.application_name();
        for (run, task, attempt, news) in self.attempts.remotes.turn(&name, now) {
            match news {
                News::Gone { server_began_us } => self.plan_gone(run, (task, attempt), server_began_us, now),
                News::Unknown { why, first } => {
                    // What to change in our own connect helps nobody here.
                    let why = why.split("; ").next().unwrap_or_default();
                    if first {
                        shared::warning!(
                            "remote not reachable, outcome unknown",
                            queue = self.base.label,
                            task = task,
                            reason = why
                        );
                    }
                    self.mark_unknown(run, task);
                }
            }
        }
        for (run, task, attempt) in
            self.attempts.remotes.overdue(Duration::from_millis(self.base.settings.reset_ms), now)
        {
            let queue = self.base.queue.clone();
            if let (Some(link), true) = (&mut self.links.queue, self.session.state.working()) {
                shared::warning!(
                    "task given up: its outcome on its remote is unknown",
                    queue = self.base.label,
                    task = task
                );
                link.ask("ending a crashed task", ANSWER_TIMEOUT, move |client| async move {
                    let settlement = settle::crash(&client, &queue, (task, attempt), None).await?;
                    Ok(Answer::Settled { run, task, settlement })
                });
            }
        }
    }

    /// The session there is gone; the server that says so began then.
    fn plan_gone(&mut self, run: AttemptId, (task, attempt): (i64, i32), server_began_us: i64, now: Instant) {
        // A lost connection says nothing of the task where the remote was started anew since then.
        let same = |death: &Death| death.server_began_us().is_none_or(|began| began == server_began_us);
        let why = (self.attempts.table.why(run), self.attempts.table.death(run).filter(same).map(Death::proven));
        match (&mut self.links.queue, self.session.statements.clone()) {
            (Some(link), Some(statements)) if self.session.state.working() => {
                link.ask("settling a remote task", ANSWER_TIMEOUT, move |client| async move {
                    let settlement =
                        match settle::plan_again(&client, &statements.settle, (task, attempt), &[], why).await {
                            Err(trouble) if !trouble.passes() => Settlement::Refused(trouble.text),
                            answer => answer?,
                        };
                    Ok(Answer::Settled { run, task, settlement })
                });
            }
            _ => self.attempts.table.unsettled(run, now),
        }
    }

    fn mark_unknown(&mut self, run: AttemptId, task: i64) {
        if self.session.state.working() && self.attempts.remotes.mark(run) {
            self.sign_unknown(statement::MARK_UNKNOWN, task);
        }
    }

    /// The row is settled, whatever it was.
    pub(crate) fn found(&mut self, run: AttemptId, task: i64) {
        if self.attempts.remotes.end(run) {
            self.sign_unknown(statement::UNMARK_UNKNOWN, task);
        }
    }

    fn sign_unknown(&mut self, text: &str, task: i64) {
        let text = statement::bare(text);
        if let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) {
            link.ask("signing a remote task", ANSWER_TIMEOUT, move |client| async move {
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                    [&lock_key::UNKNOWN, &statements.relid, &task];
                client.query(&text, &values).await.map_err(|error| Trouble::of(&error))?;
                Ok(Answer::Named)
            });
        }
    }
}
