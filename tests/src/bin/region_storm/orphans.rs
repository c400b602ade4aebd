//! A killed parent takes its whole family with it: by the parent-death signal, and by the life pipe when that signal
//! is gone. The family hangs below the top by one process more, so that the top can watch all of it die:
//!
//!     top ─▶ head (killed) ─▶ child ─▶ grandchild
//!                          └▶ stubborn child, without a parent-death signal

use crate::marks::{self, Mark};
use crate::top::{self, POINTS, Top, order};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::Start;
use shared::process::spawn::Spawner;
use shared::region::ProcessKind;
use shared::sys::signal;
use shared::sys::wait::ProcessEnd;
use std::time::{Duration, Instant};

const GONE_WITHIN: Duration = Duration::from_secs(1);

pub fn run(rounds: u64) -> Value {
    let top = Top::open(5);
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        let accepted = marks::get(Mark::Accepted);
        let (head, _) = top.spawn(ProcessKind::Launcher, head);
        tests::wait("four are alive").telling(|| top.tell()).until(|| marks::get(Mark::Accepted) == accepted + 4);
        assert_eq!((top.region.slots().used(), top::descendants().len()), (5, 4));
        let stubborn = Pid::from_raw(marks::get(Mark::Told) as i32);

        let killed_at = Instant::now();
        head.signal(Signal::SIGKILL);
        let mut ends = Vec::new();
        tests::wait("all four have ended").telling(|| top.tell()).until(|| {
            ends.extend(top.sweep_ended());
            ends.len() == 4
        });
        slowest = slowest.max(killed_at.elapsed());
        assert!(slowest < GONE_WITHIN, "the family outlived its head by {slowest:?}");
        for (pid, end) in ends {
            // The stubborn one saw end of file on its life pipe, and left by itself.
            let by_pipe = pid == stubborn;
            assert_eq!(end, if by_pipe { ProcessEnd::Exited(0) } else { ProcessEnd::Killed(Signal::SIGKILL) }, "{pid}");
        }
        top.expect_nothing_left();
    }
    top.close();
    json!({ "rounds": rounds, "slowest_ms": slowest.as_millis() as u64 })
}

fn head(start: Start) -> ExitCode {
    spawn_below(&start, &[child, stubborn])
}

fn child(start: Start) -> ExitCode {
    spawn_below(&start, &[grandchild])
}

/// Does not look at its life pipe, whose end comes a moment before the parent-death signal.
fn grandchild(start: Start) -> ExitCode {
    signal::open_to_defaults();
    if !top::accept(&start) {
        return ExitCode::BadCell;
    }
    nix::unistd::pause();
    ExitCode::Permanent
}

fn stubborn(start: Start) -> ExitCode {
    signal::open_to_defaults();
    nix::sys::prctl::set_pdeathsig(None).expect("no parent-death signal");
    marks::set(Mark::Told, getpid().as_raw() as u64);
    if !top::accept(&start) {
        return ExitCode::BadCell;
    }
    top::live_on(&start)
}

/// Starts the entries and lives until it is killed. Their signal means nothing to it.
fn spawn_below(start: &Start, entries: &[fn(Start) -> ExitCode]) -> ExitCode {
    let _signals = signal::SignalPipe::open(&[Signal::SIGUSR2]).expect("a signal pipe");
    let spawner = Spawner::open(&start.region, start.slot, POINTS).expect("a spawner");
    for entry in entries {
        let slot = start.region.slots().reserve().expect("a free slot");
        spawner.spawn(slot, ProcessKind::Worker, "below", &order(slot), *entry).expect("a child");
    }
    if !top::accept(start) {
        return ExitCode::BadCell;
    }
    loop {
        nix::unistd::pause();
    }
}
