//! Our statements, each in a file of its own under `shared/sql`, and how they become the texts that are sent.
//!
//! `list` has the files, `fragment` the parts that several of them include, `render` puts names and parameters in, `queue` knows
//! what the statements of a queue differ in. A statement names its queue by placeholders, because a table's name cannot be a
//! parameter. Nothing else is ever put into SQL text, but for the config's column defaults, as literals.

mod forms;
mod fragment;
mod list;
mod queue;
mod render;
mod task_row;

pub use forms::{Form, forms};
pub use list::*;
pub use queue::{CLAIM_WALKS, Claim, Queue, Rows, Scan};
pub use render::{head, parameters};
pub use task_row::{RowValue, TASK_ROW};

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

#[cfg(test)]
mod tests;
