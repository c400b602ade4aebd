//! When to look at the queue again, and whether the bell may be armed. PURE.
//!
//! The bell is armed at every wait at which the last look left nothing that could start. A ring that led to nothing
//! (a full group, say) keeps it unarmed for a while that doubles, so that inserters do not pay for it; the first find
//! ends that. The poll is only a backstop: after `idle` empty polls it is stretched to a minute.

use crate::limits::{BUSY_PAUSE, FULL_PAUSE, LINGER, LINGER_ARMED, LONGEST_POLL, QUIET_FIRST};
use std::time::{Duration, Instant};

/// What the last look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    pub now: Instant,
    /// Everything asked for was found: more may be there.
    pub full: bool,
    /// And there is a slot for it.
    pub room: bool,
    pub found: bool,
    /// It only took, and left the bell as it was: whether there is nothing left has to be seen by another one.
    pub brief: bool,
    pub armed: bool,
    pub refused: bool,
    pub busy: bool,
    pub next_plan: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub sleep: Duration,
    pub idle: u32,
}

#[derive(Debug)]
pub struct Doze {
    armed: bool,
    /// A ring that no look has answered yet; one that comes during a look is for the next.
    rung: bool,
    /// The look in flight was caused by a ring.
    caused: bool,
    /// Something happened during the look in flight that it may have missed: when the next one is due.
    hurried: Option<Instant>,
    next_look: Instant,
    not_before: Instant,
    empty_polls: u32,
    quiet: Duration,
    /// Not armed before then, whatever else leads to a look.
    quiet_until: Instant,
    refusals: u32,
}

impl Doze {
    pub fn new(now: Instant) -> Doze {
        Doze {
            armed: false,
            rung: false,
            caused: false,
            hurried: None,
            next_look: now,
            not_before: now,
            empty_polls: 0,
            quiet: Duration::ZERO,
            quiet_until: now,
            refusals: 0,
        }
    }

    pub fn next_look(&self) -> Instant {
        self.next_look.max(self.not_before)
    }

    /// The server holds our lock: the next look has to give it back.
    pub fn armed(&self) -> bool {
        self.armed
    }

    /// Nobody has rung: the next look is our own idea.
    pub fn unasked(&self) -> bool {
        !self.rung
    }

    /// A look begins. True: it may arm the bell; one that was caused by a ring does not arm again if it finds nothing,
    /// but waits for a while of quiet first.
    pub fn begin(&mut self, now: Instant) -> bool {
        self.caused = std::mem::take(&mut self.rung);
        self.hurried = None;
        !self.caused && now >= self.quiet_until
    }

    /// Somebody inserted, changed or stopped something.
    pub fn ring(&mut self, now: Instant) {
        self.rung = true;
        self.next_look = now;
    }

    /// Something else makes a look worth while, then: a worker ended, a slot came free, settings changed.
    pub fn hurry(&mut self, at: Instant) {
        self.hurried = Some(self.hurried.map_or(at, |due| due.min(at)));
        self.next_look = self.next_look.min(at);
    }

    /// A look that was hurried will come.
    pub fn is_hurried(&self) -> bool {
        self.hurried.is_some()
    }

    /// Not before then, whatever happens.
    pub fn hold_off(&mut self, until: Instant) {
        self.not_before = until;
    }

    /// The session is gone, and the lock with it.
    pub fn forget(&mut self, now: Instant) {
        *self = Doze { not_before: self.not_before, ..Doze::new(now) };
    }

