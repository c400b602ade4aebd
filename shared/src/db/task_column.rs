//! The columns of the task table. Everything that depends on them is made from this list or compared with it: the statements
//! that make, comment and repeat, the takeover of a table that somebody else has made, the defaults of the config, and the
//! table in docs/reference.md.

use super::identifier::{literal, quoted};
use crate::config::ColumnDefaults;
use std::fmt;

/// What our statements take a column for, whoever has made the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Integer,
    Moment,
    Interval,
    Boolean,
    Text,
    State,
    /// The owner's own business.
    Own,
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ColumnKind::Integer => "an integer",
            ColumnKind::Moment => "timestamp with time zone",
            ColumnKind::Interval => "interval",
            ColumnKind::Boolean => "boolean",
            ColumnKind::Text => "text",
            ColumnKind::State => "an enum or text",
            ColumnKind::Own => "anything",
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Default {
    None,
    /// An expression.
    Expression(&'static str),
    /// `pg_task.<column>`, else what the config says, else this value.
    Setting(&'static str),
    /// Computed from other columns.
    Generated(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct TaskColumn {
    pub name: &'static str,
    /// As `CREATE TABLE` names it; `state` is the type of the queue's schema.
    pub type_name: &'static str,
    pub kind: ColumnKind,
    pub comment: &'static str,
    default: Default,
    is_key: bool,
    not_null: bool,
    /// What each value has to meet.
    pub check: Option<&'static str>,
    /// Without these a table is no task table: what would its rows mean?
    pub essential: bool,
    /// Our statements write it. A repetition does not copy it.
    pub written: bool,
    /// NULL for some part of a task's life.
    pub emptied: bool,
}

/// In the order in which a new table has them.
pub const TASK_COLUMNS: &[TaskColumn] = &[
    column("id", "bigserial", ColumnKind::Integer, "order of arrival").key().essential(),
    column("parent", "bigint", ColumnKind::Integer, "the task whose SQL inserted this row, or the run that this row repeats")
.optional("NULLIF(NULLIF(current_setting('pg_task.id', true), '')::bigint, 0)").written(),
    column("plan", "timestamptz", ColumnKind::Moment, "earliest start").default("statement_timestamp()").essential().written(),
    column("start", "timestamptz", ColumnKind::Moment, "when it was started").emptied(),
    column("stop", "timestamptz", ColumnKind::Moment, "when it ended").emptied(),
    column("active", "interval", ColumnKind::Interval, "how long after plan the task is still worth starting").setting("1 hour").check("> '0'"),
    column("live", "interval", ColumnKind::Interval, "a worker takes another task of the group until it is this old").setting("0").check(">= '0'"),
    column("repeat", "interval", ColumnKind::Interval, "plan the task again after each end, this long after its plan (drift: after its end); 0 = never").setting("0").check(">= '0'"),
    column("timeout", "interval", ColumnKind::Interval, "end the task after this time; 0 = unlimited").setting("0").check(">= '0'"),
    column("count", "int", ColumnKind::Integer, "a worker takes another task of the group until it has run this many").setting("0").check(">= 0"),
    column("hash", "int", ColumnKind::Integer, "for the index only; two groups may share a value").generated(r#"hashtext("group" || COALESCE(remote, ''))"#),
    column("max", "int", ColumnKind::Integer, "how many others of the group may run at the same time; negative = one at a time with a pause of so many ms").setting("0"),
    column("pid", "int", ColumnKind::Integer, "the server process that runs the task (on its remote, if it has one): pg_cancel_backend(pid) cancels it").emptied(),
    column("state", "state", ColumnKind::State, "PLAN waiting, TAKE claimed, WORK running, DONE finished, FAIL finished with an error, GONE not started in time, STOP set by users: left alone until set to PLAN").default("'PLAN'").essential().written(),
    column("delete", "bool", ColumnKind::Boolean, "delete the finished row if output and error are both NULL").setting("true"),
    column("drift", "bool", ColumnKind::Boolean, "count the next time from the end of the run instead of from plan").setting("false"),
    column("header", "bool", ColumnKind::Boolean, "write column names above results of more than one column").setting("true"),
    column("save", "bool", ColumnKind::Boolean, "keep the session's state for the next task of this worker").setting("false"),
    column("string", "bool", ColumnKind::Boolean, "put only strings between quotes").setting("true"),
    column("delimiter", r#""char""#, ColumnKind::Text, "between columns of output; empty = none").setting("\t"),
    column("escape", r#""char""#, ColumnKind::Text, "before quotes inside quoted values; empty = none").setting(""),
    column("quote", r#""char""#, ColumnKind::Text, "around values of output; empty = none").setting(""),
    column("data", "text", ColumnKind::Own, "the user's own; copied to repetitions"),
    column("error", "text", ColumnKind::Text, "the error, as the server reported it").emptied(),
    column("output", "text", ColumnKind::Text, "what the task returned").emptied(),
    column("group", "text", ColumnKind::Text, "tasks of one group (and remote) run one after the other, or as many at once as max allows").setting("group"),
    column("input", "text", ColumnKind::Text, "SQL, one or several statements, run as the user of the queue's scheduler").not_null().essential(),
    column("null", "text", ColumnKind::Text, "how NULL is written in output").setting("\\N"),
    column("remote", "text", ColumnKind::Text, "another server to run the task on: a conninfo with its password, or the name of an entry of the config's remotes"),
    column("attempt", "int", ColumnKind::Integer, "how often the task has been taken; a late writer of an earlier attempt changes nothing").default("0").written(),
    column("priority", "int", ColumnKind::Integer, "higher first").default("0"),
    column("held", "bool", ColumnKind::Boolean, "not claimed until released").default("false").written(),
    column("job", "int", ColumnKind::Integer, "the job that made the task"),
    column("at", "timestamptz", ColumnKind::Moment, "the logical time the task runs for; of a repeating task that crashes, the plan that its next time is counted from").emptied(),
    column("epoch", "int", ColumnKind::Integer, "the generation of the logical time"),
    column("run_of", "bigint", ColumnKind::Integer, "the first run of the activation, as in mill.run"),
    column("run", "bigint", ColumnKind::Integer, "the run that the task executes, as in mill.run"),
    column("failures", "int", ColumnKind::Integer, "failed runs of the activation before this one").default("0"),
    column("reason", "text", ColumnKind::Text, "why it ended other than by its own SQL: timeout, cancelled, expired, crashed, interrupted, skipped, completion").emptied(),
    column("atomic", "bool", ColumnKind::Boolean, "input, result and consequences in one transaction").default("false"),
    column("remote_session", "text", ColumnKind::Text, "identifies the session on the remote, as a later one may have its pid: place in the conninfo, its start and its server's in microseconds").emptied(),
    column("crashes", "int", ColumnKind::Integer, "how many attempts in a row have killed their worker or their server process").default("0").written(),
];

const fn column(name: &'static str, type_name: &'static str, kind: ColumnKind, comment: &'static str) -> TaskColumn {
    TaskColumn {
        name,
        type_name,
        kind,
        comment,
        default: Default::None,
        is_key: false,
        not_null: false,
        check: None,
        essential: false,
        written: false,
        emptied: false,
    }
}

impl TaskColumn {
    const fn key(self) -> TaskColumn {
        TaskColumn { is_key: true, ..self }
    }

    const fn not_null(self) -> TaskColumn {
        TaskColumn { not_null: true, ..self }
    }

    const fn default(self, expression: &'static str) -> TaskColumn {
        TaskColumn { default: Default::Expression(expression), not_null: true, ..self }
    }

    /// A default of a column that may be NULL.
    const fn optional(self, expression: &'static str) -> TaskColumn {
        TaskColumn { default: Default::Expression(expression), ..self }
    }

    const fn setting(self, built_in: &'static str) -> TaskColumn {
        TaskColumn { default: Default::Setting(built_in), not_null: true, ..self }
    }

    const fn generated(self, expression: &'static str) -> TaskColumn {
        TaskColumn { default: Default::Generated(expression), not_null: true, ..self }
    }

    const fn check(self, condition: &'static str) -> TaskColumn {
        TaskColumn { check: Some(condition), ..self }
    }

    const fn essential(self) -> TaskColumn {
        TaskColumn { essential: true, ..self }
    }

    const fn written(self) -> TaskColumn {
        TaskColumn { written: true, ..self }
    }

    const fn emptied(self) -> TaskColumn {
        TaskColumn { written: true, emptied: true, ..self }
    }

    /// Changes while a task lives: its users may raise `max`, our statements write the others.
    pub fn moves(&self) -> bool {
        self.written || self.name == "max"
    }

    /// A repetition copies it: neither written by us nor made by the server.
    pub fn is_copied(&self) -> bool {
        !self.written && !self.is_key && !self.is_generated()
    }

    pub fn is_generated(&self) -> bool {
        matches!(self.default, Default::Generated(_))
    }

    /// The value that holds when nobody sets it, if the default is a setting.
    pub fn built_in(&self) -> Option<&'static str> {
        match self.default {
            Default::Setting(built_in) => Some(built_in),
            _ => None,
        }
    }

    /// The default as SQL, with the value of the config in it.
    pub fn default_expression(&self, config: &ColumnDefaults) -> Option<String> {
        match self.default {
            Default::None | Default::Generated(_) => None,
            Default::Expression(expression) => Some(expression.to_owned()),
            Default::Setting(built_in) => {
                let value = config.get(self.name).unwrap_or_else(|| built_in.to_owned());
                // A placeholder reads as '' after RESET or SET LOCAL.
                let read = format!(
                    "COALESCE(NULLIF(current_setting('pg_task.{}', true), ''), {})",
                    self.name,
                    literal(&value)
                );
                Some(if self.type_name == "text" { read } else { format!("{read}::{}", self.type_name) })
            }
        }
    }

    /// All that stands behind its name in `CREATE TABLE`, but for the check. `state`: the type of that name.
    pub fn definition(&self, state: &str, config: &ColumnDefaults) -> String {
        let type_name = if self.kind == ColumnKind::State { state } else { self.type_name };
        let mut definition = type_name.to_owned();
        if self.is_key {
            definition += " PRIMARY KEY";
        }
        if self.not_null {
            definition += " NOT NULL";
        }
        if let Some(expression) = self.default_expression(config) {
            definition += &format!(" DEFAULT {expression}");
        }
        if let Default::Generated(expression) = self.default {
            definition += &format!(" GENERATED ALWAYS AS ({expression}) STORED");
        }
        definition
    }

    /// The whole line of `CREATE TABLE`.
    fn line(&self, state: &str, config: &ColumnDefaults) -> String {
        let name = quoted(self.name);
        let check = self.check.map(|condition| format!(" CHECK ({name} {condition})"));
        format!("{name} {}{}", self.definition(state, config), check.unwrap_or_default())
    }

    /// The statement that comments it in the table of that name.
    pub fn comment_in(&self, table: &str) -> String {
        format!("COMMENT ON COLUMN {table}.{} IS {};", quoted(self.name), literal(self.comment))
    }
}

pub fn task_column(name: &str) -> Option<&'static TaskColumn> {
    TASK_COLUMNS.iter().find(|column| column.name == name)
}

/// The columns of `CREATE TABLE`.
pub(super) fn lines(state: &str, config: &ColumnDefaults) -> String {
    let lines: Vec<String> = TASK_COLUMNS.iter().map(|column| format!("    {}", column.line(state, config))).collect();
    lines.join(",\n")
}

/// Names of the columns that no repetition copies, as literals.
pub(super) fn uncopied() -> String {
    let names: Vec<String> = TASK_COLUMNS
        .iter()
        .filter(|column| !column.is_copied() && !column.is_generated())
        .map(|column| literal(column.name))
        .collect();
    names.join(", ")
}

/// Every column whose default is a setting, with the value that holds when nobody sets it.
pub fn column_defaults(config: &ColumnDefaults) -> Vec<(&'static str, String)> {
    let columns = TASK_COLUMNS.iter().filter_map(|column| Some((column.name, column.built_in()?)));
    columns.map(|(name, built_in)| (name, config.get(name).unwrap_or_else(|| built_in.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = include_str!("../../../docs/reference.md");

    /// A default as the reference shows it.
    fn shown(column: &TaskColumn) -> String {
        match column.default {
            Default::None => String::new(),
            Default::Generated(_) => "generated".to_owned(),
            Default::Setting("") => "''".to_owned(),
            Default::Setting("\t") => "TAB".to_owned(),
            Default::Setting(value) => value.to_owned(),
            Default::Expression("statement_timestamp()") => "now".to_owned(),
            Default::Expression(expression) if column.name == "parent" => {
                assert!(expression.contains("'pg_task.id'"));
                "`pg_task.id`".to_owned()
            }
            Default::Expression(expression) => expression.trim_matches('\'').to_owned(),
        }
    }

    #[test]
    fn the_reference_has_every_column_with_its_type_and_default() {
        let section = REFERENCE.split("\n## ").find(|section| section.starts_with("The task table")).expect("it");
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        for column in TASK_COLUMNS {
            // words that SQL reserves
            let name =
                if ["group", "null"].contains(&column.name) { quoted(column.name) } else { column.name.to_owned() };
            let check = column.check.unwrap_or_default().replace(">=", "≥").replace('\'', "");
            let kind = if column.kind == ColumnKind::State { "enum" } else { column.type_name };
            let cells = format!("{kind} {check}");
            let default = shown(column);
            let default = if default.is_empty() { " ".to_owned() } else { format!(" {default} ") };
            let start = format!("| {name} | {} |{default}| ", cells.trim_end());
            assert!(rows.iter().any(|row| row.starts_with(&start)), "docs/reference.md has no row {start}");
        }
        assert_eq!(rows.len(), TASK_COLUMNS.len());
    }

    #[test]
    fn the_config_has_a_default_for_each_column_whose_default_is_a_setting() {
        let keys: Vec<&str> =
            TASK_COLUMNS.iter().filter(|column| column.built_in().is_some()).map(|column| column.name).collect();
        let mut wanted = ColumnDefaults::KEYS.to_vec();
        wanted.sort_by_key(|key| keys.iter().position(|own| own == key));
        assert_eq!(keys, wanted);
        for (name, built_in) in column_defaults(&ColumnDefaults::default()) {
            assert_eq!(task_column(name).and_then(TaskColumn::built_in), Some(built_in.as_str()));
        }
    }

    #[test]
    fn a_repetition_copies_what_its_owner_has_said() {
        let copied: Vec<&str> =
            TASK_COLUMNS.iter().filter(|column| column.is_copied()).map(|column| column.name).collect();
        for name in ["input", "data", "group", "max", "repeat", "remote", "priority", "atomic"] {
            assert!(copied.contains(&name), "{name}");
        }
        for name in ["id", "parent", "plan", "hash", "state", "output", "attempt", "at"] {
            assert!(!copied.contains(&name), "{name}");
        }
    }
}
