//! The top of a scenario's family, in the launcher's role: it owns the region and one slot, inherits every orphan
//! below it, and sweeps whatever ended before it reaps it.

use crate::marks::{self, Mark};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, getpid};
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::{Start, encode};
use shared::process::spawn::Spawner;
use shared::region::{ProcessKind, Region, SlotHandle, Ticket};
use shared::sys::signal::SignalPipe;
use shared::sys::wait::{self, Child, ProcessEnd};
use shared::sys::{fork, signal};
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use tests::process::{self, Process};

/// The scenarios kill by themselves; the spawner's named points stay unused.
pub const POINTS: [&str; 3] = ["scheduler.before_fork", "scheduler.after_fork", "scheduler.after_transfer"];

#[derive(Debug)]
pub struct Top {
    pub region: Region,
    pub slot: SlotHandle,
    pub spawner: Spawner,
    pub signals: SignalPipe,
}

impl Top {
    /// A region of `limit` slots, one of them the top's own.
    pub fn open(limit: u32) -> Top {
        nix::sys::prctl::set_child_subreaper(true).expect("orphans come to us");
        let region = Region::create(limit).expect("a region");
        let slot = region.slots().reserve().expect("the first slot");
        region.slots().slot_status(slot).open(ProcessKind::Launcher, slot.index(), 0, "top");
        let spawner = Spawner::open(&region, slot, POINTS).expect("a spawner");
        let signals = SignalPipe::open(&[Signal::SIGCHLD, Signal::SIGUSR2]).expect("a signal pipe");
        Top { region, slot, spawner, signals }
    }

    pub fn reserve(&self) -> SlotHandle {
        self.region.slots().reserve().expect("a free slot")
    }

    /// Starts `entry` with the order of its slot.
    pub fn spawn(&self, kind: ProcessKind, entry: fn(Start) -> ExitCode) -> (Child, Ticket) {
        let slot = self.reserve();
        marks::add(Mark::Spawned);
        self.spawner.spawn(slot, kind, "child", &order(slot), entry).expect("a child")
    }

    /// Look, sweep, reap: every descendant of ours that has ended by now.
    pub fn sweep_ended(&self) -> Vec<(Pid, ProcessEnd)> {
        let mut ended = Vec::new();
        while let Some((pid, end)) = wait::any_ended() {
            self.region.sweep(pid);
            wait::reap(pid);
            ended.push((pid, end));
        }
        ended
    }

    /// Waits for the end of one descendant, sweeping it and whoever ends meanwhile.
    pub fn await_end(&self, pid: Pid) -> ProcessEnd {
        tests::wait("a child has ended").telling(|| self.tell()).until(|| {
            let ended = self.sweep_ended();
            ended.into_iter().find(|(ended, _)| *ended == pid).map(|(_, end)| end)
        })
    }

    /// Waits until nothing is left but the top and its slot: no process, no cell, no byte of a payload.
    pub fn expect_nothing_left(&self) {
        tests::wait("only the top is left").telling(|| self.tell()).until(|| {
            self.sweep_ended();
            descendants().is_empty() && self.region.slots().used() == 1
        });
        assert_eq!(self.region.cells_in_use(), 0, "cells still in use: {}", self.tell());
        assert!(self.region.cells_are_wiped(), "bytes of a payload are left: {}", self.tell());
        assert!(self.sweep_ended().is_empty());
        let holders = self.region.slots().holders();
        assert_eq!(holders.iter().map(|holder| holder.handle).collect::<Vec<_>>(), [self.slot]);
    }

    /// The very end: the top's own slot too.
    pub fn close(self) {
        self.expect_nothing_left();
        assert!(self.region.slots().release(self.slot));
        assert_eq!(self.region.slots().used(), 0);
    }

    /// For the message of a failed wait.
    pub fn tell(&self) -> String {
        let holders = self.region.slots().holders();
        let processes: Vec<_> = descendants().iter().map(|p| (p.pid, p.parent, p.zombie)).collect();
        format!(
            "top {}, cells in use {}, wiped {}\nholders {holders:?}\nprocesses (pid, parent, zombie) {processes:?}",
            getpid(),
            self.region.cells_in_use(),
            self.region.cells_are_wiped()
        )
    }
}

