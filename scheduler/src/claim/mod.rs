//! Claims: when the queue is read, what is claimed, and how much may run.

mod claimed_rows;
mod claimer;
pub mod claims;
mod pass;
pub mod pass_end;
mod pass_request;
mod pass_start;
mod poll_timer;
mod process_limit;
mod round_trip;
pub mod slots;
