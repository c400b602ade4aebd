//! Our statements, each in a file of its own under `shared/sql`, and how they become the texts that are sent.
//!
//! `list` has the files, `fragment` the parts that several of them include, `render` puts names and parameters in, `queue` knows
//! the forms of the statements of a queue, and `forms` all of them. `task_row` lists what a worker reads of its row. A statement names its queue by placeholders, because a table's name cannot be a
//! parameter. Nothing else is ever put into SQL text, but for the config's column defaults, as literals.

mod forms;
mod fragment;
mod list;
mod queue;
mod queue_name;
mod render;
mod task_row;

pub use forms::{StatementForm, forms};
pub use list::*;
pub(super) use queue::CANCELLED;
pub use queue::{ClaimForm, Rows, Scan};
pub use queue_name::Queue;
pub(super) use render::fill;
pub use render::{bare, head, parameters};
pub use task_row::{RowValue, TASK_ROW};

#[cfg(test)]
mod tests;
