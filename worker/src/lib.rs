//! The worker runs one task and exits.
//!
//! A process per task, forked by a scheduler. Its `assignment` comes through a cell or with the fork; from there on both go the
//! same way: a `session` is opened and set up, the task begins, `run` runs its input, `result` makes the texts of the result and
//! decides what they mean, `record` writes it into the row and claims the next tasks, where this worker may go on. `wire` is
//! its client, `limits` has every timeout. A worker has threads and never forks. Exit 0 reports that the row has been dealt
//! with, exit 100 that its end cannot be written; any other exit sends the scheduler to look.
#![forbid(unsafe_code)]

mod assignment;
mod limits;
mod record;
pub mod result;
mod run;
mod session;
mod task_row;
pub mod wire;

pub use assignment::{Assignment, Begin, End, ParameterSource, QueueContext, Reporting, WorkerConnection};
pub use record::TaskStatements;
pub use task_row::{TaskRow, task_row};

use run::{BegunBy, Watchdog, Worker, begin, open_signals, record_retry, set_title};
use session::Connector;
use shared::db::statement::Queue;
use shared::log;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::{ForkStart, Start, WorkerOrder};
use shared::region::{ProcessKind, Region, SlotHandle, TaskKey};
use shared::sys::{child_allocator, title};
use std::rc::Rc;
use std::sync::Arc;

/// The entry of every worker process.
pub fn run(assignment: Assignment<'_>) -> ExitCode {
    let Assignment { parameters, connection, reporting } = assignment;
    match parameters {
        ParameterSource::Fork { start: ForkStart { region, slot, life }, context, row } => {
            child_allocator::activate();
            log::speak_as(ProcessKind::Worker);
            set_title(&context.order, row);
            let watchdog = Watchdog::dormant(life, region.clone(), slot);
            let process = Process { context, watchdog: &watchdog, region: &region, slot };
            process.work(row.key(), Some(row), connection, reporting)
        }
        ParameterSource::Cell(start) => match accept(&start) {
            Ok((context, watchdog)) => {
                let key = TaskKey { task: context.order.task, attempt: context.order.attempt };
                let (region, slot) = (&start.region, start.slot);
                Process { context: &context, watchdog: &watchdog, region, slot }.work(key, None, connection, reporting)
            }
            Err(code) => code,
        },
    }
}

/// Takes the order out of the cell, which frees it, and starts the watchdog.
fn accept(start: &Start) -> Result<(QueueContext, Watchdog), ExitCode> {
    log::speak_as(ProcessKind::Worker);
    title::set("pgmill: worker");
    let signals = open_signals().map_err(|error| {
        shared::error!("worker exits: cannot set up signal handling", error = error);
        ExitCode::Temporary
    })?;
    fault::point("worker.before_accept");
    let order: WorkerOrder = start.accept().map_err(|error| {
        shared::warning!("worker exits: cannot read its parameters from shared memory", error = error);
        ExitCode::BadCell
    })?;
    // The group joins it once the row is read.
    title::set(&format!("pgmill: worker {} {}.{} #{}", order.target.database, order.schema, order.table, order.task));
    fault::point("worker.after_accept");
    let (region, slot) = (&start.region, start.slot);
    let cannot_watch = |error: std::io::Error| {
        // Its scheduler logs it, once for many.
        region.slots().slot_status(slot).set_reason(&format!("cannot start the watchdog: {error}"));
        ExitCode::Temporary
    };
    let life = start.life.try_clone().map_err(cannot_watch)?;
    let watchdog = Watchdog::start(signals, life, start.parent, region.clone(), slot).map_err(cannot_watch)?;
    let queue = Queue { schema: order.schema.clone(), table: order.table.clone() };
    let statements = TaskStatements::new(queue, order.lazy_commit, order.home.as_ref().map(|home| home.proof));
    let target = Arc::new(order.target.clone());
    Ok((QueueContext { order, target, statements: Rc::new(statements) }, watchdog))
}

/// A worker process that knows its task.
struct Process<'a> {
    context: &'a QueueContext,
    watchdog: &'a Watchdog,
    region: &'a Region,
    slot: SlotHandle,
}

impl Process<'_> {
    /// `row`: None where it is read by the begin.
    fn work(
        &self,
        key: TaskKey,
        row: Option<&TaskRow>,
        connection: WorkerConnection<'_>,
        reporting: Reporting<'_>,
    ) -> ExitCode {
        let Process { context, watchdog, region, slot } = *self;
        let offer_to = match connection {
            WorkerConnection::Own { offer_to } => offer_to,
            WorkerConnection::Pooled { .. } => None,
        };
        let connector = Connector::new(&context.order, region, slot, offer_to);
        let worker = |row: &TaskRow, leaves_results: bool| {
            Worker::new(context, &connector, watchdog, (region, slot), row, leaves_results)
        };
        if let (End::RecordRetry(result), Some(row)) = (reporting.end, row) {
            watchdog.wake();
            return record_retry(&worker(row, false), row, result);
        }
        let slot_status = region.slots().slot_status(slot);
        let by = BegunBy { context, connector: &connector, watchdog, slot_status, connection };
        match begin(&by, key, row, reporting.begin) {
            Ok((session, row)) => worker(&row, matches!(reporting.end, End::Scheduler)).run_tasks(session, row),
            Err(code) => code,
        }
    }
}
