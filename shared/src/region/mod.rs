//! The region: the memory that launcher, schedulers and workers share.
//!
//! A header, the connect limits (who may connect now), then `limit` slots, `limit` cells, and the connection permits (who
//! may be connected). A slot is permission for one process; the cell of the same index carries the parameters of the
//! child that is started in that slot. So a slot that could be reserved always has a cell, and one process at a time, the
//! one that reserved the slot, writes it.
//!
//! Who writes what is told in `slot.rs`, `cell.rs`, `connection_budget.rs`, `rescan.rs` and `lease.rs`, above the words
//! concerned. The region lives as long as the launcher: when the launcher dies, all its processes die with it, and the
//! next launcher makes a new one.

mod batch;
mod cell;
mod connection_budget;
mod connection_receipt;
mod failure_count;
mod layout;
mod leader_server;
mod lease;
#[cfg(test)]
mod model;
mod rescan;
mod result_slot;
mod slot;
mod slot_status;
mod text;

pub use batch::{BATCH_TASKS, BatchWord, ON_WIRE};
pub use cell::{CellError, Ticket};
pub use connection_budget::{ConnectPermit, ConnectionPermit, server_key};
pub use connection_receipt::ConnectionReceipt;
pub use layout::{CELL_PAYLOAD_BYTES, LAYOUT_VERSION};
pub use leader_server::LeaderServer;
pub use lease::HostMoment;
pub use rescan::Rescans;
pub use result_slot::{Code, EndState, TaskKey, TaskResult, TaskTimes};
pub use slot::{Holder, SlotCounter, SlotHandle, SlotLost};
pub use slot_status::{Cancel, Phase, ProcessKind, Request, SlotStatus};

use crate::sys::map::Words;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

/// Clones refer to the same memory; a forked child's copy does too.
#[derive(Clone, Debug)]
pub struct Region {
    words: Words,
    limit: u32,
    connections: u32,
}

impl Region {
    /// With as many connections as its processes can ever need.
    pub fn create(limit: u32) -> io::Result<Region> {
        Region::with_connections(limit, limit.saturating_mul(3) + 2)
    }

    pub fn with_connections(limit: u32, connections: u32) -> io::Result<Region> {
        let words = Words::create("pgmill", layout::total_words(limit, connections))?;
        let region = Region { words, limit, connections };
        region.words.at(layout::HEADER_CONNECTIONS).store(u64::from(connections), Ordering::Relaxed);
        region.words.at(layout::HEADER_LAYOUT_VERSION).store(layout::LAYOUT_VERSION, Ordering::Relaxed);
        region.words.at(layout::HEADER_LIMIT).store(u64::from(limit), Ordering::Relaxed);
        // The magic comes last: whoever sees it sees the rest.
        region.words.at(layout::HEADER_MAGIC).store(layout::MAGIC, Ordering::Release);
        Ok(region)
    }

    /// The region of another program, by its descriptor. Refused unless it is laid out as ours would be.
    pub fn adopt(file: std::fs::File) -> io::Result<Region> {
        let words = Words::open(file)?;
        let head = |index: usize| if index < words.count() { words.at(index).load(Ordering::Acquire) } else { 0 };
        let (magic, version) = (head(layout::HEADER_MAGIC), head(layout::HEADER_LAYOUT_VERSION));
        let (limit, connections) = (head(layout::HEADER_LIMIT) as u32, head(layout::HEADER_CONNECTIONS) as u32);
        if magic != layout::MAGIC || version != layout::LAYOUT_VERSION {
            return Err(io::Error::other(format!(
                "the region has layout {version}, this program supports {}",
                layout::LAYOUT_VERSION
            )));
        }
        if words.count() != layout::total_words(limit, connections) {
            return Err(io::Error::other("the region does not have the size in its header"));
        }
        Ok(Region { words, limit, connections })
    }

    /// The slot that this process holds, if it is this one in this use.
    pub fn own_slot(&self, index: u32, generation: u32) -> Option<SlotHandle> {
        let me = nix::unistd::getpid();
        let mut holders = self.slots().holders().into_iter();
        let own = holders.find(|holder| holder.handle.index() == index && holder.handle.generation() == generation)?;
        (own.pid == me && !own.reserved).then_some(own.handle)
    }

