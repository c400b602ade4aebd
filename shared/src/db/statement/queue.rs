//! The statements of one queue: its names and what else differs from form to form are put into them here.

use super::list::{
    CLAIM_HEADS, CLAIM_WALK, FINISH_BATCH, MAKE_HASH_TRIGGER, MAKE_RUN_TRIGGERS, MAKE_TABLE, MAKE_TRIGGERS,
    SET_FUNCTION_RIGHTS, SET_RIGHTS, TAKE_BATCH, TAKE_NEXT, TAKE_ONE_GROUP,
};
use super::queue_name::Queue;
use super::render::{Value, render};
use crate::config::ColumnDefaults;
use crate::db::identifier::{literal, qualified, quoted};
use crate::db::lock_key::halves;
use crate::db::task_column;
use std::fmt::Display;

/// The error of a run that a person has stopped; an end with it is not tried again.
pub const CANCELLED: &str = "ERROR:  task cancelled";

/// Who takes from a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowd {
    /// One worker at a time.
    Alone,
    /// Several.
    Others,
}

/// What the take of the next task sets up its session for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dress {
    /// A plain one.
    Task,
    /// The run of a job.
    Run,
}

/// The place of a row among those that wait; where all have the same max and priority, the id tells.
const KEY: &str = r#"ARRAY[- t."max"::bigint, - t.priority::bigint, t.id]"#;
const KEY_BEHIND: &str = "t.id";

impl Queue {
    /// The statement with this queue's names in it and without its head comment.
    pub fn fill(&self, statement: &str) -> String {
        render(statement, Some(self), &[])
    }

    /// `MAKE_TABLE` with the config's column defaults in it.
    pub fn fill_make_table(&self, defaults: &ColumnDefaults) -> String {
        let columns = task_column::lines(&qualified(&self.schema, "state"), defaults);
        render(MAKE_TABLE, Some(self), &[("columns", Value::Text(columns))])
    }

    /// `CLAIM_WALK` over at most `rows`. A literal: as a parameter it would be planned anew each time.
    pub fn fill_claim_walk(&self, rows: usize) -> String {
        render(CLAIM_WALK, Some(self), &[("walk", Value::Text(rows.to_string()))])
    }

    pub fn fill_claim_heads(&self) -> String {
        self.fill(CLAIM_HEADS)
    }

    pub fn fill_take_one_group(&self) -> String {
        self.fill(TAKE_ONE_GROUP)
    }

    /// `TAKE_NEXT`; with a dress: for a session that is as new, which it dresses for the task. With a floor it looks only
    /// at rows like the last one taken that came after it, past all that was taken before and is still in the index.
    /// `proof`: it finds nothing where the scheduler's session is not.
    pub fn fill_take_next(&self, dress: Option<Dress>, floor: bool, proof: Option<i64>) -> String {
        let setup = if dress.is_some() { "{session_setup}" } else { "" };
        let run = if dress == Some(Dress::Run) { "{run_setup}" } else { "" };
        let scan = if floor { "{scan_start}" } else { "" };
        let values = [
            ("setup", Value::Fragment(setup)),
            ("setup_of_run", Value::Fragment(run)),
            ("scan", Value::Fragment(scan)),
            ("proof", beside(proof)),
        ];
        render(TAKE_NEXT, Some(self), &values)
    }

    pub fn fill_take_batch(&self, floor: Option<Crowd>, proof: Option<i64>) -> String {
        let (key, scan) = match floor {
            None => (KEY, ""),
            Some(Crowd::Alone) => (KEY_BEHIND, "{scan_start}"),
            Some(Crowd::Others) => (KEY_BEHIND, "{scan_start_contended}"),
        };
        let values = [("key", Value::Fragment(key)), ("scan", Value::Fragment(scan)), ("proof", beside(proof))];
        render(TAKE_BATCH, Some(self), &values)
    }

    /// A statement that calls the entry points of this queue, whose table has that OID.
    pub fn fill_of_jobs(&self, statement: &str, relid: impl Display) -> String {
        render(statement, Some(self), &[("oid", Value::Text(relid.to_string()))])
    }

    /// `MAKE_RUN_TRIGGERS` for the table and the role with these OIDs, or what is later replaced by them.
    pub fn fill_run_triggers(&self, relid: impl Display, user: impl Display) -> String {
        let name = |what: &str| Value::Text(format!("mill_run_{relid}_{user}_{what}"));
        let values = [
            ("run_guard", name("guard")),
            ("run_before", name("before")),
            ("run_after", name("after")),
            ("run_delete", name("delete")),
            ("oid", Value::Text(relid.to_string())),
            ("user", Value::Text(user.to_string())),
            ("cancelled_text", Value::Text(literal(CANCELLED))),
        ];
        let made = render(MAKE_RUN_TRIGGERS, Some(self), &values);
        format!("{made}\n{}", self.fill(SET_FUNCTION_RIGHTS))
    }

    /// What a new table has beside its columns, indexes and comments: wake-up triggers, and rights for its owner alone.
    pub fn fill_make_guarded(&self) -> String {
        format!("{}\n{}", self.fill_make_triggers(), self.fill(SET_RIGHTS))
    }

    pub fn fill_make_triggers(&self) -> String {
        format!("{}\n{}", self.fill(MAKE_TRIGGERS), self.fill(SET_FUNCTION_RIGHTS))
    }

    pub fn fill_make_hash_trigger(&self) -> String {
        format!("{}\n{}", self.fill(MAKE_HASH_TRIGGER), self.fill(SET_FUNCTION_RIGHTS))
    }

    /// `FINISH_BATCH` with the state as a literal, whatever type the table has for it.
    pub fn fill_finish_batch(&self, state: &str) -> String {
        render(FINISH_BATCH, Some(self), &[("final", Value::Text(literal(state)))])
    }

    /// A statement that makes repetitions, with the columns that they copy.
    pub fn fill_repeating(&self, statement: &str, copied: &[String]) -> String {
        let copied: Vec<String> = copied.iter().map(|column| quoted(column)).collect();
        let values: Vec<String> = copied.iter().map(|column| format!(", t.{column}")).collect();
        let values =
            [("copied_columns", Value::Text(copied.join(", "))), ("copied_values", Value::Text(values.concat()))];
        render(statement, Some(self), &values)
    }
}

/// The condition of a worker's claim that its session is on the scheduler's server.
fn beside(proof: Option<i64>) -> Value {
    let condition =
        |(high, low)| format!("AND (SELECT NOT pg_catalog.pg_try_advisory_xact_lock_shared({high}, {low}))");
    Value::Text(proof.map(halves).map(condition).unwrap_or_default())
}
