//! Signals merge and carry nothing.

use crate::marks::{self, Mark};
use crate::top::{self, Top, await_readable, order};
use nix::sys::signal::Signal;
use nix::unistd::getpid;
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::{Start, encode};
use shared::process::spawn::Spawner;
use shared::region::{ProcessKind, Ticket};
use shared::sys::fork;
use shared::sys::signal::{self, SignalPipe};
use shared::sys::wait::{Child, ProcessEnd};
use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

const ACK_TIMEOUT: Duration = Duration::from_secs(10);

struct Gated {
    start: Start,
    gate: PipeReader,
}

/// Many children answer in the same moment. However few wakeups come of it, all answers are seen.
pub fn all_acknowledge_at_once(children: u64) -> Value {
    let mut top = Top::open(children as u32 + 1);
    let (gate, opener) = std::io::pipe().expect("a pipe");
    let young: Vec<(Child, Ticket)> = (0..children).map(|_| start_gated(&top, &gate)).collect();
    assert!(top.signals.received().is_empty(), "nobody was let through yet");
    assert_eq!(u64::from(top.region.slots().used()), children + 1);

    let began = Instant::now();
    drop(opener);
    let mut wakeups = 0;
    let mut waiting: Vec<Ticket> = young.iter().map(|(_, ticket)| *ticket).collect();
    while !waiting.is_empty() {
        let left = ACK_TIMEOUT.saturating_sub(began.elapsed());
        assert!(!left.is_zero(), "{} answers not seen after {ACK_TIMEOUT:?} and {wakeups} wakeups", waiting.len());
        // No other pass than after a wake-up: a lost one shows as a time-out.
        if await_readable(&top.signals, Some(left)) && top.signals.received().contains(&Signal::SIGUSR2) {
            wakeups += 1;
            let (accepted, others): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|ticket| top.region.accepted(*ticket));
            accepted.into_iter().for_each(|ticket| top.region.free(ticket));
            waiting = others;
        }
    }
    let all_ms = began.elapsed().as_millis() as u64;
    assert!((1..=children).contains(&wakeups));
    tests::eventually("all children have checked their orders", || marks::get(Mark::Accepted) == children);
    assert_eq!((top.region.cells_in_use(), top.region.cells_are_wiped()), (0, true));

    young.iter().for_each(|(child, _)| child.signal(Signal::SIGKILL));
    top.close();
    json!({ "children": children, "wakeups": wakeups, "all_ms": all_ms })
}

fn start_gated(top: &Top, gate: &PipeReader) -> (Child, Ticket) {
    let slot = top.reserve();
    let ticket = top.region.fill(slot, &encode(&order(slot))).expect("an empty cell");
    let gate = gate.try_clone().expect("a descriptor");
    // This child has no life pipe of its own: the pipe of the test does for it.
    let life = gate.try_clone().expect("a descriptor").into();
    let start = Start { region: top.region.clone(), slot, ticket, parent: getpid(), life };
    let keep = [gate.as_raw_fd(), start.life.as_raw_fd(), top.region.as_fd().as_raw_fd()];
    let child = fork::start(gated, Gated { start, gate }, &keep).expect("a child");
    top.region.slots().transfer(slot, child.pid()).expect("our slot");
    (child, ticket)
}

fn gated(mut gated: Gated) -> ExitCode {
    signal::open_to_defaults();
    let _ = gated.gate.read(&mut [0u8]);
    if !top::accept(&gated.start) {
        return ExitCode::BadCell;
    }
    nix::unistd::pause();
    ExitCode::Asked
}

/// The top listens to SIGUSR2, its child does not, its grandchild does again. The grandchild hears it.
pub fn signal_pipe_of_a_grandchild() -> Value {
    let top = Top::open(3);
    let (child, ticket) = top.spawn(ProcessKind::Scheduler, deaf_parent);
    tests::eventually("the child has its order", || top.region.accepted(ticket));
    top.region.free(ticket);
    let end = top.await_end(child.pid());
    assert_eq!(end, ProcessEnd::Exited(ExitCode::Asked.status()), "the grandchild did not get its signal");
    top.close();
    json!({ "heard": true })
}

fn deaf_parent(start: Start) -> ExitCode {
    signal::open_to_defaults();
    if !top::accept(&start) {
        return ExitCode::BadCell;
    }
    let spawner = Spawner::open(&start.region, start.slot, top::POINTS).expect("a spawner");
    let slot = start.region.slots().reserve().expect("a free slot");
    let (child, ticket) =
        spawner.spawn(slot, ProcessKind::Worker, "listener", &order(slot), listener).expect("a child");
    tests::eventually("the grandchild listens", || start.region.accepted(ticket) || child.ended().is_some());
    child.signal(Signal::SIGUSR2);
    await_readable(&child, None);
    let end = child.ended();
    start.region.sweep(child.pid());
    child.reap();
    if end == Some(ProcessEnd::Exited(ExitCode::Asked.status())) {
        return ExitCode::Asked;
    }
    eprintln!("the grandchild ended with {end:?}");
    ExitCode::Permanent
}

fn listener(start: Start) -> ExitCode {
    let mut signals = SignalPipe::open(&[Signal::SIGUSR2]).expect("a signal pipe");
    // Our parent is deaf, and SIGUSR2 would end it: the cell says enough.
    if start.region.accept(start.ticket).is_err() {
        return ExitCode::BadCell;
    }
    await_readable(&signals, Some(Duration::from_secs(10)));
    if signals.received() == [Signal::SIGUSR2] { ExitCode::Asked } else { ExitCode::Permanent }
}
