//! Seats and permits: how many connections there are, and how many are being made.
//!
//! A seat is a word that holds the pid of a process with one connection; there are as many as the budget allows, so
//! it cannot be exceeded. A permit is a word of the same kind, of a gate: each server has a gate of its own, with
//! four permits. A connect that finds the server away narrows its gate to one permit, each success widens it: one,
//! two, four. Taking and giving back is one compare-and-swap of a word between 0 and a pid; what a dead process held
//! is given back by whoever sweeps its slots. A gate is claimed by the first who needs it, by writing its key, and
//! kept for the life of the region; where there are more servers than gates, the last ones share.

use super::{Region, layout};
use crate::conninfo::Target;
use nix::unistd::{Pid, getpid};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const FREE: u64 = 0;
/// A gate's width: 0 is all permits, else 1, 2, 3 for one, two, four.
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
pub struct Seat {
    region: Region,
    index: usize,
}

impl Seat {
    /// Names it to the process that is to take it over.
    pub fn place(&self) -> u64 {
        self.index as u64
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        give_back(self.region.words.at(self.index));
    }
}

/// One connect under way; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    region: Region,
    gate: usize,
    index: usize,
}

impl Permit {
    /// The server is away: one at a time.
    pub fn narrow(&self) {
        self.region.words.at(self.gate + layout::GATE_WIDTH).store(NARROW, Relaxed);
    }

    /// The server has let us in.
    pub fn widen(&self) {
        let wider = |width| match width {
            OPEN => None,
            WIDEST.. => Some(OPEN),
            width => Some(width + 1),
        };
        let _ = self.region.words.at(self.gate + layout::GATE_WIDTH).fetch_update(Relaxed, Relaxed, wider);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        give_back(self.region.words.at(self.index));
    }
}

pub(super) fn take_seat(region: &Region) -> Option<Seat> {
    (0..region.seats)
        .map(|index| layout::seat(region.limit, index))
        .find_map(|index| take(region.words.at(index)).then(|| Seat { region: region.clone(), index }))
}

/// From one process's name into another's, by one swap: the budget does not see a moment without it.
pub(super) fn adopt_seat(region: &Region, index: usize, from: Pid) -> Option<Seat> {
    let seats = layout::seat(region.limit, 0)..layout::seat(region.limit, region.seats);
    let word = seats.contains(&index).then(|| region.words.at(index))?;
    let swapped = word.compare_exchange(pid_word(from), pid_word(getpid()), AcqRel, Acquire);
    swapped.ok().map(|_| Seat { region: region.clone(), index })
}

pub(super) fn taken_seats(region: &Region) -> u32 {
    let taken = |index: &u32| region.words.at(layout::seat(region.limit, *index)).load(Acquire) != FREE;
    (0..region.seats).filter(taken).count() as u32
}

pub(super) fn take_permit(region: &Region, server: u64) -> Option<Permit> {
    let gate = gate_of(region, server);
    let width = match region.words.at(gate + layout::GATE_WIDTH).load(Relaxed) {
        OPEN => layout::PERMITS,
        width => 1 << (width - 1).min(2),
    };
    (0..width)
        .map(|index| gate + layout::GATE_PERMITS + index)
        .find_map(|index| take(region.words.at(index)).then(|| Permit { region: region.clone(), gate, index }))
}

/// Everything that `pid` held.
pub(super) fn sweep(region: &Region, pid: Pid) {
    let permits = (0..layout::GATES).flat_map(|gate| {
        (0..layout::PERMITS).map(move |index| layout::gate_start(gate) + layout::GATE_PERMITS + index)
    });
    let seats = (0..region.seats).map(|index| layout::seat(region.limit, index));
    for index in permits.chain(seats) {
        let _ = region.words.at(index).compare_exchange(pid_word(pid), FREE, AcqRel, Acquire);
    }
}

fn gate_of(region: &Region, server: u64) -> usize {
    let first = server as usize % layout::GATES;
    let gates = (0..layout::GATES).map(|step| layout::gate_start((first + step) % layout::GATES));
    let found = gates.into_iter().find(|gate| {
        let key = region.words.at(gate + layout::GATE_KEY);
        match key.compare_exchange(FREE, server, AcqRel, Acquire) {
            Ok(_) => true,
            Err(other) => other == server,
        }
    });
    found.unwrap_or(layout::gate_start(first))
}

fn pid_word(pid: Pid) -> u64 {
    u64::from(pid.as_raw().unsigned_abs())
}

fn take(word: &AtomicU64) -> bool {
    word.load(Relaxed) == FREE && word.compare_exchange(FREE, pid_word(getpid()), AcqRel, Acquire).is_ok()
}

/// Only one's own: a copy in a forked child gives nothing back.
fn give_back(word: &AtomicU64) {
    let _ = word.compare_exchange(pid_word(getpid()), FREE, AcqRel, Acquire);
}

#[cfg(test)]
mod tests {
    use crate::region::Region;
    use nix::unistd::getpid;

    #[test]
    fn there_are_as_many_seats_as_the_budget_and_no_more() {
        let region = Region::with_seats(1, 3).unwrap();
        let mut seats: Vec<_> = std::iter::from_fn(|| region.take_seat()).collect();
        assert_eq!((seats.len(), region.seats()), (3, (3, 3)));
        seats.pop();
        assert_eq!(region.seats(), (3, 2));
        assert!(region.take_seat().is_some());
    }

    #[test]
    fn a_gate_opens_by_one_two_and_four_after_an_outage() {
        let region = Region::create(1).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| region.take_permit(7)).collect();
        assert_eq!(all.len(), 4);
        all[0].narrow();
        assert!(region.take_permit(7).is_none());
        drop(all);
        for width in [1, 2, 4, 4] {
            let held: Vec<_> = std::iter::from_fn(|| region.take_permit(7)).collect();
            assert_eq!(held.len(), width);
            held[0].widen();
        }
    }

    #[test]
    fn servers_do_not_stand_in_each_others_way() {
        let region = Region::create(1).unwrap();
        // The same first place in the table.
        let held: Vec<_> = (0..4).filter_map(|_| region.take_permit(64)).collect();
        assert_eq!(held.len(), 4);
        assert!(region.take_permit(64).is_none() && region.take_permit(128).is_some());
    }

    #[test]
    fn what_a_dead_process_held_is_given_back_by_the_sweep() {
        let region = Region::with_seats(1, 1).unwrap();
        let held = (region.take_seat().unwrap(), region.take_permit(7).unwrap());
        std::mem::forget(held);
        assert!(region.take_seat().is_none());
        region.sweep(getpid());
        assert!(region.take_seat().is_some());
        assert!(region.take_permit(7).is_some());
    }
}
