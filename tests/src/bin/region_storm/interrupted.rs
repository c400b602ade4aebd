//! A parent or its child dies between every two steps of starting a child, and exactly there. Whatever the step, the
//! sweep by the top leaves nothing behind.

use crate::marks::{self, Mark};
use crate::top::{self, ByHand, Top, await_readable, die, payload};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::Start;
use shared::region::ProcessKind;
use shared::sys::signal::SignalPipe;
use shared::sys::wait::ProcessEnd;
use std::time::Instant;

/// In the order of a child's start and end. The name says where the parent (or the child itself) dies.
const STEPS: [&str; 13] = [
    "after_reserve",
    "after_notes",
    "after_fill",
    "before_fork",
    "after_fork",
    "child_before_accept",
    "child_before_accept_and_transfer",
    "child_after_accept",
    "after_transfer",
    "after_accepted",
    "after_free",
    "after_sweep_before_reap",
    "after_reap",
];

pub fn run(rounds: u64) -> Value {
    let began = Instant::now();
    let top = Top::open(4);
    for _ in 0..rounds {
        for (number, step) in STEPS.iter().enumerate() {
            marks::set(Mark::Reached, 0);
            marks::set(Mark::Told, number as u64);
            let (child, ticket) = top.spawn(ProcessKind::Scheduler, sub_parent);
            tests::eventually("the sub-parent has its order", || top.region.accepted(ticket));
            top.region.free(ticket);
            let end = top.await_end(child.pid());
            assert_eq!(end, ProcessEnd::Killed(Signal::SIGKILL), "{step}");
            assert_eq!(marks::get(Mark::Reached), number as u64 + 1, "died elsewhere than {step}");
            top.expect_nothing_left();
        }
    }
    assert_eq!(marks::get(Mark::Mixed), 0);
    top.close();
    json!({ "steps": STEPS.len(), "rounds": rounds, "total_ms": began.elapsed().as_millis() as u64 })
}

/// What the spawner does, one call at a time.
fn sub_parent(start: Start) -> ExitCode {
    // Nobody listens to it, but the grandchild's answer would end a process without a handler.
    let _signals = SignalPipe::open(&[Signal::SIGUSR2]).expect("a signal pipe");
    let region = &start.region;
    let by_hand = ByHand::open(region);
    let wanted = STEPS[marks::get(Mark::Told) as usize];
    if !top::accept(&start) {
        return ExitCode::BadCell;
    }
    // The top frees our cell when it has seen the answer; to die before would be another step.
    tests::eventually("our own cell is free", || region.cells_in_use() == 0);

    let slot = region.slots().reserve().expect("a free slot");
    here("after_reserve");
    region.slots().slot_status(slot).open(ProcessKind::Worker, start.slot.index(), 0, "grandchild");
    here("after_notes");
    let ticket = region.fill(slot, &payload(slot)).expect("an empty cell");
    here("after_fill");
    let entry = match wanted {
        "child_before_accept" | "child_before_accept_and_transfer" => dies_before_accept,
        "child_after_accept" => dies_after_accept,
        _ => top::accept_and_live,
    };
    here("before_fork");
    let child = by_hand.fork(slot, ticket, entry);
    here("after_fork");
    if wanted == "child_before_accept_and_transfer" {
        // The child is dead before the slot stands in its name.
        await_readable(&child, None);
    }
    region.slots().transfer(slot, child.pid()).expect("our slot");
    if wanted.starts_with("child_") {
        // Dead, and not reaped by us: it becomes the top's.
        await_readable(&child, None);
        assert_eq!(child.ended(), Some(ProcessEnd::Killed(Signal::SIGKILL)));
        here(wanted);
    }
    here("after_transfer");
    tests::eventually("the grandchild has its order", || region.accepted(ticket));
    here("after_accepted");
    region.free(ticket);
    here("after_free");
    child.signal(Signal::SIGKILL);
    await_readable(&child, None);
    assert_eq!(region.sweep(child.pid()), 1);
    here("after_sweep_before_reap");
    child.reap();
    here("after_reap");
    unreachable!("no step is called {wanted}")
}

/// The end, if this is the step.
fn here(step: &str) {
    let wanted = marks::get(Mark::Told);
    if STEPS[wanted as usize] == step {
        marks::set(Mark::Reached, wanted + 1);
        die();
    }
}

fn dies_before_accept(_: Start) -> ExitCode {
    die()
}

fn dies_after_accept(start: Start) -> ExitCode {
    assert!(top::accept(&start));
    die()
}
