//! Starting a child in a slot: status, cell, fork, transfer, in the order that leaves nothing behind when interrupted
//! anywhere. Both hops use it: launcher → scheduler, scheduler → worker.
//!
//! The slot was reserved by this process. If we die before the transfer, our own parent sweeps the slot under our
//! pid, and the child dies by its parent-death signal; afterwards the slot stands under the child's pid.

use crate::process::exit_code::ExitCode;
use crate::process::fault;
use crate::process::order::{ForkStart, Start, encode};
use crate::region::{CellError, ProcessKind, Region, SlotHandle, SlotLost, Ticket};
use crate::sys::fork::{self, ForkError};
use crate::sys::wait::Child;
use nix::sys::signal::Signal;
use serde::Serialize;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot hand over the parameters: {0}")]
    Cell(#[from] CellError),
    #[error(transparent)]
    Fork(#[from] ForkError),
    #[error(transparent)]
    Slot(#[from] SlotLost),
    #[error("cannot copy the life pipe: {0}")]
    Pipe(#[from] io::Error),
}

/// Where a process starts its children.
#[derive(Debug)]
pub struct Spawner {
    region: Region,
    /// This process's own slot.
    parent: SlotHandle,
    /// Children read end of file from `life` when `_breath` is closed: when this process is gone.
    life: OwnedFd,
    _breath: OwnedFd,
    points: [&'static str; 3],
}

impl Spawner {
    /// `points`: the fault points before and after the fork, and after the slot is the child's.
    pub fn open(region: &Region, parent: SlotHandle, points: [&'static str; 3]) -> io::Result<Spawner> {
        let (life, breath) = io::pipe()?;
        Ok(Spawner { region: region.clone(), parent, life: life.into(), _breath: breath.into(), points })
    }

    /// Starts `entry` with `order` in its cell. On any error slot and cell are free again.
    pub fn spawn<T: Serialize>(
        &self,
        slot: SlotHandle,
        kind: ProcessKind,
        label: &str,
        order: &T,
        entry: fn(Start) -> ExitCode,
    ) -> Result<(Child, Ticket), SpawnError> {
        self.try_spawn(slot, kind, label, order, entry).inspect_err(|_| {
            self.region.slots().release(slot);
        })
    }

    /// The same, with more for the child: `assemble` makes its argument, and the descriptors in `kept` stay open.
    pub fn spawn_with<T: Serialize, A>(
        &self,
        (slot, kind, label): (SlotHandle, ProcessKind, &str),
        order: &T,
        entry: fn(A) -> ExitCode,
        assemble: impl FnOnce(Start) -> A,
        kept: &[RawFd],
    ) -> Result<(Child, Ticket), SpawnError> {
        self.try_spawn_with((slot, kind, label), order, entry, assemble, kept).inspect_err(|_| {
            self.region.slots().release(slot);
        })
    }

    /// The same as `spawn`, but on an error the slot stays reserved for another try (unless it was lost).
    pub fn try_spawn<T: Serialize>(
        &self,
        slot: SlotHandle,
        kind: ProcessKind,
        label: &str,
        order: &T,
        entry: fn(Start) -> ExitCode,
    ) -> Result<(Child, Ticket), SpawnError> {
        self.try_spawn_with((slot, kind, label), order, entry, |start| start, &[])
    }

    /// Starts `entry` with what the fork itself hands down: nothing is in the cell, and nothing has to be accepted. On any
    /// error the slot is free again.
    pub fn spawn_plain<A>(
        &self,
        (slot, kind, label): (SlotHandle, ProcessKind, &str),
        entry: fn(A) -> ExitCode,
        assemble: impl FnOnce(ForkStart) -> A,
        kept: &[RawFd],
    ) -> Result<Child, SpawnError> {
        let started = || {
            self.open_notes(slot, kind, label);
            let life = self.life.try_clone()?;
            let keep = self.keep(&life, kept);
            let start = ForkStart { region: self.region.clone(), slot, life };
            self.fork_with(slot, entry, assemble(start), &keep)
        };
        started().inspect_err(|_| {
            self.region.slots().release(slot);
        })
    }

    fn try_spawn_with<T: Serialize, A>(
        &self,
        (slot, kind, label): (SlotHandle, ProcessKind, &str),
        order: &T,
        entry: fn(A) -> ExitCode,
        assemble: impl FnOnce(Start) -> A,
        kept: &[RawFd],
    ) -> Result<(Child, Ticket), SpawnError> {
        self.open_notes(slot, kind, label);
        let mut payload = encode(order);
        let filled = self.region.fill(slot, &payload);
        payload.fill(0);
        let ticket = filled?;
        let forked = || {
            let life = self.life.try_clone()?;
            let keep = self.keep(&life, kept);
            let start = Start { region: self.region.clone(), slot, ticket, parent: nix::unistd::getpid(), life };
            self.fork_with(slot, entry, assemble(start), &keep)
        };
        let child = forked().inspect_err(|_| self.region.free(ticket))?;
        Ok((child, ticket))
    }

    fn open_notes(&self, slot: SlotHandle, kind: ProcessKind, label: &str) {
        let started_ms = jiff::Timestamp::now().as_millisecond().max(0) as u64;
        self.region.slots().slot_status(slot).open(kind, self.parent.index(), started_ms, label);
    }

    /// The descriptors that stay open in a child.
    fn keep(&self, life: &OwnedFd, more: &[RawFd]) -> Vec<RawFd> {
        let own = [life.as_raw_fd(), self.region.as_fd().as_raw_fd()];
        own.iter().chain(more).copied().collect()
    }

    fn fork_with<A>(
        &self,
        slot: SlotHandle,
        entry: fn(A) -> ExitCode,
        argument: A,
        keep: &[RawFd],
    ) -> Result<Child, SpawnError> {
        fault::point(self.points[0]);
        let child = fork::start(entry, argument, keep)?;
        fault::point(self.points[1]);
        if let Err(lost) = self.region.slots().transfer(slot, child.pid()) {
            child.signal(Signal::SIGKILL);
            child.reap();
            return Err(lost.into());
        }
        fault::point(self.points[2]);
        Ok(child)
    }
}
