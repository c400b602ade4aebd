//! Connection permits and connect permits: how many connections exist, and how many are being made.
//!
//! A connection permit is a word that holds the pid of a process with one connection; there are as many as the budget
//! allows, so it cannot be exceeded. A connect permit is a word of the same kind: each server has a limit of its own,
//! with four permits. A connect that finds the server away narrows its limit to one permit, each success widens it: one,
//! two, four. Taking and giving back is one compare-and-swap of a word between 0 and a pid; what a dead process held is
//! given back by whoever sweeps its slots. A limit is claimed by the first process that needs it, by writing its key, and
//! kept for the life of the region; where there are more servers than limits, the last ones share.

use super::{Region, layout};
use crate::conninfo::Target;
use nix::unistd::{Pid, getpid};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const FREE: u64 = 0;
/// A limit's width: 0 is all permits, else 1, 2, 3 for one, two, four.
const OPEN: u64 = 0;
const NARROW: u64 = 1;
const WIDEST: u64 = 3;

/// Servers are told apart by where they are, in the order of the conninfo.
pub fn server_key(target: &Target) -> u64 {
    let mut hasher = DefaultHasher::new();
    target.places.iter().for_each(|place| place.to_string().hash(&mut hasher));
    hasher.finish().max(1)
}

/// One connection of the budget; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    region: Region,
    index: usize,
}

impl ConnectionPermit {
    /// Names it to the process that is to take it over.
    pub fn place(&self) -> u64 {
        self.index as u64
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        free(self.region.words.at(self.index));
    }
}

/// One connect under way; given back when dropped.
#[derive(Debug)]
pub struct ConnectPermit {
    region: Region,
    limit: usize,
    index: usize,
}

impl ConnectPermit {
    /// The server is away: one at a time.
    pub fn narrow(&self) {
        self.region.words.at(self.limit + layout::CONNECT_LIMIT_WIDTH).store(NARROW, Relaxed);
    }

    /// The server has let us in.
    pub fn widen(&self) {
        let wider = |width| match width {
            OPEN => None,
            WIDEST.. => Some(OPEN),
            width => Some(width + 1),
        };
        let _ = self.region.words.at(self.limit + layout::CONNECT_LIMIT_WIDTH).fetch_update(Relaxed, Relaxed, wider);
    }
}

impl Drop for ConnectPermit {
    fn drop(&mut self) {
        free(self.region.words.at(self.index));
    }
}

pub(super) fn take_connection_permit(region: &Region) -> Option<ConnectionPermit> {
    (0..region.connections)
        .map(|index| layout::connection_start(region.limit, index))
        .find_map(|index| claim(region.words.at(index)).then(|| ConnectionPermit { region: region.clone(), index }))
}

/// From one process's name into another's, by one swap: the budget does not see a moment without it.
pub(super) fn adopt_connection_permit(region: &Region, index: usize, from: Pid) -> Option<ConnectionPermit> {
    let connections =
        layout::connection_start(region.limit, 0)..layout::connection_start(region.limit, region.connections);
    let word = connections.contains(&index).then(|| region.words.at(index))?;
    let swapped = word.compare_exchange(pid_word(from), pid_word(getpid()), AcqRel, Acquire);
    swapped.ok().map(|_| ConnectionPermit { region: region.clone(), index })
}

pub(super) fn used_connections(region: &Region) -> u32 {
    let taken = |index: &u32| region.words.at(layout::connection_start(region.limit, *index)).load(Acquire) != FREE;
    (0..region.connections).filter(taken).count() as u32
}

pub(super) fn take_connect_permit(region: &Region, server: u64) -> Option<ConnectPermit> {
    let limit = connect_limit_of(region, server);
    let width = match region.words.at(limit + layout::CONNECT_LIMIT_WIDTH).load(Relaxed) {
        OPEN => layout::CONNECT_PERMITS,
        width => 1 << (width - 1).min(2),
    };
    (0..width)
        .map(|index| limit + layout::CONNECT_LIMIT_PERMITS + index)
        .find_map(|index| claim(region.words.at(index)).then(|| ConnectPermit { region: region.clone(), limit, index }))
}

