//! How a worker runs its tasks.
//!
//! `begin` gets the session and begins the first task, `task_loop` goes over all of them, `worker` is what they share. One input is run by `input`,
//! what becomes of it by `conclusion`; an `atomic` task and one on a `remote` are run otherwise. `pipeline` runs the inputs of
//! a batch behind each other and `batch_record` records them. `watchdog` cancels.

mod atomic;
mod batch_record;
mod begin;
mod conclusion;
mod input;
mod pipeline;
mod remote;
mod task_log;
mod task_loop;
mod task_run;
mod watchdog;
mod worker;

pub(crate) use begin::{BegunBy, begin};
pub(crate) use conclusion::record_retry;
pub(crate) use watchdog::{Watchdog, open_signals};
pub(crate) use worker::{Worker, set_title};
