//! The lease: until when this launcher's processes may act as the leader's.
//!
//! The launcher alone writes it. The lock that makes it the leader lives in the server, which takes it away from a
//! session that has been silent for `SILENCE_MS`. Each answer on that session proves that the lock was ours when the question was
//! sent, and prolongs the lease to `LEASE` after that moment: so it runs out before anybody else can have the lock,
//! whatever froze us or cut us off. While it has run out no scheduler takes, starts or fires anything, and no worker takes its next
//! task; a scheduler whose lease ran out `LET_GO` ago gives its sessions up, and with them its queue.
//!
//! Moments are of the clock that goes on while the host sleeps, and is the same in all processes. Beside it stands the
//! term: the server process of the session that leads, by which a new leader's schedulers tell their own sessions from
//! those that an earlier one has left. Both are single words: whoever reads one reads a whole one.

use super::{Region, layout};
use crate::limits::{LEASE, LET_GO, SILENCE_MS};
use nix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;

const _: () = assert!(LEASE.as_millis() as u64 + LET_GO.as_millis() as u64 == SILENCE_MS);

/// A moment that counts for all processes of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostMoment(u64);

impl HostMoment {
    pub fn now() -> HostMoment {
        // It cannot fail for a clock that every kernel of ours has; if it did, nothing would be proved to anybody.
        HostMoment(
            clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |time| Duration::from(time).as_millis() as u64),
        )
    }

    pub(super) fn millis(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(super) fn of_millis(millis: u64) -> HostMoment {
        HostMoment(millis)
    }

    fn plus(self, duration: Duration) -> u64 {
        self.0.saturating_add(duration.as_millis() as u64)
    }
}

impl Region {
    /// By the launcher: the lock was ours at that moment. Never shortens.
    pub fn prolong_lease(&self, proved_at: HostMoment) {
        self.words.at(layout::HEADER_LEASE).fetch_max(proved_at.plus(LEASE), AcqRel);
    }

    /// By the launcher: it may not be ours any more; the lease ends at most so much later.
    pub fn shorten_lease(&self, grace: Duration) {
        self.words.at(layout::HEADER_LEASE).fetch_min(HostMoment::now().plus(grace), AcqRel);
    }

    /// By the launcher: somebody else leads.
    pub fn end_lease(&self) {
        self.words.at(layout::HEADER_LEASE).store(0, Release);
    }

    /// Whether anything may be taken, started or fired now.
    pub fn leads(&self) -> bool {
        self.lapsed_since().is_none()
    }

    /// For how long not, if not.
    pub fn lapsed_since(&self) -> Option<Duration> {
        let until = self.words.at(layout::HEADER_LEASE).load(Acquire);
        let now = HostMoment::now().0;
        (now >= until).then(|| Duration::from_millis(now - until))
    }

    /// How long the lease goes on if nobody prolongs it.
    pub fn lease_left(&self) -> Duration {
        Duration::from_millis(self.words.at(layout::HEADER_LEASE).load(Acquire).saturating_sub(HostMoment::now().0))
    }

    /// By the launcher, before the lease: the server process of the session that leads.
    pub fn set_term(&self, backend: i32) {
        self.words.at(layout::HEADER_TERM).store(backend as u32 as u64, Release);
    }

    pub fn term(&self) -> i32 {
        self.words.at(layout::HEADER_TERM).load(Acquire) as u32 as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(duration: Duration) -> HostMoment {
        HostMoment(HostMoment::now().0.saturating_sub(duration.as_millis() as u64))
    }

    #[test]
    fn nobody_leads_before_the_first_proof_and_after_the_last_one_has_grown_old() {
        let region = Region::create(1).unwrap();
        assert!(!region.leads() && region.lease_left().is_zero());
        region.prolong_lease(ago(LEASE + Duration::from_millis(500)));
        assert!(region.lapsed_since().is_some_and(|since| since >= Duration::from_millis(500) && since < LET_GO));
        region.prolong_lease(HostMoment::now());
        assert!(region.leads() && region.lease_left() > LEASE / 2);
        // an older answer that comes late takes nothing away
        region.prolong_lease(ago(LEASE));
        assert!(region.leads());
    }

    #[test]
    fn a_doubt_shortens_the_lease_and_somebody_else_ends_it() {
        let region = Region::create(1).unwrap();
        region.prolong_lease(HostMoment::now());
        region.shorten_lease(Duration::from_millis(300));
        assert!(region.leads() && region.lease_left() <= Duration::from_millis(300));
        region.shorten_lease(Duration::from_secs(60));
        assert!(region.lease_left() <= Duration::from_millis(300));
        region.end_lease();
        assert!(region.lapsed_since().is_some_and(|since| since >= LET_GO));
    }

    #[test]
    fn the_term_is_kept_as_it_is() {
        let region = Region::create(1).unwrap();
        region.set_term(4711);
        assert_eq!(region.term(), 4711);
    }
}
