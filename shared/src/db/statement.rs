//! Our statements, each in a file of its own under `shared/sql`, and the names that stand in them.
//!
//! A statement names its queue by placeholders, because a table's name cannot be a parameter; `Queue::fill` puts the
//! quoted names in. Nothing else is ever put into SQL text, but for the config's column defaults, as literals.

use super::identifier::{literal, qualified, quoted};
use crate::config::ColumnDefaults;

pub const LOOK_QUEUE: &str = include_str!("../../sql/task/look_queue.sql");
pub const MAKE_SCHEMA: &str = include_str!("../../sql/task/make_schema.sql");
pub const MAKE_STATE: &str = include_str!("../../sql/task/make_state.sql");
pub const MAKE_TABLE: &str = include_str!("../../sql/task/make_table.sql");
pub const MAKE_INDEXES: &str = include_str!("../../sql/task/make_indexes.sql");
pub const COMMENT_TABLE: &str = include_str!("../../sql/task/comment_table.sql");
pub const HOLD_QUEUE: &str = include_str!("../../sql/task/hold_queue.sql");
pub const LIST_UNFINISHED: &str = include_str!("../../sql/task/list_unfinished.sql");
pub const EXPIRE_TASKS: &str = include_str!("../../sql/task/expire_tasks.sql");
pub const TAKE_TASKS: &str = include_str!("../../sql/task/take_tasks.sql");
pub const LOOK_TASK: &str = include_str!("../../sql/task/look_task.sql");
pub const END_BACKEND: &str = include_str!("../../sql/task/end_backend.sql");
pub const PLAN_AGAIN: &str = include_str!("../../sql/task/plan_again.sql");
pub const BEGIN_TASK: &str = include_str!("../../sql/task/begin_task.sql");
pub const FINISH_TASK: &str = include_str!("../../sql/task/finish_task.sql");
pub const DELETE_FINISHED: &str = include_str!("../../sql/task/delete_finished.sql");

pub const HOLD_LEADER: &str = include_str!("../../sql/launcher/hold_leader.sql");

/// A task table, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub schema: String,
    pub table: String,
}

impl Queue {
    /// The statement with this queue's names in it and without its head comment.
    pub fn fill(&self, statement: &str) -> String {
        let names = [
            ("{queue}", qualified(&self.schema, &self.table)),
            ("{schema}", quoted(&self.schema)),
            ("{state}", qualified(&self.schema, "state")),
            ("{schema_text}", literal(&self.schema)),
            ("{table_text}", literal(&self.table)),
        ];
        fill(statement, &names)
    }

    /// `MAKE_TABLE` with the config's column defaults in it.
    pub fn fill_make_table(&self, defaults: &ColumnDefaults) -> String {
        let defaults: Vec<(String, String)> = column_defaults(defaults)
            .into_iter()
            .map(|(column, value)| (format!("{{default_{column}}}"), literal(&value)))
            .collect();
        let pairs: Vec<(&str, String)> = defaults.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        fill(&self.fill(MAKE_TABLE), &pairs)
    }
}

/// Replaces in one pass: a name that itself looks like a placeholder is left alone.
fn fill(statement: &str, names: &[(&str, String)]) -> String {
    let body: Vec<&str> = statement.lines().skip_while(|line| line.starts_with("--")).collect();
    let body = body.join("\n");
    let mut filled = String::with_capacity(body.len() + 256);
    let mut rest = body.as_str();
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        match names.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                filled.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// Every column whose default is a setting, with the value that holds when nobody sets it.
fn column_defaults(config: &ColumnDefaults) -> Vec<(&'static str, String)> {
    let text = |value: &Option<String>, built_in: &str| value.clone().unwrap_or_else(|| built_in.to_owned());
    let flag = |value: Option<bool>, built_in: bool| value.unwrap_or(built_in).to_string();
    let number = |value: Option<i32>| value.unwrap_or(0).to_string();
    vec![
        ("active", text(&config.active, "1 hour")),
        ("live", text(&config.live, "0")),
        ("repeat", text(&config.repeat, "0")),
        ("timeout", text(&config.timeout, "0")),
        ("count", number(config.count)),
        ("max", number(config.max)),
        ("delete", flag(config.delete, true)),
        ("drift", flag(config.drift, false)),
        ("header", flag(config.header, true)),
        ("save", flag(config.save, false)),
        ("string", flag(config.string, true)),
        ("delimiter", text(&config.delimiter, "\t")),
        ("escape", text(&config.escape, "")),
        ("quote", text(&config.quote, "")),
        ("group", text(&config.group, "group")),
        ("null", text(&config.null, "\\N")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_placeholders_stay_names() {
        let queue = Queue { schema: "{queue}".into(), table: "{state}".into() };
        assert_eq!(queue.fill("-- head\nSELECT 1 FROM {queue}"), r#"SELECT 1 FROM "{queue}"."{state}""#);
    }

    #[test]
    fn no_statement_keeps_a_placeholder_once_it_is_filled() {
        let queue = Queue { schema: "public".into(), table: "task".into() };
        let all = [
            LOOK_QUEUE,
            MAKE_SCHEMA,
            MAKE_STATE,
            MAKE_INDEXES,
            COMMENT_TABLE,
            HOLD_QUEUE,
            LIST_UNFINISHED,
            EXPIRE_TASKS,
            TAKE_TASKS,
            LOOK_TASK,
            END_BACKEND,
            PLAN_AGAIN,
            BEGIN_TASK,
            FINISH_TASK,
            DELETE_FINISHED,
        ];
        for statement in all {
            let filled = queue.fill(statement);
            assert!(!filled.contains('{') && !filled.is_empty(), "{filled}");
        }
        assert!(!queue.fill_make_table(&ColumnDefaults::default()).contains('{'));
    }
}
