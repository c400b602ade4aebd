//! The worker runs one task and dies.
//!
//! A process per task, forked by a scheduler. It reads its order from a cell, opens a connection of its own, marks
//! the row WORK, runs the input, writes the result, and leaves. `wire` is its client, `format` and `error_text` make
//! the result's texts, `outcome` decides what is written, `book` writes it, `watchdog` cancels; `atomic` and `remote` are
//! the two ways to run a task otherwise, `batch` runs several that `pace` says are short. A worker has threads
//! and never forks. Exit 0 says that the row has been dealt with, exit 100 that its
//! end cannot be written; anything else sends the scheduler to look.
#![forbid(unsafe_code)]

mod atomic;
mod batch;
mod book;
pub mod errand;
pub mod error_text;
mod execute;
pub mod format;
mod lexer;
mod outcome;
mod pace;
mod record_retry;
mod recorder;
mod remote;
mod session;
mod watchdog;
pub mod wire;

pub use book::{Book, TaskRow, task_row};

use shared::log;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::{Start, WorkerOrder};
use shared::region::Kind;
use shared::sys::title;
use watchdog::Watchdog;

/// The entry of a worker process.
pub fn run(start: Start) -> ExitCode {
    log::speak_as(Kind::Worker);
    title::set("pgmill: worker");
    let bell = match watchdog::hang_bell() {
        Ok(bell) => bell,
        Err(error) => {
            shared::error!("cannot hang the signal bell", error = error);
            return ExitCode::Temporary;
        }
    };
    fault::point("worker.before_accept");
    let order: WorkerOrder = match start.accept() {
        Ok(order) => order,
        Err(error) => {
            shared::warning!("worker leaves: its parameters are not to be had", error = error);
            return ExitCode::BadCell;
        }
    };
    // The group joins it once the row is read.
    title::set(&format!("pgmill: worker {} {}.{} #{}", order.target.database, order.schema, order.table, order.task));
    fault::point("worker.after_accept");
    let Start { region, slot, life, gifts, parent, .. } = start;
    session::keep_to(&region, slot, gifts);
    let watchdog = match Watchdog::start(bell, life, parent, region.clone(), slot) {
        Ok(watchdog) => watchdog,
        Err(error) => {
            // Its scheduler logs it, once for many.
            region.slots().notes(slot).set_reason(&format!("cannot start the watchdog: {error}"));
            return ExitCode::Temporary;
        }
    };
    execute::execute(&order, &region, slot, &watchdog)
}
