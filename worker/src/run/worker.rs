//! The loop of a worker over its tasks, and what it knows beside them.
//!
//! Each turn runs the tasks that were claimed last, one or a batch of them, and ends with the claim of the next ones.

use super::pipeline;
use super::remote::{self, Far};
use super::task_run::{Next, TaskRun};
use super::watchdog::Watchdog;
use crate::assignment::QueueContext;
use crate::record::{Pace, Recorder, ScanPosition};
use crate::session::{Connector, setup};
use crate::task_row::TaskRow;
use crate::wire::Session;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::WorkerOrder;
use shared::region::{Notes, Region, SlotHandle, Turns};
use shared::sys::title;
use std::borrow::Cow;
use std::cell::Cell;

/// What stays the same for all tasks of a worker, and what it has learnt of them.
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

    pub(super) fn notes(&self) -> Notes<'a> {
        self.region.slots().notes(self.slot)
    }

    pub(super) fn recorder(&self, task: i64, effects: bool) -> Recorder<'_> {
        Recorder::new(self.connector, self.watchdog, self.notes(), task, effects)
    }

    /// One more task has run, or is about to.
    pub(super) fn count(&self) {
        self.executed.set(self.executed.get().saturating_add(1));
    }

    /// Runs the row, which has begun on this session, and whatever this worker claims after it.
    pub(crate) fn run_tasks(&self, mut session: Session, row: Cow<'_, TaskRow>) -> ExitCode {
        let claims = row.reuse && row.remote.is_none();
        let parent = if claims { self.notes().parent() } else { None };
        let turns = parent.map(|scheduler| Turns::of(scheduler, &row.group));
        let mut position = ScanPosition::new(self.region, turns, &row);
        let mut far: Option<Far> = None;
        let mut rows = match row {
            Cow::Borrowed(row) => Cow::Borrowed(std::slice::from_ref(row)),
            Cow::Owned(row) => Cow::Owned(vec![row]),
        };
        loop {
            let scan_start = position.next(&rows, self.executed.get());
            let next = match &rows[..] {
                [row] if row.remote.is_some() => remote::run(self, session, row, &mut far),
                [row] => {
                    fault::point("worker.after_begin");
                    self.count();
                    TaskRun::new(self, row, scan_start).run(session)
                }
                rows => pipeline::run(self, session, rows, scan_start),
            };
            match next {
                Next::Exit(code) => return code,
                Next::Continue(next) => {
                    let (claimed, same) = *next;
                    (rows, session) = (Cow::Owned(claimed), same);
                }
            }
            if let Some(row) = rows.first() {
                // Before an input is sent: the process that finds this worker dead must know its task.
                let backend = far.as_ref().map_or(session.backend_pid(), |far| -far.pid());
                self.notes().set_running(row.task, row.attempt, backend);
                set_title(self.order(), row);
            }
            position.claimed(&rows);
        }
    }
}

/// What `ps` shows.
pub(crate) fn set_title(order: &WorkerOrder, row: &TaskRow) {
    let group = String::from_utf8_lossy(&row.group);
    let queue = format!("{} {}.{}", order.target.database, order.schema, order.table);
    title::set(&format!("pgmill: worker {queue} {group} #{}", row.task));
}
