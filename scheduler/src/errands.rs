//! Tasks whose beginning and end are written by the scheduler, many at once; only their input runs in a worker.
//!
//! A plain task that gets a lent connection is begun by the take itself, since the backend is known before the fork, and
//! its worker is handed the row by the fork. What the worker hands in is written down here together with what others have handed
//! in meanwhile, before the next look. A result stays in this table until the database has it: it survives a lost
//! session, and a row that cannot be written with the others (locked, come to repeat, refused) gets a clerk, a worker
//! that does nothing else. If the scheduler itself is killed in between, such a task runs again.

use crate::event_loop::{Answer, PATIENCE, Scheduler};
use crate::look::Group;
use crate::run_table::{RunId, WorkerEnd};
use shared::db::statement::Queue;
use shared::db::trouble::{Trouble, TroubleKind};
use shared::exit_code::ExitCode;
use shared::hand_over::WorkerOrder;
use shared::region::{HandedIn, Kind, SlotHandle};
use shared::sys::wait::End;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use worker::errand::{self, Clerk, Errand};
use worker::{Book, TaskRow};

/// How long a result waits whose clerk could not be started, or did not get through.
const CLERK_PAUSE: Duration = Duration::from_millis(500);

/// A result, and the row it belongs to.
#[derive(Debug)]
struct Ended {
    row: Rc<TaskRow>,
    result: HandedIn,
}

#[derive(Debug)]
pub struct Errands {
    book: Rc<Book>,
    /// Of workers under way.
    rows: BTreeMap<RunId, Rc<TaskRow>>,
    /// To be written, being written, to be given to clerks, in the hands of clerks.
    handed: Vec<Ended>,
    booking: Vec<Ended>,
    refused: Vec<Ended>,
    clerks: BTreeMap<RunId, Ended>,
    next_clerk: Option<Instant>,
}

impl Errands {
    pub fn new(queue: Queue, lazy_commit: bool) -> Errands {
        Errands {
            book: Rc::new(Book::new(queue, lazy_commit)),
            rows: BTreeMap::new(),
            handed: Vec::new(),
            booking: Vec::new(),
            refused: Vec::new(),
            clerks: BTreeMap::new(),
            next_clerk: None,
        }
    }

    /// Nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.results().next().is_none()
    }

    /// Rows that are ours without a worker that says so.
    pub fn knows(&self, task: i64) -> bool {
        self.results().any(|ended| ended.row.task == task)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.next_clerk.filter(|_| !self.refused.is_empty())
    }

    fn results(&self) -> impl Iterator<Item = &Ended> {
        self.handed.iter().chain(&self.booking).chain(&self.refused).chain(self.clerks.values())
    }
}

impl Scheduler {
    /// A worker of its own for a row that is begun, on the connection that was promised to it.
    pub(crate) fn start_errand(
        &mut self,
        row: TaskRow,
        group: Rc<Group>,
        slot: SlotHandle,
        backend: i32,
        now: Instant,
    ) {
        let (task, attempt) = (row.task, row.attempt);
        let region = &self.start.region;
        region.expect_return(slot);
        region.expect_result(slot);
        let row = Rc::new(row);
        let started = match self.lending.gift(backend) {
            Some((lent, socket)) => {
                let kept = [socket.as_raw_fd()];
                let (order, book) = (self.worker_order(task, attempt), self.errands.book.clone());
                let errand = Errand { order, row: row.clone(), book, lent, socket };
                let spawned = self.nursery.spawn_plain(slot, Kind::Worker, &self.label, errand::run, errand, &kept);
                spawned.map_err(|error| error.to_string())
            }
            None => {
                region.slots().release(slot);
                Err("the connection is gone".to_owned())
            }
        };
        match started {
            Ok(child) => {
                self.lending.lent(backend, slot);
                shared::debug!("worker started", queue = self.label, task = task, pid = child.pid());
                let run = self.runs.started_plain(task, attempt, child, slot, false);
                self.runs.set_group(run, group);
                self.errands.rows.insert(run, row);
            }
            Err(error) => {
                let queue = &self.label;
                shared::error!(
                    "cannot start a worker; the task is planned again",
                    queue = queue,
                    task = task,
                    error = error
                );
                self.lending.unpromise(backend);
                self.runs.orphaned(task, attempt, now);
                let pause = self.stumbling.next(now);
                self.doze.hold_off(pause);
            }
        }
    }

    pub(crate) fn worker_order(&self, task: i64, attempt: i32) -> WorkerOrder {
        WorkerOrder {
            target: self.order.target.clone(),
            schema: self.order.schema.clone(),
            table: self.order.table.clone(),
            task,
            attempt,
            output_limit: self.settings.output_limit,
            remotes: self.order.remotes.clone(),
            lent: None,
            batch: self.settings.batch,
            lazy_commit: !self.settings.synchronous_commit,
        }
    }

