//! Starting a child in a slot: notes, cell, fork, hand-over, in the order that leaves nothing behind when interrupted
//! anywhere. Both hops use it: launcher → scheduler, scheduler → worker.
//!
//! The slot was reserved by this process. If we die before the hand-over, our own parent sweeps the slot under our
//! pid, and the child dies by its parent-death signal; afterwards the slot stands under the child's pid.

use crate::process::exit_code::ExitCode;
use crate::process::fault;
use crate::process::order::{Birth, Gifts, Start, encode};
use crate::region::{CellError, Kind, Region, SlotHandle, SlotLost, Ticket};
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
pub struct Nursery {
    region: Region,
    /// This process's own slot.
    parent: SlotHandle,
    /// Children read end of file from `life` when `_breath` is closed: when this process is gone.
    life: OwnedFd,
    _breath: OwnedFd,
    points: [&'static str; 3],
}

impl Nursery {
    /// `points`: the fault points before and after the fork, and after the slot is the child's.
    pub fn open(region: &Region, parent: SlotHandle, points: [&'static str; 3]) -> io::Result<Nursery> {
        let (life, breath) = io::pipe()?;
        Ok(Nursery { region: region.clone(), parent, life: life.into(), _breath: breath.into(), points })
    }

    /// Starts `entry` with `order` in its cell. On any error slot and cell are free again.
    pub fn spawn<T: Serialize>(
        &self,
        slot: SlotHandle,
        kind: Kind,
        label: &str,
        order: &T,
        entry: fn(Start) -> ExitCode,
    ) -> Result<(Child, Ticket), SpawnError> {
        self.try_spawn(slot, kind, label, order, entry).inspect_err(|_| {
            self.region.slots().release(slot);
        })
    }

    /// The same, with descriptors for the child. Ours are closed in any case.
    pub fn spawn_with<T: Serialize>(
        &self,
        slot: SlotHandle,
        kind: Kind,
        label: &str,
        order: &T,
        entry: fn(Start) -> ExitCode,
        gifts: Gifts,
    ) -> Result<(Child, Ticket), SpawnError> {
        self.try_spawn_with(slot, kind, label, order, entry, gifts).inspect_err(|_| {
            self.region.slots().release(slot);
        })
    }

    /// The same, but on an error the slot stays reserved for another try (unless it was lost).
    pub fn try_spawn<T: Serialize>(
        &self,
        slot: SlotHandle,
        kind: Kind,
        label: &str,
        order: &T,
        entry: fn(Start) -> ExitCode,
    ) -> Result<(Child, Ticket), SpawnError> {
        self.try_spawn_with(slot, kind, label, order, entry, Gifts::default())
    }

    /// Starts `entry` with what the fork itself hands down: nothing stands in the cell, and nothing is to be accepted. On
    /// any error the slot is free again.
    pub fn spawn_plain<A>(
        &self,
        slot: SlotHandle,
        kind: Kind,
        label: &str,
        entry: fn((Birth, A)) -> ExitCode,
        argument: A,
        kept: &[RawFd],
    ) -> Result<Child, SpawnError> {
        let born = || {
            let started_ms = jiff::Timestamp::now().as_millisecond().max(0) as u64;
            self.region.slots().notes(slot).open(kind, self.parent.index(), started_ms, label);
            let life = self.life.try_clone()?;
            let mut keep = vec![life.as_raw_fd(), self.region.as_fd().as_raw_fd()];
            keep.extend_from_slice(kept);
            let birth = Birth { region: self.region.clone(), slot, life };
            self.fork_with(slot, entry, (birth, argument), &keep)
        };
        born().inspect_err(|_| {
            self.region.slots().release(slot);
        })
    }

    fn try_spawn_with<T: Serialize>(
        &self,
        slot: SlotHandle,
        kind: Kind,
        label: &str,
        order: &T,
        entry: fn(Start) -> ExitCode,
        gifts: Gifts,
    ) -> Result<(Child, Ticket), SpawnError> {
        let started_ms = jiff::Timestamp::now().as_millisecond().max(0) as u64;
        self.region.slots().notes(slot).open(kind, self.parent.index(), started_ms, label);
        let mut payload = encode(order);
        let filled = self.region.fill(slot, &payload);
        payload.fill(0);
        let ticket = filled?;
        let child = self.fork(slot, ticket, entry, gifts).inspect_err(|_| self.region.free(ticket))?;
        Ok((child, ticket))
    }

    fn fork(
        &self,
        slot: SlotHandle,
        ticket: Ticket,
        entry: fn(Start) -> ExitCode,
        gifts: Gifts,
    ) -> Result<Child, SpawnError> {
        let life = self.life.try_clone()?;
        let mut keep = vec![life.as_raw_fd(), self.region.as_fd().as_raw_fd()];
        keep.extend([&gifts.lent, &gifts.back].into_iter().flatten().map(AsRawFd::as_raw_fd));
        let start = Start { region: self.region.clone(), slot, ticket, parent: nix::unistd::getpid(), life, gifts };
        self.fork_with(slot, entry, start, &keep)
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
        if let Err(lost) = self.region.slots().hand_over(slot, child.pid()) {
            child.signal(Signal::SIGKILL);
            child.reap();
            return Err(lost.into());
        }
        fault::point(self.points[2]);
        Ok(child)
    }
}