    pub fn looked(&mut self, looked: Looked, pace: Pace) {
        let Looked { now, full, room, found, brief, armed, refused, busy, next_plan } = looked;
        let rung = self.caused;
        self.armed = if brief { self.armed } else { armed };
        if found {
            (self.quiet, self.quiet_until) = (Duration::ZERO, now);
            self.empty_polls = 0;
        } else if !rung {
            self.empty_polls = self.empty_polls.saturating_add(1);
        }
        self.refusals = if refused { self.refusals.saturating_add(1) } else { 0 };
        let wait = if full {
            if room { Duration::ZERO } else { FULL_PAUSE }
        } else if brief && found {
            if self.armed { LINGER_ARMED } else { LINGER }
        } else if self.armed {
            if self.empty_polls > pace.idle { pace.sleep.max(LONGEST_POLL) } else { pace.sleep }
        } else if rung && !found {
            self.quiet = (self.quiet * 2).clamp(QUIET_FIRST, pace.sleep.max(QUIET_FIRST));
            self.quiet_until = now + self.quiet;
            self.quiet
        } else if refused {
            QUIET_FIRST.saturating_mul(1 << self.refusals.saturating_sub(1).min(16)).min(pace.sleep)
        } else {
            // Found something by a ring, or in the quiet while: once more, when the bell may be armed.
            self.quiet_until.saturating_duration_since(now)
        };
        if self.rung {
            self.next_look = now;
            return;
        }
        let wait = if busy { wait.min(BUSY_PAUSE) } else { wait };
        let planned = next_plan.map_or(wait, |plan| wait.min(plan.max(Duration::from_millis(1))));
        self.next_look = now + planned;
        if let Some(due) = self.hurried {
            self.next_look = self.next_look.min(due.max(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { sleep: Duration::from_secs(1), idle: 3 };

    fn looked(now: Instant) -> Looked {
        Looked {
            now,
            full: false,
            room: false,
            found: false,
            brief: false,
            armed: true,
            refused: false,
            busy: false,
            next_plan: None,
        }
    }

    #[test]
    fn the_poll_is_stretched_to_a_minute_after_idle_empty_polls_and_back_at_the_first_find() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        let waits: Vec<u64> = (0..5)
            .map(|_| {
                doze.looked(looked(now), PACE);
                (doze.next_look() - now).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 1, 1, 60, 60]);
        doze.looked(Looked { found: true, ..looked(now) }, PACE);
        assert_eq!(doze.next_look() - now, PACE.sleep);
    }

    #[test]
    fn rings_that_lead_to_nothing_keep_the_bell_unarmed_for_ever_longer() {
        let mut now = Instant::now();
        let mut doze = Doze::new(now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            doze.ring(now);
            assert!(!doze.begin(now));
            doze.looked(Looked { armed: false, ..looked(now) }, PACE);
            let end = doze.next_look();
            waits.push((end - now).as_millis());
            // A look in between, because a worker ended, leaves the bell alone; the look after the quiet while arms it.
            doze.hurry(now);
            assert!(!doze.begin(now));
            doze.looked(Looked { armed: false, ..looked(now) }, PACE);
            assert_eq!(doze.next_look(), end);
            now = end;
            assert!(doze.begin(now));
            doze.looked(looked(now), PACE);
        }
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        doze.looked(Looked { found: true, ..looked(now) }, PACE);
        doze.ring(now);
        assert!(!doze.begin(now));
        doze.looked(Looked { armed: false, ..looked(now) }, PACE);
        assert_eq!((doze.next_look() - now).as_millis(), 20);
    }

    #[test]
    fn a_ring_that_found_something_is_followed_by_a_look_that_arms() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        doze.ring(now);
        assert!(!doze.begin(now));
        doze.looked(Looked { found: true, armed: false, ..looked(now) }, PACE);
        assert_eq!(doze.next_look(), now);
        assert!(doze.begin(now));
    }

    #[test]
    fn what_happens_during_a_look_brings_another_one_at_once() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        assert!(doze.begin(now));
        // The notification overtakes the answer of the look that armed the bell.
        doze.ring(now);
        doze.looked(looked(now), PACE);
        assert_eq!(doze.next_look(), now);
        assert!(!doze.begin(now));
        doze.hurry(now);
        doze.looked(Looked { armed: false, ..looked(now) }, PACE);
        assert_eq!(doze.next_look(), now);
    }

    #[test]
    fn a_look_that_was_hurried_for_later_comes_then_or_earlier() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut doze = Doze::new(now);
        assert!(doze.begin(now));
        doze.hurry(at(4));
        doze.hurry(at(6));
        doze.looked(Looked { found: true, full: true, ..looked(at(1)) }, PACE);
        assert_eq!(doze.next_look(), at(4));
        doze.looked(Looked { found: true, full: true, ..looked(at(5)) }, PACE);
        assert_eq!(doze.next_look(), at(5));
    }

    #[test]
    fn a_full_look_is_followed_by_another_one_at_once_only_if_there_is_room() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        doze.looked(Looked { found: true, full: true, room: true, armed: false, ..looked(now) }, PACE);
        assert_eq!(doze.next_look(), now);
        doze.looked(Looked { found: true, full: true, armed: false, ..looked(now) }, PACE);
        assert_eq!(doze.next_look(), now + FULL_PAUSE);
    }

    #[test]
    fn a_look_that_only_took_waits_a_little_for_the_end_of_what_it_took() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        doze.looked(Looked { found: true, brief: true, armed: false, ..looked(now) }, PACE);
        assert_eq!(doze.next_look(), now + LINGER);
        doze.looked(Looked { brief: true, armed: false, ..looked(now) }, PACE);
        assert_eq!(doze.next_look(), now);
    }

    #[test]
    fn a_look_that_only_took_leaves_an_armed_bell_armed_and_one_that_a_ring_caused_is_none_of_those() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        doze.looked(looked(now), PACE);
        assert!(doze.armed() && doze.unasked());
        doze.looked(Looked { found: true, brief: true, armed: false, ..looked(now) }, PACE);
        assert!(doze.armed());
        assert_eq!(doze.next_look(), now + LINGER_ARMED);
        doze.ring(now);
        assert!(!doze.unasked());
        assert_eq!(doze.next_look(), now);
    }

    #[test]
    fn nothing_makes_a_look_come_before_the_pause_is_over() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        let until = now + Duration::from_millis(300);
        doze.hold_off(until);
        doze.ring(now);
        doze.hurry(now);
        assert_eq!(doze.next_look(), until);
    }

    #[test]
    fn every_wait_ends_at_the_next_plan() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        doze.looked(Looked { next_plan: Some(Duration::from_millis(70)), ..looked(now) }, PACE);
        assert_eq!(doze.next_look() - now, Duration::from_millis(70));
    }

    #[test]
    fn a_refused_bell_is_tried_again_after_20_ms_doubling_up_to_sleep() {
        let now = Instant::now();
        let mut doze = Doze::new(now);
        let waits: Vec<u128> = (0..8)
            .map(|_| {
                doze.looked(Looked { armed: false, refused: true, ..looked(now) }, PACE);
                (doze.next_look() - now).as_millis()
            })
            .collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
