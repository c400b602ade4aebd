//! Cells that are not read, read too late, or not to be read: nothing is run, and nothing stays behind.

use crate::marks::{self, Mark};
use crate::top::{self, ByHand, Top, payload};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::Start;
use shared::region::{ProcessKind, Ticket};
use shared::sys::signal;
use shared::sys::wait::ProcessEnd;

const BAD_CELL: ProcessEnd = ProcessEnd::Exited(ExitCode::BadCell.status());

/// A child is killed before it has looked at its cell.
pub fn killed_before_accept(rounds: u64) -> Value {
    let top = Top::open(2);
    for _ in 0..rounds {
        let (child, ticket) = top.spawn(ProcessKind::Worker, top::live_without_accepting);
        assert_eq!((top.region.slots().used(), top.region.cells_in_use()), (2, 1));
        assert!(!top.region.cells_are_wiped());
        child.signal(Signal::SIGKILL);
        top::await_readable(&child, None);
        assert_eq!(child.ended(), Some(ProcessEnd::Killed(Signal::SIGKILL)));
        assert!(!top.region.accepted(ticket));
        assert_eq!(top.region.sweep(child.pid()), 1);
        // Free as soon as it is swept, while the zombie is still there.
        assert_eq!((top.region.slots().used(), top.region.cells_in_use()), (1, 0));
        assert!(top.region.cells_are_wiped());
        assert_eq!(top.region.sweep(child.pid()), 0);
        child.reap();
        top.expect_nothing_left();
    }
    assert_eq!(marks::get(Mark::Accepted), 0);
    top.close();
    json!({ "rounds": rounds })
}

/// A child stands still before it accepts; its cell is freed and filled for another. It must run nothing, and the
/// other must have its own parameters, whichever of them comes first.
pub fn late_child(rounds: u64) -> Value {
    let top = Top::open(2);
    let by_hand = ByHand::open(&top.region);
    for late_first in (0..rounds).flat_map(|_| [true, false]) {
        let accepted_before = marks::get(Mark::Accepted);
        let slot = top.reserve();
        let stale = top.region.fill(slot, b"\"meant for the late one\"").expect("an empty cell");
        let late = by_hand.fork(slot, stale, stop_then_accept);
        top.region.slots().transfer(slot, late.pid()).expect("our slot");
        await_stopped(late.pid());
        top.region.free(stale);
        assert!(top.region.cells_are_wiped());

        // The other uses the same cell; the slot stays in the late one's name.
        let fresh = top.region.fill(slot, &payload(slot)).expect("a freed cell");
        let other = if late_first {
            late.signal(Signal::SIGCONT);
            assert_eq!(top_end_without_sweep(&late), BAD_CELL);
            by_hand.fork(slot, fresh, top::accept_and_live)
        } else {
            let other = by_hand.fork(slot, fresh, top::accept_and_live);
            tests::eventually("the other has its parameters", || top.region.accepted(fresh));
            late.signal(Signal::SIGCONT);
            assert_eq!(top_end_without_sweep(&late), BAD_CELL);
            other
        };
        tests::eventually("the other has its parameters", || top.region.accepted(fresh));
        // The late one's ticket frees nothing of the other's.
        top.region.free(stale);
        assert!(top.region.accepted(fresh));
        top.region.free(fresh);
        tests::eventually("the other has checked them", || marks::get(Mark::Accepted) == accepted_before + 1);
        other.signal(Signal::SIGKILL);
        top.expect_nothing_left();
    }
    assert_eq!((marks::get(Mark::Stale), marks::get(Mark::Mixed)), (2 * rounds, 0));
    top.close();
    json!({ "stale": 2 * rounds })
}

/// Tickets of another generation, of no cell at all, and a cell that a stray write has hit.
pub fn wrong_ticket() -> Value {
    let top = Top::open(2);
    let by_hand = ByHand::open(&top.region);
    type Forge = fn(Ticket) -> Ticket;
    let wrong: [(&str, Forge); 4] = [
        ("a later generation", |ticket| Ticket { generation: ticket.generation.wrapping_add(1), ..ticket }),
        ("an earlier generation", |ticket| Ticket { generation: ticket.generation.wrapping_sub(1), ..ticket }),
        ("another cell", |ticket| Ticket { index: 0, ..ticket }),
        ("no cell", |ticket| Ticket { index: u32::MAX, ..ticket }),
    ];
    for (what, wrong) in wrong {
        let slot = top.reserve();
        let ticket = top.region.fill(slot, &payload(slot)).expect("an empty cell");
        let child = by_hand.fork(slot, wrong(ticket), top::accept_and_live);
        top.region.slots().transfer(slot, child.pid()).expect("our slot");
        assert_eq!(top.await_end(child.pid()), BAD_CELL, "{what}");
        top.expect_nothing_left();
    }
    let slot = top.reserve();
    let ticket = top.region.fill(slot, &payload(slot)).expect("an empty cell");
    top.region.damage(ticket);
    let child = by_hand.fork(slot, ticket, top::accept_and_live);
    top.region.slots().transfer(slot, child.pid()).expect("our slot");
    assert_eq!(top.await_end(child.pid()), BAD_CELL, "a damaged cell");
    top.expect_nothing_left();
    assert_eq!((marks::get(Mark::Accepted), marks::get(Mark::Mixed)), (0, 0));
    top.close();
    json!({ "refused": marks::get(Mark::Stale) })
}

fn stop_then_accept(start: Start) -> ExitCode {
    signal::open_to_defaults();
    let _ = raise(Signal::SIGSTOP);
    top::accept_and_live(start)
}

fn await_stopped(pid: Pid) {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    tests::eventually("the child stands still", || {
        matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)))
    });
}

/// How it ended; the zombie and its slot stay.
fn top_end_without_sweep(child: &shared::sys::wait::Child) -> ProcessEnd {
    top::await_readable(child, None);
    child.ended().expect("it has ended")
}