/// Everything that `pid` held.
pub(super) fn sweep(region: &Region, pid: Pid) {
    let permits = (0..layout::CONNECT_LIMITS).flat_map(|limit| {
        (0..layout::CONNECT_PERMITS)
            .map(move |index| layout::connect_limit_start(limit) + layout::CONNECT_LIMIT_PERMITS + index)
    });
    let connections = (0..region.connections).map(|index| layout::connection_start(region.limit, index));
    for index in permits.chain(connections) {
        let _ = region.words.at(index).compare_exchange(pid_word(pid), FREE, AcqRel, Acquire);
    }
}

fn connect_limit_of(region: &Region, server: u64) -> usize {
    let first = server as usize % layout::CONNECT_LIMITS;
    let limits =
        (0..layout::CONNECT_LIMITS).map(|step| layout::connect_limit_start((first + step) % layout::CONNECT_LIMITS));
    let found = limits.into_iter().find(|limit| {
        let key = region.words.at(limit + layout::CONNECT_LIMIT_KEY);
        match key.compare_exchange(FREE, server, AcqRel, Acquire) {
            Ok(_) => true,
            Err(other) => other == server,
        }
    });
    found.unwrap_or(layout::connect_limit_start(first))
}

fn pid_word(pid: Pid) -> u64 {
    u64::from(pid.as_raw().unsigned_abs())
}

fn claim(word: &AtomicU64) -> bool {
    word.load(Relaxed) == FREE && word.compare_exchange(FREE, pid_word(getpid()), AcqRel, Acquire).is_ok()
}

/// Only one's own: a copy in a forked child gives nothing back.
fn free(word: &AtomicU64) {
    let _ = word.compare_exchange(pid_word(getpid()), FREE, AcqRel, Acquire);
}

#[cfg(test)]
mod tests {
    use crate::region::Region;
    use nix::unistd::getpid;

    #[test]
    fn there_are_as_many_connections_as_the_budget_and_no_more() {
        let region = Region::with_connections(1, 3).unwrap();
        let mut connections: Vec<_> = std::iter::from_fn(|| region.take_connection_permit()).collect();
        assert_eq!((connections.len(), region.connections()), (3, (3, 3)));
        connections.pop();
        assert_eq!(region.connections(), (3, 2));
        assert!(region.take_connection_permit().is_some());
    }

    #[test]
    fn a_limit_opens_by_one_two_and_four_after_an_outage() {
        let region = Region::create(1).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| region.take_connect_permit(7)).collect();
        assert_eq!(all.len(), 4);
        all[0].narrow();
        assert!(region.take_connect_permit(7).is_none());
        drop(all);
        for width in [1, 2, 4, 4] {
            let held: Vec<_> = std::iter::from_fn(|| region.take_connect_permit(7)).collect();
            assert_eq!(held.len(), width);
            held[0].widen();
        }
    }

    #[test]
    fn servers_do_not_stand_in_each_others_way() {
        let region = Region::create(1).unwrap();
        // The same first place in the table.
        let held: Vec<_> = (0..4).filter_map(|_| region.take_connect_permit(64)).collect();
        assert_eq!(held.len(), 4);
        assert!(region.take_connect_permit(64).is_none() && region.take_connect_permit(128).is_some());
    }

    #[test]
    fn what_a_dead_process_held_is_given_back_by_the_sweep() {
        let region = Region::with_connections(1, 1).unwrap();
        let held = (region.take_connection_permit().unwrap(), region.take_connect_permit(7).unwrap());
        std::mem::forget(held);
        assert!(region.take_connection_permit().is_none());
        region.sweep(getpid());
        assert!(region.take_connection_permit().is_some());
        assert!(region.take_connect_permit(7).is_some());
    }
}
