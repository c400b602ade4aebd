//! What a found table lacks to be a task table of ours, and the steps that give it that. PURE.
//!
//! Three lists come out. *Labels* of the state's enum go first, in a transaction of their own, because a label cannot
//! be used where it was added. The *reshape* is what we cannot serve without: missing columns, defaults and triggers
//! of the extension pg_task that no longer work without it. The *repairs* are what makes it good: indexes, checks,
//! comments, wake-up triggers; they are done beside the service. What belongs to the table's users is never touched:
//! their columns, their defaults, their triggers, their comments. A table that is as it should be has no steps.
//!
//! Nothing here rewrites a large table: columns are added with constants or with defaults that the server evaluates
//! once, and the hash becomes a plain column that a trigger fills.

use crate::table::index_place::{INDEXES, IndexPlace};
use crate::table::shape::{Shape, TableColumn, Unidentified};
use shared::config::ColumnDefaults;
use shared::db::identifier::qualified;
use shared::db::statement::Queue;
use shared::db::task_column::{ColumnKind, TASK_COLUMNS, TaskColumn, task_column};

const LABELS: [&str; 7] = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"];
const OUR_TRIGGERS: [&str; 5] =
    ["mill_hold", "mill_claimed", "mill_wakeup_insert", "mill_wakeup_update", "mill_wakeup_delete"];
/// Names of the wake-up triggers before 0.1.0: they are dropped when the others are made.
const FORMER_TRIGGERS: [&str; 3] = ["mill_ring_insert", "mill_ring_update", "mill_ring_delete"];
/// Up to here a rewrite or a lock against writers is a matter of moments.
pub const SMALL_BYTES: i64 = 16 * 1024 * 1024;

