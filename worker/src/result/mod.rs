//! What became of an input: its texts, and what they mean for its row.
//!
//! All of it is pure. `format` and `error_text` make the texts of the output and error columns, `outcome` decides what is
//! recorded, `lexer` finds transaction control in an input before it is sent.

pub mod error_text;
pub mod format;
pub(crate) mod lexer;
pub(crate) mod outcome;
