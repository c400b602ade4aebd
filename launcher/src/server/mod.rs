//! What the launcher asks its own server, and what it makes there.

pub mod end_sessions;
pub mod lock_watch;
pub mod open_transactions;
pub mod provision;
pub mod queue_probe;
pub mod server_watch;