/// Every process below this one, zombies too.
pub fn descendants() -> Vec<Process> {
    let mut rest = process::all();
    let mut found = vec![getpid().as_raw()];
    let mut below: Vec<Process> = Vec::new();
    while !found.is_empty() {
        let (more, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|process| found.contains(&process.parent));
        found = more.iter().map(|process| process.pid).collect();
        below.extend(more);
        rest = others;
    }
    below
}

/// kill -9 of a process that is not ours to reap: only while it is somebody's child below us, because its pid may
/// have gone to a stranger since we read it.
pub fn kill_below(pid: Pid, parents: &[Pid]) {
    let is_ours = process::find(pid.as_raw())
        .is_some_and(|process| !process.zombie && parents.contains(&Pid::from_raw(process.parent)));
    if is_ours && kill(pid, Signal::SIGKILL).is_ok() {
        marks::add(Mark::Kills);
    }
}

/// kill -9 of oneself, here.
pub fn die() -> ! {
    let _ = raise(Signal::SIGKILL);
    unreachable!("nobody survives kill -9")
}

/// The parameters of the child in `slot`: long, and different in every byte of the filler from those of any
/// neighbour in space or time.
pub fn order(slot: SlotHandle) -> Value {
    let letter = char::from(b'a' + ((slot.index() * 7 + slot.generation() * 11) % 26) as u8);
    let filler = letter.to_string().repeat(3_900);
    json!({ "slot": slot.index(), "generation": slot.generation(), "filler": filler })
}

/// The bytes that a parent puts in the cell when it does not use the spawner.
pub fn payload(slot: SlotHandle) -> Vec<u8> {
    encode(&order(slot))
}

/// Takes the order, and checks that it is this child's own. False: leave with `BadCell`.
pub fn accept(start: &Start) -> bool {
    match start.accept::<Value>() {
        Ok(found) if found == order(start.slot) => {
            marks::add(Mark::Accepted);
            true
        }
        Ok(_) => {
            marks::add(Mark::Mixed);
            false
        }
        Err(_) => {
            marks::add(Mark::Stale);
            false
        }
    }
}

/// An entry that accepts and then lives as long as its parent.
pub fn accept_and_live(start: Start) -> ExitCode {
    signal::open_to_defaults();
    if !accept(&start) {
        return ExitCode::BadCell;
    }
    live_on(&start)
}

/// An entry that never looks at its cell.
pub fn live_without_accepting(start: Start) -> ExitCode {
    signal::open_to_defaults();
    live_on(&start)
}

/// Until the parent is gone.
pub fn live_on(start: &Start) -> ExitCode {
    await_readable(&start.life, None);
    ExitCode::Asked
}

/// True once `fd` has something to read or is at its end.
pub fn await_readable(fd: &impl AsFd, limit: Option<Duration>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let timeout = limit.map_or(PollTimeout::NONE, |limit| PollTimeout::try_from(limit).expect("a short while"));
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut polled, timeout) {
            Ok(count) => return count > 0,
            Err(Errno::EINTR) => {}
            Err(error) => panic!("cannot poll: {error}"),
        }
    }
}

/// What a child starts with when its parent forks by hand, step by step, instead of through the spawner.
#[derive(Debug)]
pub struct ByHand {
    pub region: Region,
    pub life: PipeReader,
    _breath: PipeWriter,
}

impl ByHand {
    pub fn open(region: &Region) -> ByHand {
        let (life, breath) = std::io::pipe().expect("a pipe");
        ByHand { region: region.clone(), life, _breath: breath }
    }

    pub fn fork(&self, slot: SlotHandle, ticket: Ticket, entry: fn(Start) -> ExitCode) -> Child {
        let life = self.life.try_clone().expect("a descriptor").into();
        let start = Start { region: self.region.clone(), slot, ticket, parent: getpid(), life };
        let keep = [start.life.as_raw_fd(), self.region.as_fd().as_raw_fd()];
        fork::start(entry, start, &keep).expect("a child")
    }
}
