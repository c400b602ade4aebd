//! The scheduler decides which tasks of one queue run.
//!
//! A process per queue (database, schema, table), forked by the launcher. It claims due rows, forks a worker for each,
//! and makes sure that no row is left behind when a worker dies. One thread, one wait: `event_loop` polls the
//! session's socket, the signal pipe and the workers' pidfds, and lets the pure machines decide: `session_state` for
//! the connection, `attempt_state` for each task, `poll_timer` for the next pass. Before anything is read, `start_gate` waits for
//! a session that works on the catalog, and finds out whether there is anything to serve. Statements are in `table::make`,
//! `claim::pass` and `attempt::settle`, a remote in `attempt::remote_search`; a table made by another program is taken over by
//! `shape`, `table_plan` and `table_repair`.
#![forbid(unsafe_code)]

mod answer;
mod attempt;
mod base;
mod claim;
mod command;
mod components;
mod event_loop;
mod graph;
mod jobs;
mod limits;
mod links;
mod pool;
mod session;
mod stop;
mod table;
mod turn;

use nix::sys::signal::Signal;
use shared::log;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::{SchedulerOrder, Start};
use shared::region::{Phase, ProcessKind};
use shared::sys::signal::SignalPipe;
use shared::sys::title;

const SIGNALS: [Signal; 5] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR2];

/// The entry of a scheduler process.
pub fn run(start: Start) -> ExitCode {
    log::speak_as(ProcessKind::Scheduler);
    title::set("pgmill: scheduler");
    let signals = match SignalPipe::open(&SIGNALS) {
        Ok(signals) => signals,
        Err(error) => {
            shared::error!("scheduler exits: cannot set up signal handling", error = error);
            return ExitCode::Temporary;
        }
    };
    fault::point("scheduler.before_accept");
    let order: SchedulerOrder = match start.accept() {
        Ok(order) => order,
        Err(error) => {
            shared::warning!("scheduler exits: cannot read its parameters from shared memory", error = error);
            return ExitCode::BadCell;
        }
    };
    serve(start, order, signals, false)
}

/// The entry of a scheduler that another version's process has become.
pub fn run_reexecuted(start: Start, order: SchedulerOrder) -> ExitCode {
    log::speak_as(ProcessKind::Scheduler);
    fault::attach();
    match SignalPipe::open(&SIGNALS) {
        Ok(signals) => serve(start, order, signals, true),
        Err(error) => {
            shared::error!("scheduler exits: cannot set up signal handling", error = error);
            ExitCode::Temporary
        }
    }
}

fn serve(start: Start, order: SchedulerOrder, signals: SignalPipe, reexecuted: bool) -> ExitCode {
    title::set(&format!("pgmill: scheduler {} {}.{}", order.target.database, order.schema, order.table));
    start.region.slots().slot_status(start.slot).set_phase(Phase::Waiting);
    match event_loop::Scheduler::new(start, order, signals, reexecuted) {
        Ok(scheduler) => scheduler.run(),
        Err(error) => {
            shared::error!("scheduler exits: cannot start", error = error);
            ExitCode::Temporary
        }
    }
}
