//! PURE: when a private server that died is started again. No clock, no process, no file.
//!
//! The caller looks at the server, hands over what it saw and the time, and does what comes
//! back. The first rest lasts one second, each further one twice as long, at most thirty; a
//! server that served for a minute has earned the short rest again.
//!
//! A server that is late is told about but left alone: after a crash it may be replaying its
//! log, and killing it would only begin that anew.
//!
//! ```text
//! Starting --accepting--> Ready --gone--> Resting --time--> (launch) --> Starting
//! Starting --gone--> Resting              any --stop asked--> Stopping --gone--> Stopped
//! ```

use crate::limits::{SERVER_HEALTHY_AFTER, SERVER_RESTART_FIRST, SERVER_RESTART_LAST, SERVER_START_TIMEOUT};
use std::time::{Duration, Instant};

/// Where the server is in its life; `rests` counts the rests since the last good service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting { late_at: Instant, rests: u32 },
    Late { rests: u32 },
    Ready { since: Instant, rests: u32 },
    Resting { until: Instant, rests: u32 },
    Stopping,
    Stopped,
}

/// What the server looks like now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    Gone,
    NotReady,
    Accepting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    /// Start a server; report back by `launched` or `launch_failed`.
    Launch,
    TellDied,
    TellStartFailed,
    TellLate,
    TellRestarted,
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub next: Phase,
    pub effect: Effect,
}

impl Phase {
    pub fn seen(self, sight: Sight, now: Instant) -> Step {
        let (next, effect) = match (self, sight) {
            (Phase::Starting { rests, .. } | Phase::Late { rests }, Sight::Accepting) => {
                (Phase::Ready { since: now, rests }, Effect::TellRestarted)
            }
            (Phase::Starting { rests, .. } | Phase::Late { rests }, Sight::Gone) => {
                (rest(rests, now), Effect::TellStartFailed)
            }
            (Phase::Starting { late_at, rests }, Sight::NotReady) if now >= late_at => {
                (Phase::Late { rests }, Effect::TellLate)
            }
            (Phase::Starting { .. } | Phase::Late { .. }, Sight::NotReady) => (self, Effect::Nothing),
            (Phase::Ready { since, rests }, Sight::Gone) => {
                let served = now.saturating_duration_since(since);
                let rests = if served >= SERVER_HEALTHY_AFTER { 0 } else { rests };
                (rest(rests, now), Effect::TellDied)
            }
            // Someone else's shutdown shows as not ready first; the end follows.
            (Phase::Ready { .. }, Sight::NotReady | Sight::Accepting) => (self, Effect::Nothing),
            (Phase::Resting { until, .. }, Sight::Gone) if now >= until => (self, Effect::Launch),
            (Phase::Resting { .. }, Sight::Gone | Sight::NotReady | Sight::Accepting) => (self, Effect::Nothing),
            (Phase::Stopping | Phase::Stopped, Sight::Gone) => (Phase::Stopped, Effect::Nothing),
            (Phase::Stopping | Phase::Stopped, Sight::NotReady | Sight::Accepting) => (self, Effect::Nothing),
        };
        Step { next, effect }
    }

    /// The launch that was asked for has happened.
    #[must_use]
    pub fn launched(self, now: Instant) -> Phase {
        Phase::Starting { late_at: now + SERVER_START_TIMEOUT, rests: self.rests() }
    }

    /// The launch that was asked for could not even begin.
    #[must_use]
    pub fn launch_failed(self, now: Instant) -> Phase {
        rest(self.rests(), now)
    }

    /// How long a caller may wait before it looks again, if nothing wakes it earlier.
    pub fn look_again_in(self, now: Instant) -> Duration {
        match self {
            Phase::Starting { .. } | Phase::Late { .. } | Phase::Stopping => Duration::from_millis(20),
            // An adopted server's end rings no bell.
            Phase::Ready { .. } => Duration::from_millis(500),
            Phase::Resting { until, .. } => until.saturating_duration_since(now),
            Phase::Stopped => SERVER_RESTART_LAST,
        }
    }

    fn rests(self) -> u32 {
        match self {
            Phase::Starting { rests, .. }
            | Phase::Late { rests }
            | Phase::Ready { rests, .. }
            | Phase::Resting { rests, .. } => rests,
            Phase::Stopping | Phase::Stopped => 0,
        }
    }
}

fn rest(rests: u32, now: Instant) -> Phase {
    let factor = 2_u32.saturating_pow(rests);
    Phase::Resting {
        until: now + SERVER_RESTART_FIRST.saturating_mul(factor).min(SERVER_RESTART_LAST),
        rests: rests.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    fn rested_until(phase: Phase) -> Instant {
        match phase {
            Phase::Resting { until, .. } => until,
            other => panic!("not resting: {other:?}"),
        }
    }

    #[test]
    fn rests_double_up_to_the_longest_and_good_service_forgives() {
        let mut now = Instant::now();
        let mut phase = Phase::Ready { since: now, rests: 0 };
        let mut rests_s = Vec::new();
        for _ in 0..7 {
            let step = phase.seen(Sight::Gone, now);
            let until = rested_until(step.next);
            rests_s.push((until - now).as_secs());
            assert_eq!(step.next.seen(Sight::Gone, now).effect, Effect::Nothing);
            now = until;
            assert_eq!(step.next.seen(Sight::Gone, now).effect, Effect::Launch);
            phase = step.next.launched(now);
        }
        assert_eq!(rests_s, [1, 2, 4, 8, 16, 30, 30]);

        let step = phase.seen(Sight::Accepting, now);
        assert_eq!(step.effect, Effect::TellRestarted);
        let later = now + SERVER_HEALTHY_AFTER;
        let step = step.next.seen(Sight::Gone, later);
        assert_eq!(step.effect, Effect::TellDied);
        assert_eq!(rested_until(step.next) - later, SERVER_RESTART_FIRST);
    }

    #[test]
    fn a_late_server_is_told_about_once_and_may_still_become_ready() {
        let now = Instant::now();
        let phase = Phase::Resting { until: now, rests: 1 }.launched(now);
        assert_eq!(phase.seen(Sight::NotReady, now).effect, Effect::Nothing);
        let late = now + SERVER_START_TIMEOUT;
        let step = phase.seen(Sight::NotReady, late);
        assert_eq!(step.effect, Effect::TellLate);
        let again = step.next.seen(Sight::NotReady, late);
        assert_eq!((again.next, again.effect), (step.next, Effect::Nothing));
        let ready = again.next.seen(Sight::Accepting, late);
        assert_eq!(ready.effect, Effect::TellRestarted);
    }

    #[test]
    fn a_server_that_is_being_stopped_is_not_started_again() {
        let now = Instant::now();
        let step = Phase::Stopping.seen(Sight::Accepting, now);
        assert_eq!((step.next, step.effect), (Phase::Stopping, Effect::Nothing));
        let step = step.next.seen(Sight::Gone, now);
        assert_eq!((step.next, step.effect), (Phase::Stopped, Effect::Nothing));
        let step = step.next.seen(Sight::Gone, now + SERVER_RESTART_LAST);
        assert_eq!((step.next, step.effect), (Phase::Stopped, Effect::Nothing));
    }
}
