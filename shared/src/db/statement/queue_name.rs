//! A queue, and what its statements may name.

use crate::db::identifier::{literal, qualified, quoted};
use crate::db::task_column::{self, TASK_COLUMNS};

/// A task table, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub schema: String,
    pub table: String,
}

impl Queue {
    /// What stands in a statement under a name in braces, of those that every statement may use.
    pub(super) fn named(&self, name: &str) -> Option<String> {
        Some(match name {
            "queue" => qualified(&self.schema, &self.table),
            "schema" => quoted(&self.schema),
            "state" => qualified(&self.schema, "state"),
            "schema_text" => literal(&self.schema),
            "table_text" => literal(&self.table),
            "queue_text" => literal(&qualified(&self.schema, &self.table)),
            "column_comments" => {
                let table = qualified(&self.schema, &self.table);
                TASK_COLUMNS.iter().map(|column| column.comment_in(&table)).collect::<Vec<_>>().join("\n")
            }
            "uncopied_columns" => task_column::uncopied(),
            _ => return None,
        })
    }
}
