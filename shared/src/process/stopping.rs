//! How launcher and scheduler end when they are asked to. PURE.
//!
//! TERM lets running tasks finish within `close`; INT, a second TERM or the end of that time cancels them and plans
//! them again; after a last while the process leaves whatever is left to the next start's recovery.

use crate::limits::CANCEL_TIMEOUT;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// Not asked to stop.
    No,
    /// No new tasks; running ones may finish until then.
    Finish { until: Instant },
    /// Running tasks are cancelled; at the latest then the process leaves.
    Cancel { until: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopEvent {
    Finish { now: Instant, close: Duration },
    Cancel { now: Instant },
    Passed { now: Instant },
}

/// Whether running tasks are to be cancelled now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopStep {
    pub next: Stopping,
    pub cancel_tasks: bool,
}

pub fn step(state: Stopping, event: StopEvent) -> StopStep {
    let cancel = |now: Instant| StopStep { next: Stopping::Cancel { until: now + CANCEL_TIMEOUT }, cancel_tasks: true };
    let stay = StopStep { next: state, cancel_tasks: false };
    match (state, event) {
        (Stopping::No, StopEvent::Finish { now, close }) => {
            StopStep { next: Stopping::Finish { until: now + close }, cancel_tasks: false }
        }
        (Stopping::No | Stopping::Finish { .. }, StopEvent::Cancel { now }) => cancel(now),
        // A second TERM is an INT.
        (Stopping::Finish { .. }, StopEvent::Finish { now, .. }) => cancel(now),
        (Stopping::Finish { until }, StopEvent::Passed { now }) if now >= until => cancel(now),
        (Stopping::No | Stopping::Finish { .. }, StopEvent::Passed { .. }) => stay,
        (Stopping::Cancel { .. }, StopEvent::Finish { .. } | StopEvent::Cancel { .. } | StopEvent::Passed { .. }) => {
            stay
        }
    }
}

impl Stopping {
    pub fn asked(self) -> bool {
        self != Stopping::No
    }

    /// What runs may still finish.
    pub fn lets_finish(self) -> bool {
        matches!(self, Stopping::No | Stopping::Finish { .. })
    }

    pub fn deadline(self) -> Option<Instant> {
        match self {
            Stopping::No => None,
            Stopping::Finish { until } | Stopping::Cancel { until } => Some(until),
        }
    }

    /// Nothing more is waited for.
    pub fn over(self, now: Instant) -> bool {
        matches!(self, Stopping::Cancel { until } if now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_to_finish_cancels_what_runs() {
        let now = Instant::now();
        let close = Duration::from_secs(60);
        let first = step(Stopping::No, StopEvent::Finish { now, close });
        assert_eq!(first, StopStep { next: Stopping::Finish { until: now + close }, cancel_tasks: false });
        let second = step(first.next, StopEvent::Finish { now, close });
        assert_eq!(second, StopStep { next: Stopping::Cancel { until: now + CANCEL_TIMEOUT }, cancel_tasks: true });
    }

    #[test]
    fn tasks_that_do_not_finish_in_time_are_cancelled_and_not_waited_for_for_ever() {
        let now = Instant::now();
        let close = Duration::from_secs(1);
        let finishing = step(Stopping::No, StopEvent::Finish { now, close }).next;
        let late = step(finishing, StopEvent::Passed { now: now + close });
        assert!(late.cancel_tasks);
        assert!(!late.next.over(now + close));
        assert!(late.next.over(now + close + CANCEL_TIMEOUT));
    }
}
