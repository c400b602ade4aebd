//! Tasks of batches that their workers have claimed and will not send: planned again, many at once.
//!
//! Such a task is in the attempt table until the database has planned it again, or it is not ours any more. A row that another
//! transaction has locked is tried again after a pause; so are all after a lost session: the attempt is the fence, and a
//! second try changes nothing that it should not.

use super::attempts::{AttemptAnswer, Attempts};
use crate::command::{Command, Refused, refusable};
use crate::turn::Turn;
use shared::db::db_error::DbError;

impl Attempts {
    /// Batches whose present task takes long do not send the others.
    pub fn close_slow_batches(&mut self, turn: &Turn<'_>) {
        self.table.return_later(self.table.slow_batches(), turn.now);
    }

    pub fn return_batches(&mut self, turn: &Turn<'_>) -> Option<Command<AttemptAnswer>> {
        let statements = turn.writing()?.clone();
        let due = self.table.to_return(turn.now);
        if due.is_empty() {
            return None;
        }
        self.table.asked(due.iter().map(|(run, _, _)| *run));
        let (tasks, attempts): (Vec<i64>, Vec<i32>) = due.into_iter().map(|(_, task, number)| (task, number)).unzip();
        Some(refusable(Refused::Returns, "returning the tasks of a batch", move |client| async move {
            let rows = client.query(&statements.return_batch, &[&tasks, &attempts]).await;
            let rows = rows.map_err(|error| DbError::of(&error))?;
            Ok(AttemptAnswer::Returned(rows.iter().map(|row| (row.get("id"), row.get("attempt"))).collect()))
        }))
    }
}
