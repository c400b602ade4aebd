//! The begins of plain tasks whose workers have a connection each: recorded by the scheduler, many at once.
//!
//! A session that has just begun knows nothing of the table: to read the row and to change it would cost the server
//! more than the login. So the worker only connects, reports its backend (`shared::process::begin_channel`) and waits; when the
//! row is WORK with that backend, it is told to go on. Nothing has begun before that: a worker that is gone, or is let go
//! because the session is lost or everything ends, leaves a row that was only claimed.

use super::attempt_id::AttemptId;
use super::attempt_state::AttemptEvent;
use super::attempts::{AttemptAnswer, Attempts};
use crate::command::{Command, Refused, refusable};
use crate::turn::Turn;
use shared::db::db_error::DbError;

impl Attempts {
    /// Records the begins of all workers that have connected, in one query.
    pub fn begin(&mut self, turn: &Turn<'_>) -> Option<Command<AttemptAnswer>> {
        if !self.table.has_waiting() {
            return None;
        }
        if !turn.leads() || !turn.stop.lets_finish() {
            self.table.let_go();
            return None;
        }
        self.table.read_channels();
        let statements = turn.writing()?.clone();
        let ready = self.table.to_begin();
        if ready.is_empty() {
            return None;
        }
        let asked: Vec<AttemptId> = ready.iter().map(|ready| ready.run).collect();
        self.table.asked(asked.iter().copied());
        let tasks: Vec<i64> = ready.iter().map(|ready| ready.task).collect();
        let attempts: Vec<i32> = ready.iter().map(|ready| ready.attempt).collect();
        let backends: Vec<i32> = ready.iter().map(|ready| ready.backend).collect();
        shared::process::fault::point("scheduler.before_begins");
        Some(refusable(Refused::Begins, "beginning tasks", move |client| async move {
            let rows = client.query(&statements.begin_many, &[&tasks, &attempts, &backends]).await;
            let begun = match rows.map_err(|error| DbError::of(&error)) {
                Ok(rows) => rows.iter().map(|row| row.get("id")).collect(),
                Err(db_error) if db_error.passes() => return Err(db_error),
                Err(db_error) => {
                    shared::warning!("cannot begin tasks in one statement; beginning each alone", error = db_error);
                    Vec::new()
                }
            };
            Ok(AttemptAnswer::Begun { asked, begun })
        }))
    }

    /// What was not begun is left to its worker: it may wait where we may not.
    pub(super) fn begun(&mut self, asked: &[AttemptId], begun: &[i64], turn: &Turn<'_>) {
        shared::process::fault::point("scheduler.after_begins");
        let now = turn.now;
        for run in asked {
            let granted = self.table.task_of(*run).is_some_and(|task| begun.contains(&task));
            // Without an answer the worker leaves.
            let event = match (turn.leads(), granted) {
                (false, _) => AttemptEvent::LetGo,
                (true, true) => AttemptEvent::Granted,
                (true, false) => AttemptEvent::Refused { now },
            };
            self.table.begin_event(*run, event);
        }
    }
}
