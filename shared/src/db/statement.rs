//! Our statements, each in a file of its own under `shared/sql`, and how they become the texts that are sent.
//!
//! `list` has the files, `fragment` the parts that several of them include, `render` puts names and parameters in, `queue` knows
//! what the statements of a queue differ in. A statement names its queue by placeholders, because a table's name cannot be a
//! parameter. Nothing else is ever put into SQL text, but for the config's column defaults, as literals.

mod fragment;
mod list;
mod queue;
mod render;

pub use list::*;
pub use queue::{Claim, Queue, Rows, Scan};
pub use render::{head, parameters};

use crate::config::ColumnDefaults;
use render::{Value, render};

/// The error of a run that a person has stopped; an end with it is not tried again.
pub(super) const CANCELLED: &str = "ERROR:  task cancelled";

/// A statement that names no queue, without its head comment.
pub fn bare(statement: &str) -> String {
    render(statement, None, &[])
}

/// A statement with these values under their names, without its head comment.
pub(super) fn fill(statement: &str, names: &[(&str, String)]) -> String {
    let values: Vec<_> = names.iter().map(|(name, value)| (*name, Value::Text(value.clone()))).collect();
    render(statement, None, &values)
}

/// Every column whose default is a setting, with the value that holds when nobody sets it.
pub fn column_defaults(config: &ColumnDefaults) -> Vec<(&'static str, String)> {
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
mod tests;
