//! Messages that users send by SQL: `mill.start()`, `mill.stop()`, `mill.restart()`.

pub mod message_table;
pub mod messages;
