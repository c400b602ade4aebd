//! Slots: one atomic word each, and no counter beside them.
//!
//! A word is (pid, generation, state). Every change is one compare-and-swap:
//!
//! ```text
//!     FREE ──reserve──▶ RESERVED (the parent's pid) ──transfer──▶ HELD (the child's pid) ──▶ FREE
//! ```
//!
//! `reserve` raises the generation, so a handle of an earlier use never matches again. The parent reserves before it
//! forks and hands over right after it; whoever reaps a process releases what that process held. `used` counts words
//! that are not FREE: a separate number would keep the slot of a killed process for ever.
//!
//! Interrupted anywhere, the words say who must be dead for a slot to come free: before the hand-over the parent
//! (its own parent sweeps it), afterwards the child (its parent, or the launcher as subreaper, sweeps it).

use super::layout;
use super::slot_status::SlotStatus;
use crate::sys::map::Words;
use nix::unistd::{Pid, getpid};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

const FREE: u64 = 0;
const RESERVED: u64 = 1;
const HELD: u64 = 2;
const STATE_MASK: u64 = 0b11;
const GENERATION_MASK: u64 = (1 << 30) - 1;

/// A slot in one of its uses. Stale once the slot has been released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotHandle {
    index: u32,
    generation: u32,
}

impl SlotHandle {
    pub fn index(self) -> u32 {
        self.index
    }

    pub fn generation(self) -> u32 {
        self.generation
    }
}

#[derive(Debug, thiserror::Error)]
#[error("slot {0} does not belong to this process any more")]
pub struct SlotLost(pub u32);

/// One held or reserved slot, as seen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub handle: SlotHandle,
    pub pid: Pid,
    pub reserved: bool,
}

#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn new(pid: Pid, generation: u32, state: u64) -> Word {
        Word((pid.as_raw() as u32 as u64) << 32 | (u64::from(generation) & GENERATION_MASK) << 2 | state)
    }

    fn free(generation: u32) -> Word {
        Word::new(Pid::from_raw(0), generation, FREE)
    }

    fn pid(self) -> Pid {
        Pid::from_raw((self.0 >> 32) as i32)
    }

    fn generation(self) -> u32 {
        (self.0 >> 2 & GENERATION_MASK) as u32
    }

    fn state(self) -> u64 {
        self.0 & STATE_MASK
    }
}

/// The slots of a region.
#[derive(Clone, Copy, Debug)]
pub struct SlotCounter<'a> {
    words: &'a Words,
    limit: u32,
}