/// Why a table cannot be served: everything that is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub struct TableRefusal(pub Vec<String>);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct TablePlan {
    /// The enum, and the labels it lacks.
    pub labels: Vec<&'static str>,
    pub state_type: String,
    pub reshape: Vec<Reshape>,
    pub repairs: Vec<Repair>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Reshape {
    AddColumn {
        name: String,
        definition: String,
    },
    SetDefault {
        name: String,
        expression: String,
    },
    /// One of pg_task's, with its function if nobody else uses it.
    DropTrigger {
        name: String,
        function: Option<String>,
    },
    /// The hash is a plain column: this keeps it.
    MakeHashTrigger,
    /// The rows no longer run as their authors: the column's comment must not say so.
    CommentUser,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Repair {
    /// `former`: triggers of ours by names of earlier versions, to drop.
    MakeTriggers {
        former: Vec<&'static str>,
    },
    MakeHashTrigger,
    /// Rows from before the hash: looked for each time, because a catalog does not know them.
    FillHash,
    Index {
        place: &'static IndexPlace,
        broken: Option<String>,
    },
    Check {
        column: &'static str,
        condition: &'static str,
        there: bool,
    },
    Comment {
        columns: Vec<&'static str>,
    },
}

/// The steps for this table, or everything that stands against it.
pub fn plan(shape: &Shape, queue: &Queue, defaults: &ColumnDefaults) -> Result<TablePlan, TableRefusal> {
    let refusals = refusals(shape, queue);
    if !refusals.is_empty() {
        return Err(TableRefusal(refusals));
    }
    let mut plan = TablePlan { reshape: reshape(shape, queue, defaults), ..TablePlan::default() };
    if let Some(state) = shape.column("state").filter(|state| !state.labels.is_empty()) {
        plan.labels = LABELS.into_iter().filter(|label| !state.labels.iter().any(|found| found == label)).collect();
        plan.state_type = state.base.clone();
    }
    plan.repairs = repairs(shape, &plan.reshape);
    Ok(plan)
}

fn refusals(shape: &Shape, queue: &Queue) -> Vec<String> {
    let mut found = Vec::new();
    let essential = TASK_COLUMNS.iter().filter(|column| column.essential).map(|column| column.name);
    let missing: Vec<&str> = essential.filter(|name| shape.column(name).is_none()).collect();
    if !missing.is_empty() {
        found.push(format!("it lacks {}", missing.join(", ")));
    }
    if shape.column("id").is_some() && !shape.unique_id {
        let key = if shape.partitioned { " (with the partition key)" } else { "" };
        found.push(format!("it lacks a primary key or unique index on id{key}"));
    }
    for column in &shape.columns {
        let Some(ours) = task_column(&column.name) else { continue };
        if !fits(column, ours.kind) {
            found.push(format!("{} is {}, not {}", column.name, column.type_name, ours.kind));
        }
        if column.generated && ours.written {
            found.push(format!("{} is generated, but pgmill writes it", column.name));
        }
        if column.not_null && ours.emptied {
            found.push(format!("{} must allow NULL", column.name));
        }
    }
    if let Some(state) = shape.column("state")
        && state.category == "E"
        && !state.labels.iter().any(|label| label == "PLAN")
    {
        found.push(format!("state is the enum {}, which has no label PLAN", state.type_name));
    }
    let moves = |name: &&str| task_column(name).is_some_and(TaskColumn::moves);
    let moving: Vec<&str> = shape.partition_key.iter().map(String::as_str).filter(moves).collect();
    if !moving.is_empty() {
        found.push(format!(
            "it is partitioned by {}, which pgmill changes: the row would move to another partition, \
             where row triggers do not see it; partition by id or \"group\" instead",
            moving.join(", ")
        ));
    }
    if shape.partition_expression {
        found.push("it is partitioned by an expression; partition by columns that never change".to_owned());
    }
    if let Some(Unidentified { table, publications, index }) = &shape.unidentified {
        let advice = match index {
            Some(index) => format!("run: ALTER TABLE {table} REPLICA IDENTITY USING INDEX {index}"),
            None => format!("give {table} a primary key, or run: ALTER TABLE {table} REPLICA IDENTITY FULL"),
        };
        found.push(format!(
            "{table} has no replica identity, and the server refuses its UPDATEs because of the publication {publications}; {advice}"
        ));
    }
    if shape.upstream {
        found.push("the extension pg_task serves it; remove its row from pg_task.json first".to_owned());
    }
    if shape.runs_as_authors() && !(shape.writers.is_empty() && shape.waiting_users.is_empty()) {
        let mut who = Vec::new();
        if !shape.waiting_users.is_empty() {
            who.push(format!("tasks of {} wait", shape.waiting_users.join(", ")));
        }
        if !shape.writers.is_empty() {
            who.push(format!("{} may write into it", shape.writers.join(", ")));
        }
        found.push(format!(
            "its tasks run as the roles that inserted them (column \"user\"); pgmill would run them as this queue's \
             user, while {}; let them end and REVOKE the right, or accept it by ALTER TABLE {} DROP COLUMN \"user\" CASCADE",
            who.join(" and "),
            queue.fill("{queue}")
        ));
    }
    found
}

fn fits(column: &TableColumn, wanted: ColumnKind) -> bool {
    let base = column.base.as_str();
    let text = column.category == "S" || base == "\"char\"";
    match wanted {
        ColumnKind::Integer => matches!(base, "smallint" | "integer" | "bigint"),
        ColumnKind::Moment => base == "timestamp with time zone",
        ColumnKind::Interval => base == "interval",
        ColumnKind::Boolean => base == "boolean",
        ColumnKind::Text => text,
        ColumnKind::State => text || column.category == "E",
        ColumnKind::Own => true,
    }
}

fn reshape(shape: &Shape, queue: &Queue, defaults: &ColumnDefaults) -> Vec<Reshape> {
    let mut steps = Vec::new();
    let state = qualified(&queue.schema, "state");
    // The hash is computed from other columns, which may have to be added first.
    let (generated, plain): (Vec<&TaskColumn>, Vec<&TaskColumn>) =
        TASK_COLUMNS.iter().partition(|column| column.is_generated());
    for ours in plain.into_iter().chain(generated) {
        let name = ours.name.to_owned();
        match shape.column(ours.name) {
            None if ours.is_generated() && shape.bytes > SMALL_BYTES => {
                steps.push(Reshape::AddColumn { name, definition: ours.type_name.to_owned() });
                steps.push(Reshape::MakeHashTrigger);
            }
            // Without its check, which would be validated under the strongest lock.
            None => steps.push(Reshape::AddColumn { name, definition: ours.definition(&state, defaults) }),
            Some(column) => {
                if column.expression.as_deref().is_some_and(|default| is_upstreams(ours.name, default))
                    && let Some(expression) = ours.default_expression(defaults)
                {
                    steps.push(Reshape::SetDefault { name, expression });
                }
            }
        }
    }
    for trigger in &shape.triggers {
        if trigger.schema == queue.schema && is_upstreams_trigger(&trigger.name, &trigger.function, &trigger.source) {
            let function = (!trigger.shared).then(|| qualified(&trigger.schema, &trigger.function));
            steps.push(Reshape::DropTrigger { name: trigger.name.clone(), function });
        }
    }
    if shape.runs_as_authors() {
        steps.push(Reshape::CommentUser);
    }
    // pg_task's own trigger may be what filled it so far.
    if !steps.is_empty() && needs_hash_trigger(shape) {
        steps.push(Reshape::MakeHashTrigger);
    }
    steps
}

fn repairs(shape: &Shape, reshape: &[Reshape]) -> Vec<Repair> {
    let mut repairs = Vec::new();
    let former: Vec<&str> = FORMER_TRIGGERS.into_iter().filter(|name| shape.has_trigger(name)).collect();
    if !former.is_empty() || !OUR_TRIGGERS.into_iter().all(|name| shape.has_trigger(name)) {
        repairs.push(Repair::MakeTriggers { former });
    }
    let made = reshape.contains(&Reshape::MakeHashTrigger);
    if needs_hash_trigger(shape) && !made {
        repairs.push(Repair::MakeHashTrigger);
    }
    if made || has_plain_hash(shape) {
        repairs.push(Repair::FillHash);
    }
    for place in &INDEXES {
        let found: Vec<_> = shape.indexes.iter().filter(|index| place.is(index)).collect();
        if !found.iter().any(|index| index.valid) {
            repairs.push(Repair::Index { place, broken: found.first().map(|index| index.name.clone()) });
        }
    }
    let checks = TASK_COLUMNS.iter().filter_map(|column| Some((column.name, column.check?)));
    for (column, condition) in checks {
        let checked = shape.column(column).and_then(|column| column.checked);
        if checked != Some(true) {
            repairs.push(Repair::Check { column, condition, there: checked.is_some() });
        }
    }
    let bare: Vec<&str> = TASK_COLUMNS
        .iter()
        .map(|column| column.name)
        .filter(|name| shape.column(name).is_none_or(|column| !column.commented))
        .collect();
    if !bare.is_empty() {
        repairs.push(Repair::Comment { columns: bare });
    }
    repairs
}

/// As a partition key it is its owner's to fill: a trigger would move the row.
fn has_plain_hash(shape: &Shape) -> bool {
    let own = !shape.partition_key.iter().any(|name| name == "hash");
    own && shape.column("hash").is_some_and(|hash| !hash.generated)
}

fn needs_hash_trigger(shape: &Shape) -> bool {
    has_plain_hash(shape) && !shape.has_trigger("mill_hash")
}

/// A default as pg_task sets it: it reads a setting that exists only where the extension is loaded, and without it
/// every INSERT fails. `(current_setting('pg_task.max'::text))::integer`, older `.. 'pg_task.default_max'::text, false ..`.
fn is_upstreams(column: &str, expression: &str) -> bool {
    let core = expression.strip_prefix("NULLIF(").unwrap_or(expression);
    let core = core.strip_prefix('(').unwrap_or(core);
    let Some((setting, rest)) = core.strip_prefix("current_setting('").and_then(|core| core.split_once("'::text"))
    else {
        return false;
    };
    let Some((room, setting)) = setting.split_once('.') else { return false };
    let setting = setting.strip_prefix("default_").unwrap_or(setting);
    let its_own = setting == column || (column == "parent" && setting == "id");
    // Whoever reckons with the setting has made the default his own.
    matches!(room, "pg_task" | "pg_work") && its_own && !rest.contains(['+', '-', '*', '/', '|', '\''])
}

/// pg_task's own triggers: the wake-up that sends a signal to its worker, and the guards of its state machine, which
/// refuse some of our transitions. Named `<table>_<what>` like their functions, older `wake_up` and `hash_generate`.
fn is_upstreams_trigger(name: &str, function: &str, source: &str) -> bool {
    let named = name == function || function.ends_with(&format!("_{name}"));
    let wakes = source.contains("pg_cancel_backend") && source.contains("'userlock'");
    let guards = ["column is immutable", "invalid state transition"].iter().any(|text| source.contains(text));
    let fills = name == "hash_generate" && source.contains("hashtext");
    let adds_up = name.ends_with("_valid") && source.contains("\"active\"") && source.contains("\"live\"");
    named && (wakes || guards || fills || adds_up)
}

#[cfg(test)]
mod tests;
