//! When the next pass is due, and whether the wake-up lock may be armed. PURE.
//!
//! The lock is armed at every wait at which the last pass left nothing that could start. A notification that led to nothing
//! (a full group, say) keeps it unarmed for a while that doubles, so that inserters do not pay for it; the first claimed row
//! ends that. The poll is only a backstop: after `idle` empty polls its period is a minute.

use crate::limits::{BUSY_PAUSE, FULL_PAUSE, LINGER, LINGER_ARMED, LONGEST_POLL, QUIET_FIRST};
use std::time::{Duration, Instant};

/// The result of the last pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub now: Instant,
    /// All slots were filled: more rows may be there.
    pub full: bool,
    /// And there is a slot for them.
    pub room: bool,
    pub found: bool,
    /// It only claimed, and left the lock as it was: whether there is nothing left is for another one.
    pub claim_only: bool,
    pub armed: bool,
    pub refused: bool,
    pub busy: bool,
    pub next_plan: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub struct PollPace {
    pub sleep: Duration,
    pub idle: u32,
}

#[derive(Debug)]
pub struct PollTimer {
    armed: bool,
    /// A notification that no pass has answered yet; one that comes during a pass is for the next.
    notified: bool,
    /// The pass in flight was caused by a notification.
    caused: bool,
    /// Something happened during the pass in flight that it may have missed: when the next one is due.
    hurried: Option<Instant>,
    next_poll: Instant,
    not_before: Instant,
    empty_polls: u32,
    quiet: Duration,
    /// Not armed before then, whatever else leads to a pass.
    quiet_until: Instant,
    refusals: u32,
}

impl PollTimer {
    pub fn new(now: Instant) -> PollTimer {
        PollTimer {
            armed: false,
            notified: false,
            caused: false,
            hurried: None,
            next_poll: now,
            not_before: now,
            empty_polls: 0,
            quiet: Duration::ZERO,
            quiet_until: now,
            refusals: 0,
        }
    }

    pub fn next_poll(&self) -> Instant {
        self.next_poll.max(self.not_before)
    }

    /// The server holds our lock: the next pass has to give it back.
    pub fn armed(&self) -> bool {
        self.armed
    }

    /// There was no notification: the next pass is the scheduler's own.
    pub fn unasked(&self) -> bool {
        !self.notified
    }

    /// A pass begins. True: it may arm the lock; one that was caused by a notification does not arm again if it finds nothing,
    /// but waits for a while of quiet first.
    pub fn begin(&mut self, now: Instant) -> bool {
        self.caused = std::mem::take(&mut self.notified);
        self.hurried = None;
        !self.caused && now >= self.quiet_until
    }

    /// A notification: rows were inserted, changed or stopped.
    pub fn notify(&mut self, now: Instant) {
        self.notified = true;
        self.next_poll = now;
    }

    /// Another event makes a pass worth while, then: a worker ended, a slot came free, settings changed.
    pub fn hurry(&mut self, at: Instant) {
        self.hurried = Some(self.hurried.map_or(at, |due| due.min(at)));
        self.next_poll = self.next_poll.min(at);
    }

    /// A pass that was hurried will come.
    pub fn is_hurried(&self) -> bool {
        self.hurried.is_some()
    }

    /// Not before then, whatever happens.
    pub fn hold_off(&mut self, until: Instant) {
        self.not_before = until;
    }

    /// The session is gone, and the lock with it.
    pub fn forget(&mut self, now: Instant) {
        *self = PollTimer { not_before: self.not_before, ..PollTimer::new(now) };
    }

