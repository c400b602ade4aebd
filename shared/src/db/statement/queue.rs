//! The statements of one queue: its names and what else differs from form to form are put into them here.

use super::list::{
    BEGIN, CLAIM_HEADS, CLAIM_NEXT, CLAIM_ONE_GROUP, CLAIM_WALK, END, MAKE_HASH_TRIGGER, MAKE_RUN_TRIGGERS, MAKE_TABLE,
    MAKE_TRIGGERS, SET_FUNCTION_RIGHTS, SET_RIGHTS,
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

/// Whose rows a statement ends or begins, and what it does about a locked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One, as single values. Waits for a lock.
    One,
    /// Many, as arrays. Waits for locks.
    Many,
    /// Many, as arrays, but for the locked ones.
    ManyUnlocked,
}

/// From where on a claim scans the waiting rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scan {
    FromStart,
    BehindLast,
    /// The same, and other workers of the group claim at the same time.
    Contended,
}

/// What a worker claims, and so what of the rows it reads and what its session is set up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimForm {
    /// Several tasks, each of which is set up with its input.
    Batch,
    /// One task, which is set up later.
    One,
    /// One task, whose session the claim sets up.
    OneSetUp,
    /// The same for the run of a job.
    RunSetUp,
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

    pub fn fill_claim_one_group(&self) -> String {
        self.fill(CLAIM_ONE_GROUP)
    }

    /// `CLAIM_NEXT`. `proof`: it finds nothing where the scheduler's session is not.
    pub fn fill_claim_next(&self, claim: ClaimForm, scan: Scan, proof: Option<i64>) -> String {
        let (returned, setup, run) = match claim {
            ClaimForm::Batch => ("{batch_row}", "", ""),
            ClaimForm::One => ("{task_row}", "", ""),
            ClaimForm::OneSetUp => ("{task_row}", "{session_setup}", ""),
            ClaimForm::RunSetUp => ("{task_row}", "{session_setup}", "{run_setup}"),
        };
        let (key, scan) = match scan {
            Scan::FromStart => (KEY, ""),
            Scan::BehindLast => (KEY_BEHIND, "{scan_start}"),
            Scan::Contended => (KEY_BEHIND, "{scan_start_contended}"),
        };
        let values = [
            ("key", Value::Fragment(key)),
            ("scan", Value::Fragment(scan)),
            ("proof", beside(proof)),
            ("returned", Value::Fragment(returned)),
            ("setup", Value::Fragment(setup)),
            ("setup_of_run", Value::Fragment(run)),
        ];
        render(CLAIM_NEXT, Some(self), &values)
    }

    /// `END` of these rows.
    pub fn fill_end(&self, rows: Rows) -> String {
        let (ended, among) = match rows {
            Rows::One => ("{end_one}", ""),
            Rows::Many => ("{end_many}", "{among}"),
            Rows::ManyUnlocked => ("{end_unlocked}", "{among}"),
        };
        render(END, Some(self), &[("ended", Value::Fragment(ended)), ("of_many", Value::Fragment(among))])
    }

    /// `BEGIN` of one task by its worker.
    pub fn fill_begin_one(&self) -> String {
        self.fill_begin("{begin_one}", "", "{task_row}")
    }

    /// `BEGIN` of many tasks by the scheduler.
    pub fn fill_begin_many(&self) -> String {
        self.fill_begin("{begin_unlocked}", "{among}", "t.id::bigint AS id")
    }

    fn fill_begin(&self, beginning: &'static str, among: &'static str, returned: &'static str) -> String {
        let values = [("beginning", beginning), ("of_many", among), ("returned", returned)];
        render(BEGIN, Some(self), &values.map(|(name, value)| (name, Value::Fragment(value))))
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
