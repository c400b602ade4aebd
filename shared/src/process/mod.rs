//! The parts of every process: how it is forked and gets its order, how it stops, and what its exit status means.

pub mod begin_channel;
pub mod exit_code;
pub mod failed_task;
pub mod fault;
pub mod kernel_limits;
pub mod order;
pub(crate) mod panic_guard;
pub mod reexec;
pub mod spawn;
pub mod stopping;
