//! Tasks whose beginning the scheduler writes down, and ends that it could not write.
//!
//! An errand's worker is handed everything by the fork: the row, the books, and the socket of a connection, or else it
//! connects and lets the scheduler know on which backend its task is to begin. It runs the input as any worker
//! does; a short and plain result goes to its parent, which writes down many at once, and anything else it writes
//! itself. A clerk is a worker that runs nothing: it writes one result that the scheduler could not write together
//! with the others, because the row was locked, has come to repeat, or the database refused it.

use crate::book::{Book, Record, Reuse, TaskRow};
use crate::execute::{Next, Run, announce, not_begun, stumble};
use crate::session;
use crate::watchdog::Watchdog;
use crate::wire::Session;
use shared::conninfo::Target;
use shared::log;
use shared::process::begin_channel::{self, Reply};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::{Birth, Gifts, Lent, WorkerOrder};
use shared::region::{HandedIn, Kind, Region, SlotHandle};
use shared::sys::child_allocator;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// What all workers of a queue are handed alike. The order names no task: that is the row's.
#[derive(Debug)]
pub struct Kit {
    pub order: WorkerOrder,
    pub target: Arc<Target>,
    pub book: Rc<Book>,
}

/// What an errand's worker is handed: what its parent has, as it was when it forked.
#[derive(Debug)]
pub struct Errand {
    pub kit: Rc<Kit>,
    pub row: Rc<TaskRow>,
    pub lent: Rc<Lent>,
    pub socket: OwnedFd,
}

/// What the worker of an errand is handed that has a connection of its own.
#[derive(Debug)]
pub struct OwnErrand {
    pub kit: Rc<Kit>,
    pub row: Rc<TaskRow>,
    /// Where it reports.
    pub scheduler: OwnedFd,
}

/// What a clerk is handed.
#[derive(Debug)]
pub struct Clerk {
    pub kit: Rc<Kit>,
    pub row: Rc<TaskRow>,
    pub result: HandedIn,
}

/// The entry of an errand's worker.
pub fn run((birth, errand): (Birth, &Errand)) -> ExitCode {
    child_allocator::activate();
    log::speak_as(Kind::Worker);
    let Birth { region, slot, life } = birth;
    let Errand { kit, row, lent, socket } = errand;
    announce(&kit.order, row);
    session::keep_to(&region, slot, Gifts::default());
    fault::point("worker.before_noting");
    region.slots().notes(slot).set_running(row.task, row.attempt, lent.backend);
    let watchdog = Watchdog::dormant(life, region.clone(), slot);
    let Ok(socket) = socket.try_clone() else { return ExitCode::Temporary };
    let Some(session) = Session::inherit(socket, lent, &kit.target, (region.clone(), slot)) else {
        return ExitCode::Temporary;
    };
    go(kit, row, session, &watchdog, (&region, slot))
}

/// The entry of an errand's worker that has a connection of its own.
pub fn run_own((birth, errand): (Birth, &OwnErrand)) -> ExitCode {
    child_allocator::activate();
    log::speak_as(Kind::Worker);
    let Birth { region, slot, life } = birth;
    let OwnErrand { kit, row, scheduler } = errand;
    announce(&kit.order, row);
    session::keep_to(&region, slot, Gifts::default());
    let watchdog = Watchdog::dormant(life, region.clone(), slot);
    let (mut session, dressed) = match session::open_for(&kit.order, row) {
        Ok(opened) => opened,
        Err(error) => return stumble(&region, slot, row.task, &error, error.server()),
    };
    if session.is_encrypted() {
        // An answer that has been decrypted already may be waited for: no time to wake it later.
        watchdog.wake();
    }
    fault::point("worker.before_begin");
    // Before the row can say so: whoever finds this worker dead must know its backend.
    region.slots().notes(slot).set_running(row.task, row.attempt, session.backend_pid());
    match begin_channel::ask_to_begin(scheduler, session.backend_pid()) {
        Some(Reply::Begun) => {}
        Some(Reply::Yourself) => {
            // That may take as long as somebody holds the row.
            watchdog.wake();
            match kit.book.begin(&mut session, row.task, row.attempt) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    shared::debug!("the task is no longer ours", task = row.task);
                    session.close();
                    return ExitCode::Asked;
                }
                Err(error) => return not_begun(&region, slot, &kit.order, &mut session, error),
            }
        }
        None => {
            session.close();
            return ExitCode::Temporary;
        }
    }
    let row = &TaskRow { dressed, ..(**row).clone() };
    go(kit, row, session, &watchdog, (&region, slot))
}

/// Its task has begun.
fn go(kit: &Kit, row: &TaskRow, session: Session, watchdog: &Watchdog, desk: (&Region, SlotHandle)) -> ExitCode {
    fault::point("worker.after_begin");
    let Kit { order, target, book } = kit;
    let (notes, desk) = (desk.0.slots().notes(desk.1), Some(desk));
    let run = Run { order, target, book, row, watchdog, reuse: alone(row), floor: None, notes, desk, pace: None };
    run.run(session).code()
}

/// The entry of a clerk.
pub fn write_down((birth, clerk): (Birth, &Clerk)) -> ExitCode {
    log::speak_as(Kind::Worker);
    let Birth { region, slot, life } = birth;
    let Clerk { kit, row, result } = clerk;
    let Kit { order, target, book } = &**kit;
    announce(order, row);
    session::keep_to(&region, slot, Gifts::default());
    let watchdog = Watchdog::dormant(life, region.clone(), slot);
    watchdog.wake();
    let notes = region.slots().notes(slot);
    let (desk, reuse, watchdog, pace) = (None, alone(row), &watchdog, None);
    let run = Run { order, target, book, row, watchdog, reuse, floor: None, notes, desk, pace };
    let state = if result.failed { "FAIL" } else { "DONE" };
    let (output, error) = (result.output.as_deref(), result.error.as_deref());
    let (output, error) = (output.map(str::as_bytes), error.map(str::as_bytes));
    match run.write(None, Record { state, output, error, reason: None, code: None }, false) {
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