impl<'a> SlotCounter<'a> {
    pub(super) fn over(words: &'a Words, limit: u32) -> SlotCounter<'a> {
        SlotCounter { words, limit }
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How many slots are reserved or held at this moment.
    pub fn used(&self) -> u32 {
        (0..self.limit).filter(|index| self.load(*index).state() != FREE).count() as u32
    }

    /// Takes a free slot in this process's name; None when there is none.
    pub fn reserve(&self) -> Option<SlotHandle> {
        let me = getpid();
        (0..self.limit).find_map(|index| {
            let seen = self.load(index);
            let generation = ((u64::from(seen.generation()) + 1) & GENERATION_MASK) as u32;
            let taken = seen.state() == FREE && self.swap(index, seen, Word::new(me, generation, RESERVED));
            taken.then_some(SlotHandle { index, generation })
        })
    }

    /// By the launcher: so many schedulers wait for a slot. Workers leave them the next ones that come free.
    pub fn set_wanted(&self, count: u32) {
        self.words.at(layout::HEADER_WANTED).store(u64::from(count), Release);
    }

    /// How many schedulers wait for a slot.
    pub fn wanted(&self) -> u32 {
        u32::try_from(self.words.at(layout::HEADER_WANTED).load(Acquire)).unwrap_or(u32::MAX)
    }

    /// How many free slots workers may have.
    pub fn for_workers(&self) -> u32 {
        (self.limit - self.used()).saturating_sub(self.wanted())
    }

    /// Gives a slot that this process reserved to `child`.
    pub fn transfer(&self, slot: SlotHandle, child: Pid) -> Result<(), SlotLost> {
        let mine = Word::new(getpid(), slot.generation, RESERVED);
        if self.swap(slot.index, mine, Word::new(child, slot.generation, HELD)) {
            Ok(())
        } else {
            Err(SlotLost(slot.index))
        }
    }

    /// Takes a held slot back into this process's name, so that it survives its dead holder: for a restart that
    /// must not lose its slot to somebody else.
    pub fn take_back(&self, slot: SlotHandle, holder: Pid) -> Result<(), SlotLost> {
        let held = Word::new(holder, slot.generation, HELD);
        if self.swap(slot.index, held, Word::new(getpid(), slot.generation, RESERVED)) {
            Ok(())
        } else {
            Err(SlotLost(slot.index))
        }
    }

    /// Frees the slot if this use of it still stands. False: somebody else has freed it already.
    pub fn release(&self, slot: SlotHandle) -> bool {
        loop {
            let seen = self.load(slot.index);
            if seen.state() == FREE || seen.generation() != slot.generation {
                return false;
            }
            if self.swap(slot.index, seen, Word::free(slot.generation)) {
                return true;
            }
        }
    }

    /// Frees every slot that stands in the name of `pid`. `before_free` runs for each while it is still held.
    pub(super) fn sweep(&self, pid: Pid, mut before_free: impl FnMut(u32)) -> usize {
        let mut freed = 0;
        for index in 0..self.limit {
            let seen = self.load(index);
            if seen.state() != FREE && seen.pid() == pid {
                before_free(index);
                freed += usize::from(self.swap(index, seen, Word::free(seen.generation())));
            }
        }
        freed
    }

    /// Everything that is not free.
    pub fn holders(&self) -> Vec<Holder> {
        (0..self.limit)
            .filter_map(|index| {
                let word = self.load(index);
                (word.state() != FREE).then(|| Holder {
                    handle: SlotHandle { index, generation: word.generation() },
                    pid: word.pid(),
                    reserved: word.state() == RESERVED,
                })
            })
            .collect()
    }

    /// The status of a slot.
    pub fn slot_status(&self, slot: SlotHandle) -> SlotStatus<'a> {
        SlotStatus::over(self.words, slot)
    }

    fn load(&self, index: u32) -> Word {
        Word(self.words.at(layout::slot_start(index) + layout::SLOT_WORD).load(Acquire))
    }

    fn swap(&self, index: u32, from: Word, to: Word) -> bool {
        let word = self.words.at(layout::slot_start(index) + layout::SLOT_WORD);
        word.compare_exchange(from.0, to.0, AcqRel, Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::region::Region;
    use nix::unistd::{Pid, getpid};

    #[test]
    fn a_region_gives_out_exactly_as_many_slots_as_it_has() {
        let region = Region::create(3).unwrap();
        let slots = region.slots();
        let taken: Vec<_> = std::iter::from_fn(|| slots.reserve()).collect();
        assert_eq!(taken.len(), 3);
        assert_eq!(slots.used(), 3);
        assert!(slots.release(taken[1]));
        assert_eq!(slots.reserve().map(|slot| slot.index()), Some(1));
    }

    #[test]
    fn workers_leave_free_slots_to_schedulers_that_wait_for_them() {
        let region = Region::create(3).unwrap();
        let slots = region.slots();
        assert!(slots.reserve().is_some());
        assert_eq!(slots.for_workers(), 2);
        slots.set_wanted(1);
        assert_eq!(slots.for_workers(), 1);
        slots.set_wanted(9);
        assert_eq!(slots.for_workers(), 0);
        slots.set_wanted(0);
        assert_eq!(slots.for_workers(), 2);
    }

    #[test]
    fn a_released_handle_never_matches_a_later_use_of_its_slot() {
        let region = Region::create(1).unwrap();
        let slots = region.slots();
        let first = slots.reserve().unwrap();
        assert!(slots.release(first));
        let second = slots.reserve().unwrap();
        assert!(!slots.release(first));
        assert!(slots.transfer(first, Pid::from_raw(77)).is_err());
        assert!(slots.transfer(second, Pid::from_raw(77)).is_ok());
        assert_eq!(slots.used(), 1);
    }

    #[test]
    fn sweeping_a_pid_frees_what_it_held_and_nothing_else() {
        let region = Region::create(4).unwrap();
        let slots = region.slots();
        let handles: Vec<_> = (0..3).map(|_| slots.reserve().unwrap()).collect();
        slots.transfer(handles[0], Pid::from_raw(11)).unwrap();
        slots.transfer(handles[1], Pid::from_raw(12)).unwrap();
        assert_eq!(region.sweep(Pid::from_raw(11)), 1);
        let left: Vec<_> = slots.holders().into_iter().map(|holder| (holder.handle.index(), holder.pid)).collect();
        assert_eq!(left, [(1, Pid::from_raw(12)), (2, getpid())]);
    }

    #[test]
    fn a_slot_taken_back_is_kept_by_the_sweep_of_its_dead_holder() {
        let region = Region::create(1).unwrap();
        let slots = region.slots();
        let slot = slots.reserve().unwrap();
        slots.transfer(slot, Pid::from_raw(11)).unwrap();
        slots.take_back(slot, Pid::from_raw(11)).unwrap();
        assert_eq!(region.sweep(Pid::from_raw(11)), 0);
        assert_eq!(slots.used(), 1);
    }
}
