//! What a worker must know of its task: the values of its row, in the order in which the worker reads them.
//!
//! Whoever begins or claims a task returns them: all of them for a task alone, `{task_row}`; for several at once only those that
//! differ from row to row, `{batch_row}`; and the scheduler those of a plain task as one array of texts, `{row_texts}`. Times
//! are numbers: a task may change how its session writes and reads dates.

use crate::db::identifier::quoted;

#[derive(Clone, Copy, Debug)]
pub struct RowValue {
    pub name: &'static str,
    /// Of the row `t`; what it is called differs from a column of that name, if there is one.
    expression: &'static str,
    /// What is the same for all rows of a batch, its worker knows.
    pub in_batch: bool,
}

const fn each(name: &'static str, expression: &'static str) -> RowValue {
    RowValue { name, expression, in_batch: true }
}

const fn alone(name: &'static str, expression: &'static str) -> RowValue {
    RowValue { name, expression, in_batch: false }
}

pub const TASK_ROW: &[RowValue] = &[
    each("id", "t.id"),
    each("attempt", "t.attempt"),
    each("input", "t.input"),
    alone("group", r#"t."group""#),
    alone("remote", "t.remote"),
    each("atomic", "t.atomic"),
    each("header", "t.header"),
    each("string", "t.string"),
    each("delimiter", "t.delimiter"),
    each("escape", "t.escape"),
    each("quote", "t.quote"),
    each("null", r#"t."null""#),
    each(
        "timeout_ms",
        "CASE WHEN t.timeout > interval '0' THEN ceil(extract(epoch FROM t.timeout) * 1000)::bigint ELSE 0 END",
    ),
    alone("verbosity", "pg_catalog.current_setting('log_error_verbosity')"),
    alone("postmaster", "extract(epoch FROM pg_catalog.pg_postmaster_start_time())"),
    alone("start", "extract(epoch FROM t.start)"),
    each("max", r#"t."max""#),
    each("reuse", r#"(t."max" >= 0 AND (t.count > 0 OR t.live > interval '0'))"#),
    each("save", "t.save"),
    each("consequences", r#"(t.repeat > interval '0' OR t."max" < 0)"#),
    alone("job", "t.job"),
    alone("at", "{logical_time}"),
    each("priority", "t.priority"),
];

/// The parts of statements that are made from the list, as templates.
pub(super) fn part(name: &str) -> Option<String> {
    let named = |value: &RowValue| {
        let is_column = value.expression.trim_start_matches("t.").trim_matches('"') == value.name;
        if is_column { value.expression.to_owned() } else { format!("{} AS {}", value.expression, quoted(value.name)) }
    };
    let list = |values: Vec<String>| values.join(",\n    ");
    Some(match name {
        "task_row" => list(TASK_ROW.iter().map(named).collect()),
        "batch_row" => list(TASK_ROW.iter().filter(|value| value.in_batch).map(named).collect()),
        "row_texts" => {
            let texts = TASK_ROW.iter().map(|value| format!("t.{}::text", quoted(value.name)));
            format!("ARRAY[{}]", list(texts.collect()))
        }
        _ => return None,
    })
}
