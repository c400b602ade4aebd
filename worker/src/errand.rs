//! Tasks that the scheduler has begun itself, on connections that it lends, and ends that it could not write.
//!
//! An errand's worker is handed everything by the fork: the row, the socket, the books. It runs the input as any worker
//! does; a short and plain result goes to its parent, which writes down many at once, and anything else it writes
//! itself. A clerk is a worker that runs nothing: it writes one result that the scheduler could not write together
//! with the others, because the row was locked, has come to repeat, or the database refused it.

use crate::book::{Book, Record, Reuse, TaskRow};
use crate::execute::{Next, Run, announce};
use crate::session;
use crate::watchdog::Watchdog;
use crate::wire::Session;
use shared::exit_code::ExitCode;
use shared::hand_over::{Birth, Gifts, Lent, WorkerOrder};
use shared::region::{HandedIn, Kind};
use shared::{fault, log};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// What an errand's worker is handed.
#[derive(Debug)]
pub struct Errand {
    pub order: WorkerOrder,
    pub row: Rc<TaskRow>,
    pub book: Rc<Book>,
    pub lent: Lent,
    pub socket: OwnedFd,
}

/// What a clerk is handed.
#[derive(Debug)]
pub struct Clerk {
    pub order: WorkerOrder,
    pub row: Rc<TaskRow>,
    pub book: Rc<Book>,
    pub result: HandedIn,
}

/// The entry of an errand's worker.
pub fn run((birth, errand): (Birth, Errand)) -> ExitCode {
    log::speak_as(Kind::Worker);
    let Birth { region, slot, life } = birth;
    let Errand { order, row, book, lent, socket } = errand;
    announce(&order, &row);
    session::keep_to(&region, slot, Gifts::default());
    let notes = region.slots().notes(slot);
    notes.set_running(row.task, row.attempt, lent.backend);
    let watchdog = Watchdog::dormant(life, region.clone(), slot);
    let Some(session) = Session::inherit(socket, &lent, &order.target, (region.clone(), slot)) else {
        return ExitCode::Temporary;
    };
    fault::point("worker.after_begin");
    let target = Arc::new(order.target.clone());
    let desk = Some((&region, slot));
    let reuse = alone(&row);
    let row = (*row).clone();
    let (row, watchdog, pace) = (&row, &watchdog, None);
    let run = Run { order: &order, target: &target, book: &book, row, watchdog, reuse, floor: None, notes, desk, pace };
    run.run(session).code()
}

/// The entry of a clerk.
pub fn write_down((birth, clerk): (Birth, Clerk)) -> ExitCode {
    log::speak_as(Kind::Worker);
    let Birth { region, slot, life } = birth;
    let Clerk { order, row, book, result } = clerk;
    announce(&order, &row);
    session::keep_to(&region, slot, Gifts::default());
    let watchdog = Watchdog::dormant(life, region.clone(), slot);
    watchdog.wake();
    let target = Arc::new(order.target.clone());
    let notes = region.slots().notes(slot);
    let (reuse, row) = (alone(&row), (*row).clone());
    let desk = None;
    let (row, watchdog, pace) = (&row, &watchdog, None);
    let run = Run { order: &order, target: &target, book: &book, row, watchdog, reuse, floor: None, notes, desk, pace };
    let state = if result.failed { "FAIL" } else { "DONE" };
    let (output, error) = (result.output.as_deref(), result.error.as_deref());
    let (output, error) = (output.map(str::as_bytes), error.map(str::as_bytes));
    match run.write(None, Record { state, output, error, reason: None }, false) {
        // Nothing was written: the scheduler still has the result.
        Next::Leave(ExitCode::Asked) => ExitCode::Asked,
        Next::Leave(code) => code,
        Next::Run(_) => ExitCode::Temporary,
    }
}

/// Of a worker that takes no second task.
fn alone(row: &TaskRow) -> Reuse {
    Reuse { group: row.group.clone(), max: row.max, executed: 1, started: row.start.clone(), far: None, job: None }
}