    pub fn passed(&mut self, passed: Passed, pace: PollPace) {
        let Passed { now, full, room, found, claim_only, armed, refused, busy, next_plan } = passed;
        let notified = self.caused;
        self.armed = if claim_only { self.armed } else { armed };
        if found {
            (self.quiet, self.quiet_until) = (Duration::ZERO, now);
            self.empty_polls = 0;
        } else if !notified {
            self.empty_polls = self.empty_polls.saturating_add(1);
        }
        self.refusals = if refused { self.refusals.saturating_add(1) } else { 0 };
        let wait = if full {
            if room { Duration::ZERO } else { FULL_PAUSE }
        } else if claim_only && found {
            if self.armed { LINGER_ARMED } else { LINGER }
        } else if self.armed {
            if self.empty_polls > pace.idle { pace.sleep.max(LONGEST_POLL) } else { pace.sleep }
        } else if notified && !found {
            self.quiet = (self.quiet * 2).clamp(QUIET_FIRST, pace.sleep.max(QUIET_FIRST));
            self.quiet_until = now + self.quiet;
            self.quiet
        } else if refused {
            QUIET_FIRST.saturating_mul(1 << self.refusals.saturating_sub(1).min(16)).min(pace.sleep)
        } else {
            // Rows were found after a notification, or in the quiet while: once more, when the lock may be armed.
            self.quiet_until.saturating_duration_since(now)
        };
        if self.notified {
            self.next_poll = now;
            return;
        }
        let wait = if busy { wait.min(BUSY_PAUSE) } else { wait };
        let planned = next_plan.map_or(wait, |plan| wait.min(plan.max(Duration::from_millis(1))));
        self.next_poll = now + planned;
        if let Some(due) = self.hurried {
            self.next_poll = self.next_poll.min(due.max(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: PollPace = PollPace { sleep: Duration::from_secs(1), idle: 3 };

    fn passed(now: Instant) -> Passed {
        Passed {
            now,
            full: false,
            room: false,
            found: false,
            claim_only: false,
            armed: true,
            refused: false,
            busy: false,
            next_plan: None,
        }
    }

    #[test]
    fn the_poll_comes_once_a_minute_after_idle_empty_polls_and_as_before_at_the_first_find() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        let waits: Vec<u64> = (0..5)
            .map(|_| {
                timer.passed(passed(now), PACE);
                (timer.next_poll() - now).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 1, 1, 60, 60]);
        timer.passed(Passed { found: true, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll() - now, PACE.sleep);
    }

    #[test]
    fn notifications_that_lead_to_nothing_keep_the_wake_up_lock_free_for_ever_longer() {
        let mut now = Instant::now();
        let mut timer = PollTimer::new(now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            timer.notify(now);
            assert!(!timer.begin(now));
            timer.passed(Passed { armed: false, ..passed(now) }, PACE);
            let end = timer.next_poll();
            waits.push((end - now).as_millis());
            // A pass in between, because a worker ended, leaves the lock alone; the pass after the quiet while arms it.
            timer.hurry(now);
            assert!(!timer.begin(now));
            timer.passed(Passed { armed: false, ..passed(now) }, PACE);
            assert_eq!(timer.next_poll(), end);
            now = end;
            assert!(timer.begin(now));
            timer.passed(passed(now), PACE);
        }
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        timer.passed(Passed { found: true, ..passed(now) }, PACE);
        timer.notify(now);
        assert!(!timer.begin(now));
        timer.passed(Passed { armed: false, ..passed(now) }, PACE);
        assert_eq!((timer.next_poll() - now).as_millis(), 20);
    }

    #[test]
    fn a_notification_that_found_something_is_followed_by_a_pass_that_arms() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        timer.notify(now);
        assert!(!timer.begin(now));
        timer.passed(Passed { found: true, armed: false, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll(), now);
        assert!(timer.begin(now));
    }

    #[test]
    fn what_happens_during_a_pass_brings_another_one_at_once() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        assert!(timer.begin(now));
        // The notification overtakes the answer of the pass that armed the lock.
        timer.notify(now);
        timer.passed(passed(now), PACE);
        assert_eq!(timer.next_poll(), now);
        assert!(!timer.begin(now));
        timer.hurry(now);
        timer.passed(Passed { armed: false, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll(), now);
    }

    #[test]
    fn a_pass_that_was_hurried_for_later_comes_then_or_earlier() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut timer = PollTimer::new(now);
        assert!(timer.begin(now));
        timer.hurry(at(4));
        timer.hurry(at(6));
        timer.passed(Passed { found: true, full: true, ..passed(at(1)) }, PACE);
        assert_eq!(timer.next_poll(), at(4));
        timer.passed(Passed { found: true, full: true, ..passed(at(5)) }, PACE);
        assert_eq!(timer.next_poll(), at(5));
    }

    #[test]
    fn a_full_pass_is_followed_by_another_one_at_once_only_if_there_is_room() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        timer.passed(Passed { found: true, full: true, room: true, armed: false, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll(), now);
        timer.passed(Passed { found: true, full: true, armed: false, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll(), now + FULL_PAUSE);
    }

    #[test]
    fn a_claim_only_pass_waits_a_little_for_the_end_of_what_it_claimed() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        timer.passed(Passed { found: true, claim_only: true, armed: false, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll(), now + LINGER);
        timer.passed(Passed { claim_only: true, armed: false, ..passed(now) }, PACE);
        assert_eq!(timer.next_poll(), now);
    }

    #[test]
    fn a_claim_only_pass_leaves_the_lock_armed_and_one_that_a_notification_caused_is_none_of_those() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        timer.passed(passed(now), PACE);
        assert!(timer.armed() && timer.unasked());
        timer.passed(Passed { found: true, claim_only: true, armed: false, ..passed(now) }, PACE);
        assert!(timer.armed());
        assert_eq!(timer.next_poll(), now + LINGER_ARMED);
        timer.notify(now);
        assert!(!timer.unasked());
        assert_eq!(timer.next_poll(), now);
    }

    #[test]
    fn nothing_makes_a_pass_come_before_the_pause_is_over() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        let until = now + Duration::from_millis(300);
        timer.hold_off(until);
        timer.notify(now);
        timer.hurry(now);
        assert_eq!(timer.next_poll(), until);
    }

    #[test]
    fn every_wait_ends_at_the_next_plan() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        timer.passed(Passed { next_plan: Some(Duration::from_millis(70)), ..passed(now) }, PACE);
        assert_eq!(timer.next_poll() - now, Duration::from_millis(70));
    }

    #[test]
    fn a_refused_wake_up_lock_is_tried_again_after_20_ms_doubling_up_to_sleep() {
        let now = Instant::now();
        let mut timer = PollTimer::new(now);
        let waits: Vec<u128> = (0..8)
            .map(|_| {
                timer.passed(Passed { armed: false, refused: true, ..passed(now) }, PACE);
                (timer.next_poll() - now).as_millis()
            })
            .collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
