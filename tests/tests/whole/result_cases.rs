//! Tasks and the expected contents of their rows at the end. Each test puts all its tasks in at once, each in a group of its own.

use serde_json::Value;
use tests::{Database, Supervisor};

/// One task and what its row must say at the end.
pub struct Case {
    pub input: String,
    pub columns: String,
    pub expected: Expected,
}

#[derive(Debug, PartialEq)]
pub enum Expected {
    /// The row is gone.
    Deleted,
    Row {
        state: &'static str,
        output: Option<String>,
        error: Option<String>,
    },
}

impl Case {
    /// More columns, as `Database::insert_with` takes them.
    pub fn with(mut self, columns: &str) -> Case {
        self.columns = columns.to_owned();
        self
    }
}

/// A task that ends well with this output.
pub fn done(input: &str, output: &str) -> Case {
    let expected = Expected::Row { state: "DONE", output: Some(output.to_owned()), error: None };
    Case { input: input.to_owned(), columns: String::new(), expected }
}

/// A task that has nothing to say, and whose row goes.
pub fn deleted(input: &str) -> Case {
    Case { input: input.to_owned(), columns: String::new(), expected: Expected::Deleted }
}

/// A task that fails; `error` without the STATEMENT line, which shows the input with a TAB
/// after every newline.
pub fn fails(input: &str, output: &str, error: &str) -> Case {
    let error = format!("{error}\nSTATEMENT:  {}", input.replace('\n', "\n\t"));
    let expected = Expected::Row { state: "FAIL", output: Some(output.to_owned()), error: Some(error) };
    Case { input: input.to_owned(), columns: String::new(), expected }
}

/// Inserts all, waits for all, compares all.
#[track_caller]
pub fn check(supervisor: &Supervisor<'_>, database: &Database, cases: &[Case]) {
    let ids: Vec<i64> = cases
        .iter()
        .enumerate()
        .map(|(number, case)| {
            let separator = if case.columns.is_empty() { "" } else { ", " };
            database.insert_with(&case.input, &format!("{}{separator}group = 'case {number}'", case.columns))
        })
        .collect();
    supervisor.eventually("all tasks have ended", || {
        ids.iter().all(|id| database.task(*id).is_none() || database.finished(*id).is_some())
    });
    let mut wrong = String::new();
    for (id, case) in ids.iter().zip(cases) {
        let found = found(database, *id);
        if found != case.expected {
            let Case { input, columns, expected } = case;
            wrong += &format!("{input}\n  with {columns:?}\n  wanted {expected:?}\n  found  {found:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

pub fn found(database: &Database, id: i64) -> Expected {
    let Some(row) = database.task(id) else { return Expected::Deleted };
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    let state = ["DONE", "FAIL", "GONE"].into_iter().find(|state| row["state"] == **state);
    Expected::Row { state: state.unwrap_or("not final"), output: text("output"), error: text("error") }
}

/// What the server itself says, as the queue's user.
pub fn ask(database: &Database, sql: &str) -> String {
    database.connect().query_one(sql, &[]).expect("query").get(0)
}

pub fn make(database: &Database, sql: &str) {
    database.connect().batch_execute(sql).expect("the owner may make tables");
}

pub fn time(row: &Value, column: &str) -> String {
    row[column].as_str().unwrap_or_else(|| panic!("{column} is not set: {row}")).to_owned()
}
