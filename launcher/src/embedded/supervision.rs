//! PURE: when a private server that died is started again. No clock, no process, no file.
//!
//! The caller observes the server, passes its condition and the time, and carries out the effect. The first pause lasts
//! one second, each further one twice as long, at most thirty. After a minute of service the pauses begin with one
//! second again.
//!
//! A server that is late is reported but left alone: after a crash it may be replaying its log, and killing it would
//! only begin that anew.
//!
//! ```text
//! Starting --accepting--> Ready --gone--> Pausing --time--> (launch) --> Starting
//! Starting --gone--> Pausing              any --stop asked--> Stopping --gone--> Stopped
//! ```

use crate::limits::{SERVER_HEALTHY_AFTER, SERVER_RESTART_FIRST, SERVER_RESTART_LAST, SERVER_START_TIMEOUT};
use std::time::{Duration, Instant};

/// Where the server is in its life; `restarts` counts those since the last minute of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    Starting { late_at: Instant, restarts: u32 },
    Late { restarts: u32 },
    Ready { since: Instant, restarts: u32 },
    Pausing { until: Instant, restarts: u32 },
    Stopping,
    Stopped,
}

/// The condition of the server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Gone,
    NotReady,
    Accepting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    /// Start a server; report back by `launched` or `launch_failed`.
    Launch,
    ReportDied,
    ReportStartFailed,
    ReportLate,
    ReportRestarted,
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub next: ServerState,
    pub effect: Effect,
}

impl ServerState {
    pub fn seen(self, condition: Condition, now: Instant) -> Step {
        let (next, effect) = match (self, condition) {
            (ServerState::Starting { restarts, .. } | ServerState::Late { restarts }, Condition::Accepting) => {
                (ServerState::Ready { since: now, restarts }, Effect::ReportRestarted)
            }
            (ServerState::Starting { restarts, .. } | ServerState::Late { restarts }, Condition::Gone) => {
                (pause(restarts, now), Effect::ReportStartFailed)
            }
            (ServerState::Starting { late_at, restarts }, Condition::NotReady) if now >= late_at => {
                (ServerState::Late { restarts }, Effect::ReportLate)
            }
            (ServerState::Starting { .. } | ServerState::Late { .. }, Condition::NotReady) => (self, Effect::Nothing),
            (ServerState::Ready { since, restarts }, Condition::Gone) => {
                let served = now.saturating_duration_since(since);
                let restarts = if served >= SERVER_HEALTHY_AFTER { 0 } else { restarts };
                (pause(restarts, now), Effect::ReportDied)
            }
            // Someone else's shutdown shows as not ready first; the end follows.
            (ServerState::Ready { .. }, Condition::NotReady | Condition::Accepting) => (self, Effect::Nothing),
            (ServerState::Pausing { until, .. }, Condition::Gone) if now >= until => (self, Effect::Launch),
            (ServerState::Pausing { .. }, Condition::Gone | Condition::NotReady | Condition::Accepting) => {
                (self, Effect::Nothing)
            }
            (ServerState::Stopping | ServerState::Stopped, Condition::Gone) => (ServerState::Stopped, Effect::Nothing),
            (ServerState::Stopping | ServerState::Stopped, Condition::NotReady | Condition::Accepting) => {
                (self, Effect::Nothing)
            }
        };
        Step { next, effect }
    }

    /// The launch that was asked for has happened.
    #[must_use]
    pub fn launched(self, now: Instant) -> ServerState {
        ServerState::Starting { late_at: now + SERVER_START_TIMEOUT, restarts: self.restarts() }
    }

    /// The launch that was asked for could not even begin.
    #[must_use]
    pub fn launch_failed(self, now: Instant) -> ServerState {
        pause(self.restarts(), now)
    }

    /// How long a caller may wait before it observes again, if nothing wakes it earlier.
    pub fn observe_again_in(self, now: Instant) -> Duration {
        match self {
            ServerState::Starting { .. } | ServerState::Late { .. } | ServerState::Stopping => {
                Duration::from_millis(20)
            }
            // The end of an adopted server sends no signal.
            ServerState::Ready { .. } => Duration::from_millis(500),
            ServerState::Pausing { until, .. } => until.saturating_duration_since(now),
            ServerState::Stopped => SERVER_RESTART_LAST,
        }
    }

    fn restarts(self) -> u32 {
        match self {
            ServerState::Starting { restarts, .. }
            | ServerState::Late { restarts }
            | ServerState::Ready { restarts, .. }
            | ServerState::Pausing { restarts, .. } => restarts,
            ServerState::Stopping | ServerState::Stopped => 0,
        }
    }
}

fn pause(restarts: u32, now: Instant) -> ServerState {
    let factor = 2_u32.saturating_pow(restarts);
    ServerState::Pausing {
        until: now + SERVER_RESTART_FIRST.saturating_mul(factor).min(SERVER_RESTART_LAST),
        restarts: restarts.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    fn paused_until(phase: ServerState) -> Instant {
        match phase {
            ServerState::Pausing { until, .. } => until,
            other => panic!("not pausing: {other:?}"),
        }
    }

    #[test]
    fn rests_double_up_to_the_longest_and_good_service_forgives() {
        let mut now = Instant::now();
        let mut phase = ServerState::Ready { since: now, restarts: 0 };
        let mut rests_s = Vec::new();
        for _ in 0..7 {
            let step = phase.seen(Condition::Gone, now);
            let until = paused_until(step.next);
            rests_s.push((until - now).as_secs());
            assert_eq!(step.next.seen(Condition::Gone, now).effect, Effect::Nothing);
            now = until;
            assert_eq!(step.next.seen(Condition::Gone, now).effect, Effect::Launch);
            phase = step.next.launched(now);
        }
        assert_eq!(rests_s, [1, 2, 4, 8, 16, 30, 30]);

        let step = phase.seen(Condition::Accepting, now);
        assert_eq!(step.effect, Effect::ReportRestarted);
        let later = now + SERVER_HEALTHY_AFTER;
        let step = step.next.seen(Condition::Gone, later);
        assert_eq!(step.effect, Effect::ReportDied);
        assert_eq!(paused_until(step.next) - later, SERVER_RESTART_FIRST);
    }

    #[test]
    fn a_late_server_is_told_about_once_and_may_still_become_ready() {
        let now = Instant::now();
        let phase = ServerState::Pausing { until: now, restarts: 1 }.launched(now);
        assert_eq!(phase.seen(Condition::NotReady, now).effect, Effect::Nothing);
        let late = now + SERVER_START_TIMEOUT;
        let step = phase.seen(Condition::NotReady, late);
        assert_eq!(step.effect, Effect::ReportLate);
        let again = step.next.seen(Condition::NotReady, late);
        assert_eq!((again.next, again.effect), (step.next, Effect::Nothing));
        let ready = again.next.seen(Condition::Accepting, late);
        assert_eq!(ready.effect, Effect::ReportRestarted);
    }

    #[test]
    fn a_server_that_is_being_stopped_is_not_started_again() {
        let now = Instant::now();
        let step = ServerState::Stopping.seen(Condition::Accepting, now);
        assert_eq!((step.next, step.effect), (ServerState::Stopping, Effect::Nothing));
        let step = step.next.seen(Condition::Gone, now);
        assert_eq!((step.next, step.effect), (ServerState::Stopped, Effect::Nothing));
        let step = step.next.seen(Condition::Gone, now + SERVER_RESTART_LAST);
        assert_eq!((step.next, step.effect), (ServerState::Stopped, Effect::Nothing));
    }
}
