//! The loop of a worker over its tasks. Each turn runs the tasks that were claimed last, one or a batch of them, and ends with
//! the claim of the next ones.

use super::pipeline;
use super::remote::{self, Far};
use super::task_run::{Next, TaskRun};
use super::worker::{Worker, set_title};
use crate::record::ScanPosition;
use crate::task_row::TaskRow;
use crate::wire::Session;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::region::Rescans;
use std::borrow::Cow;

impl Worker<'_> {
    /// Runs the row, which has begun on this session, and whatever this worker claims after it.
    pub(crate) fn run_tasks(&self, mut session: Session, row: Cow<'_, TaskRow>) -> ExitCode {
        let claims = row.reuse && row.remote.is_none();
        let parent = if claims { self.slot_status().parent() } else { None };
        let rescans = parent.map(|scheduler| Rescans::of(scheduler, &row.group));
        let mut position = ScanPosition::new(self.region, rescans, &row);
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
                self.slot_status().set_running(row.task, row.attempt, backend);
                set_title(self.order(), row);
            }
            position.claimed(&rows);
        }
    }
}
