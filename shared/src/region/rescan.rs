//! Rescans: which of a group's live workers scans all waiting rows.
//!
//! A live worker takes its next task behind the last one that it took, past everything that was taken before and is still in
//! the index. What may start before that (a row that counts for more, one that was committed late, one that came back)
//! is found by looking from the beginning, which costs the more the more was taken. So of all workers of a group one looks
//! from the beginning every `RESCAN_PERIOD`, whoever comes first; if it finds something there, it calls the others.
//!
//! Between two such rescans they go by the farthest that any of them has got to, since whoever looks only behind his own
//! last task walks over all that the others have taken meanwhile.
//!
//! The words stand in the slot of the scheduler, where its workers have their batch and it has none: the moment of the
//! last rescan, in milliseconds, and how far they have got (an id, and of whom it is). Groups share them by their hash.
//! Each is only a hint about when or from where on to look: an old or a strange one brings a rescan too many, or one too
//! late for those who do not look by themselves now and then.

use super::lease::HostMoment;
use super::{Region, layout};
use crate::limits::RESCAN_PERIOD;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// An id that is longer is not told.
const ID_BITS: u32 = 48;

/// The rescans of one group of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Rescans {
    scheduler: u32,
    place: usize,
    hash: u64,
}

impl Rescans {
    /// Of the group, among the workers of the scheduler in this slot.
    pub fn of(scheduler: u32, group: &[u8]) -> Rescans {
        let hash = mixed(0, group);
        Rescans { scheduler, place: (hash % layout::RESCAN_PLACES as u64) as usize, hash }
    }

    /// By a worker that is about to take: is it to look from the beginning?
    pub fn take(self, region: &Region) -> bool {
        self.take_at(region, HostMoment::now())
    }

    fn take_at(self, region: &Region, now: HostMoment) -> bool {
        let (word, now) = (self.moment(region), now.millis());
        let last = word.load(Acquire);
        let due = last > now || now - last >= RESCAN_PERIOD.as_millis() as u64;
        due && word.compare_exchange(last, now, AcqRel, Acquire).is_ok()
    }

    /// By a worker that has found something there: whoever takes next looks as well.
    pub fn call(self, region: &Region) {
        self.moment(region).store(0, Release);
    }

    /// By a worker that has taken rows of this `kind` (what of a group is taken in the order of its ids): up to this one.
    pub fn reach(self, region: &Region, kind: &[u8], id: i64) {
        let Some(id) = u64::try_from(id).ok().filter(|id| id >> ID_BITS == 0) else { return };
        let (word, own) = (self.farthest(region), self.tag(kind) << ID_BITS);
        let mut seen = word.load(Acquire);
        while seen >> ID_BITS != own >> ID_BITS || seen < own | id {
            match word.compare_exchange(seen, own | id, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// How far any of them has got with this kind, if that is known.
    pub fn reached(self, region: &Region, kind: &[u8]) -> Option<i64> {
        let seen = self.farthest(region).load(Acquire);
        (seen >> ID_BITS == self.tag(kind)).then_some((seen & ((1 << ID_BITS) - 1)) as i64)
    }

    /// Never 0, which nobody has written.
    fn tag(self, kind: &[u8]) -> u64 {
        (mixed(self.hash, kind) >> ID_BITS).max(1)
    }

    fn moment(self, region: &Region) -> &AtomicU64 {
        region.words.at(layout::batch_start(region.limit, self.scheduler) + layout::RESCANS + 2 * self.place)
    }

    fn farthest(self, region: &Region) -> &AtomicU64 {
        region.words.at(layout::batch_start(region.limit, self.scheduler) + layout::RESCANS + 2 * self.place + 1)
    }
}

/// The same in all processes that share a region.
fn mixed(before: u64, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, bytes).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> HostMoment {
        HostMoment::of_millis(ms)
    }

    #[test]
    fn of_all_workers_of_a_group_one_rescans_until_it_is_due_again() {
        let region = Region::create(4).unwrap();
        let (ours, theirs) = (Rescans::of(1, b"group"), Rescans::of(2, b"group"));
        assert!(ours.take_at(&region, at(1_000)));
        assert!(!ours.take_at(&region, at(1_000)) && !ours.take_at(&region, at(1_199)));
        assert!(theirs.take_at(&region, at(1_000)), "another scheduler's workers have rescans of their own");
        assert!(ours.take_at(&region, at(1_200)));
    }

    #[test]
    fn whoever_finds_something_calls_the_next_one() {
        let region = Region::create(4).unwrap();
        let rescans = Rescans::of(0, b"group");
        assert!(rescans.take_at(&region, at(1_000)));
        rescans.call(&region);
        assert!(rescans.take_at(&region, at(1_001)) && !rescans.take_at(&region, at(1_002)));
    }

    #[test]
    fn the_farthest_that_any_of_them_has_got_to_counts_for_all_of_the_same_kind() {
        let region = Region::create(4).unwrap();
        let rescans = Rescans::of(0, b"group");
        assert_eq!(rescans.reached(&region, b"7 0"), None);
        for id in [5, 9, 7] {
            rescans.reach(&region, b"7 0", id);
        }
        assert_eq!((rescans.reached(&region, b"7 0"), rescans.reached(&region, b"7 1")), (Some(9), None));
        rescans.reach(&region, b"7 1", 3);
        assert_eq!(
            (rescans.reached(&region, b"7 1"), rescans.reached(&region, b"7 0")),
            (Some(3), None),
            "the last one's"
        );
        for id in [-1, 1 << 48] {
            rescans.reach(&region, b"8 0", id);
            assert_eq!(rescans.reached(&region, b"8 0"), None, "too long to be told");
        }
    }

    #[test]
    fn a_word_that_somebody_left_there_does_not_keep_anybody_from_looking() {
        let region = Region::create(4).unwrap();
        let slot = region.slots().reserve().unwrap();
        region.open_batch(slot, &[(i64::MAX, 1); layout::BATCH_TASKS]);
        for group in [&b"a"[..], b"b", b"c", b"d", b"e"] {
            assert!(Rescans::of(slot.index(), group).take_at(&region, at(5_000)));
        }
    }
}