    /// Permission to have one connection; None when the budget is used up.
    pub fn take_connection_permit(&self) -> Option<ConnectionPermit> {
        connection_budget::take_connection_permit(self)
    }

    /// Takes the permit over from a process that has handed its connection to this one.
    pub fn adopt_connection_permit(&self, place: u64, from: nix::unistd::Pid) -> Option<ConnectionPermit> {
        connection_budget::adopt_connection_permit(self, place as usize, from)
    }

    /// How many connections the budget has, and how many are used.
    pub fn connections(&self) -> (u32, u32) {
        (self.connections, connection_budget::used_connections(self))
    }

    /// Permission to connect to a server now; None when enough are at it.
    pub fn take_connect_permit(&self, server: u64) -> Option<ConnectPermit> {
        connection_budget::take_connect_permit(self, server)
    }

    /// By a worker: the number that its scheduler's session holds at this moment.
    pub fn scheduler_proof(&self, worker: SlotHandle) -> Option<i64> {
        let parent = self.slots().slot_status(worker).parent()?;
        let holders = self.slots().holders();
        let scheduler = holders.iter().find(|holder| holder.handle.index() == parent)?;
        self.slots().slot_status(scheduler.handle).proof()
    }

    pub fn slots(&self) -> SlotCounter<'_> {
        SlotCounter::over(&self.words, self.limit)
    }

    /// Fills and publishes the cell of a slot that this process has reserved or whose holder is its child.
    pub fn fill(&self, slot: SlotHandle, payload: &[u8]) -> Result<Ticket, CellError> {
        cell::fill(&self.words, self.limit, slot.index(), payload)
    }

    /// In the child: copies the parameters out and marks them accepted.
    pub fn accept(&self, ticket: Ticket) -> Result<Vec<u8>, CellError> {
        cell::accept(&self.words, self.limit, ticket)
    }

    /// In a child that already runs: whatever its parent has published since, if anything.
    pub fn accept_published(&self, slot: u32) -> Option<Result<Vec<u8>, CellError>> {
        cell::published(&self.words, self.limit, slot).map(|ticket| self.accept(ticket))
    }

    pub fn accepted(&self, ticket: Ticket) -> bool {
        cell::accepted(&self.words, self.limit, ticket)
    }

    /// Wipes the payload and frees the cell, whatever its state; a late child then finds its ticket stale.
    pub fn free(&self, ticket: Ticket) {
        cell::free(&self.words, self.limit, ticket)
    }

    /// Releases everything that `pid` held, wipes the cells of those slots, and says how many slots came free.
    /// Call between looking at the end of `pid` and reaping it.
    pub fn sweep(&self, pid: nix::unistd::Pid) -> usize {
        connection_budget::sweep(self, pid);
        let freed = self.slots().sweep(pid, |index| cell::wipe(&self.words, self.limit, index));
        debug_assert!(freed as u32 <= self.limit);
        freed
    }

    /// Overwrites one word of a cell's payload, as a stray write would. For tests of the checksum.
    #[doc(hidden)]
    pub fn damage(&self, ticket: Ticket) {
        let word = self.words.at(layout::cell_start(self.limit, ticket.index) + layout::CELL_PAYLOAD);
        word.fetch_xor(0xFF, Ordering::SeqCst);
    }

    /// How many cells still hold something.
    pub fn cells_in_use(&self) -> usize {
        (0..self.limit).filter(|index| cell::in_use(&self.words, self.limit, *index)).count()
    }

    /// True if no byte of any payload is left: what a core dump of the region would show.
    pub fn cells_are_wiped(&self) -> bool {
        (0..self.limit).all(|index| {
            let start = layout::cell_start(self.limit, index);
            (layout::CELL_PAYLOAD..layout::CELL_WORDS).all(|i| self.words.at(start + i).load(Ordering::Relaxed) == 0)
        })
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}