    /// A worker is gone: what it has handed in is to be written; what a clerk could not write is tried again.
    pub(crate) fn errand_ended(&mut self, ended: &WorkerEnd, now: Instant) {
        if let Some(row) = self.errands.rows.remove(&ended.run)
            && let Some(result) = &ended.handed_in
        {
            self.errands.handed.push(Ended { row, result: result.clone() });
        }
        if let Some(result) = self.errands.clerks.remove(&ended.run) {
            let over = [ExitCode::Asked, ExitCode::Permanent].map(ExitCode::status);
            if !matches!(ended.end, End::Exited(status) if over.contains(&status)) {
                self.errands.refused.push(result);
                self.errands.next_clerk = Some(now + CLERK_PAUSE);
            }
        }
    }

    /// Writes down what was handed in, all at once, and one such writing at a time.
    pub(crate) fn book_errands(&mut self) {
        if self.errands.handed.is_empty() || !self.errands.booking.is_empty() || !self.session.working() {
            return;
        }
        let (Some(link), Some(statements)) = (&mut self.link, self.statements.clone()) else { return };
        let booking = std::mem::take(&mut self.errands.handed);
        let tasks: Vec<i64> = booking.iter().map(|ended| ended.result.task).collect();
        let attempts: Vec<i32> = booking.iter().map(|ended| ended.result.attempt).collect();
        let failed: Vec<bool> = booking.iter().map(|ended| ended.result.failed).collect();
        let outputs: Vec<Option<String>> = booking.iter().map(|ended| ended.result.output.clone()).collect();
        let errors: Vec<Option<String>> = booking.iter().map(|ended| ended.result.error.clone()).collect();
        self.errands.booking = booking;
        shared::fault::point("scheduler.before_booking");
        link.ask("writing results", PATIENCE, move |client| async move {
            let values: [&(dyn ToSql + Sync); 5] = [&tasks, &attempts, &failed, &outputs, &errors];
            let rows = contained(client.query(&statements.finish_errands, &values).await, "ended")?;
            Ok(Answer::Booked(rows.iter().map(|row| row.get("id")).collect()))
        });
    }

    pub(crate) fn booked(&mut self, written: &[i64], now: Instant) {
        for ended in std::mem::take(&mut self.errands.booking) {
            if written.contains(&ended.result.task) {
                shared::debug!("task finished", task = ended.result.task, failed = ended.result.failed);
            } else {
                self.errands.refused.push(ended);
                self.errands.next_clerk.get_or_insert(now);
            }
        }
        // What was full may have room now.
        self.doze.hurry(now);
    }

    /// Results that could not be written with the others get a clerk each, as far as there are slots.
    pub(crate) fn send_clerks(&mut self, now: Instant) {
        if self.errands.refused.is_empty()
            || !self.session.working()
            || self.errands.next_clerk.is_some_and(|at| now < at)
        {
            return;
        }
        self.errands.next_clerk = Some(now + CLERK_PAUSE);
        while let Some(ended) = self.errands.refused.pop() {
            let Some(slot) = self.start.region.slots().reserve() else {
                self.errands.refused.push(ended);
                return;
            };
            let (task, attempt) = (ended.result.task, ended.result.attempt);
            self.start.region.expect_return(slot);
            self.start.region.expect_result(slot);
            let (order, book) = (self.worker_order(task, attempt), self.errands.book.clone());
            let clerk = Clerk { order, row: ended.row.clone(), book, result: ended.result.clone() };
            match self.nursery.spawn_plain(slot, Kind::Worker, &self.label, errand::write_down, clerk, &[]) {
                Ok(child) => {
                    let run = self.runs.started_plain(task, attempt, child, slot, true);
                    self.errands.clerks.insert(run, ended);
                }
                Err(error) => {
                    shared::error!("cannot start a worker", queue = self.label, task = task, error = error);
                    self.errands.refused.push(ended);
                    return;
                }
            }
        }
    }

    /// The session is gone, and every answer with it: what was being written is written again (the fence makes that
    /// harmless).
    pub(crate) fn errands_lost(&mut self) {
        let booking = std::mem::take(&mut self.errands.booking);
        self.errands.handed.extend(booking);
    }
}

/// The rows of a statement that concerns many tasks. What the database refuses is said, and leaves each of them to be
/// tried alone; anything else is the session's trouble.
fn contained(
    answer: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>,
    what: &str,
) -> Result<Vec<tokio_postgres::Row>, Trouble> {
    answer.or_else(|error| {
        let trouble = Trouble::of(&error);
        if trouble.kind == TroubleKind::Passing {
            return Err(trouble);
        }
        shared::warning!("tasks cannot be written together; each is tried alone", to_be = what, error = trouble);
        Ok(Vec::new())
    })
}
