//! Claims: when the queue is read, what is claimed, and how much may run.

pub mod claims;
pub mod group;
pub mod pass;
pub mod poll_timer;
pub mod process_limit;
