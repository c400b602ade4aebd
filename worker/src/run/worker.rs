//! What stays the same for all tasks of a worker, and what it has learnt of them.

use super::watchdog::Watchdog;
use crate::assignment::QueueContext;
use crate::record::{Pace, Recorder};
use crate::session::{Connector, setup};
use crate::task_row::TaskRow;
use shared::process::failed_task;
use shared::process::order::WorkerOrder;
use shared::region::{EndState, Region, SlotHandle, SlotStatus, TaskResult};
use shared::sys::title;
use std::cell::Cell;

/// One worker process with its first task begun.
pub(crate) struct Worker<'a> {
    pub(crate) context: &'a QueueContext,
    pub(crate) connector: &'a Connector<'a>,
    pub(crate) watchdog: &'a Watchdog,
    pub(crate) region: &'a Region,
    pub(crate) slot: SlotHandle,
    /// The scheduler writes the ends that are short; its worker leaves them in its slot.
    pub(crate) leaves_results: bool,
    /// Of its first task.
    pub(crate) max: i32,
    pub(crate) started: Vec<u8>,
    pub(crate) executed: Cell<u32>,
    pub(crate) pace: Cell<Pace>,
}

impl<'a> Worker<'a> {
    /// A worker that begins with this row.
    pub(crate) fn new(
        context: &'a QueueContext,
        connector: &'a Connector<'a>,
        watchdog: &'a Watchdog,
        (region, slot): (&'a Region, SlotHandle),
        row: &TaskRow,
        leaves_results: bool,
    ) -> Worker<'a> {
        let order = &context.order;
        let batches = row.reuse
            && order.batch
            && row.remote.is_none()
            && !order.target.late_settings
            && setup::prepared_text(order, &row.group, false).is_some();
        Worker {
            context,
            connector,
            watchdog,
            region,
            slot,
            leaves_results,
            max: row.max,
            started: row.start.clone(),
            executed: Cell::new(0),
            pace: Cell::new(Pace::new(batches)),
        }
    }

    pub(super) fn order(&self) -> &'a WorkerOrder {
        &self.context.order
    }

    pub(super) fn slot_status(&self) -> SlotStatus<'a> {
        self.region.slots().slot_status(self.slot)
    }

    pub(super) fn recorder(&self, task: i64, effects: bool) -> Recorder<'_> {
        Recorder::new(self.connector, self.watchdog, self.slot_status(), task, effects)
    }

    /// A task has ended and its result is recorded. `job`: whose run it was.
    pub(super) fn log_end(&self, result: &TaskResult<'_>, job: Option<&[u8]>) {
        shared::debug!("task finished", task = result.key.task, state = result.state.as_str());
        if result.state == EndState::Fail {
            failed_task::log(self.region, &queue_name(self.order()), result, job);
        }
    }

    /// One more task has run, or is about to.
    pub(super) fn count(&self) {
        self.executed.set(self.executed.get().saturating_add(1));
    }
}

/// What `ps` shows.
pub(crate) fn set_title(order: &WorkerOrder, row: &TaskRow) {
    let group = String::from_utf8_lossy(&row.group);
    title::set(&format!("pgmill: worker {} {group} #{}", queue_name(order), row.task));
}

fn queue_name(order: &WorkerOrder) -> String {
    format!("{} {}.{}", order.target.database, order.schema, order.table)
}
