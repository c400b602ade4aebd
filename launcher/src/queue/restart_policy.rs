//! When a scheduler that has died is started again. PURE.
//!
//! A death after useful work costs nothing: the next one starts at once, unless many follow each other. Everything else
//! backs off, because a scheduler that failed before its first claim will most likely fail again.

use crate::limits::{DEATHS_MAX, DEATHS_PAUSE, DEATHS_WINDOW, HEALTHY_AFTER, RESTART_FIRST};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How a scheduler died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerDeath {
    /// By a signal, or by an exit nobody asked for, after its first claim.
    AfterWork,
    /// Before its first claim, by a temporary exit, a crash or a panic.
    Failure,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartPolicy {
    deaths: VecDeque<Instant>,
    failures: u32,
}

impl RestartPolicy {
    /// The moment of the next start after a death at `now` of a scheduler that had run since `began`; `longest` is the
    /// queue's own cap.
    pub fn next_start(&mut self, death: SchedulerDeath, began: Instant, now: Instant, longest: Duration) -> Instant {
        if now.saturating_duration_since(began) >= HEALTHY_AFTER {
            self.failures = 0;
        }
        match death {
            SchedulerDeath::AfterWork => {
                self.deaths.retain(|death| now.saturating_duration_since(*death) < DEATHS_WINDOW);
                self.deaths.push_back(now);
                if self.deaths.len() > DEATHS_MAX { now + DEATHS_PAUSE } else { now }
            }
            SchedulerDeath::Failure => {
                let delay = RESTART_FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
                self.failures = self.failures.saturating_add(1);
                now + delay
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(300);

    #[test]
    fn a_death_after_work_is_followed_by_a_start_at_once_and_six_in_a_row_by_a_pause_of_a_second() {
        let mut policy = RestartPolicy::default();
        let now = Instant::now();
        let waits: Vec<Duration> =
            (0..8).map(|_| policy.next_start(SchedulerDeath::AfterWork, now, now, CAP) - now).collect();
        assert_eq!(waits[..5], [Duration::ZERO; 5]);
        assert_eq!(waits[5..], [DEATHS_PAUSE; 3]);
        let later = now + DEATHS_WINDOW;
        assert_eq!(policy.next_start(SchedulerDeath::AfterWork, now, later, CAP), later);
    }

    #[test]
    fn failures_back_off_from_a_second_to_five_minutes_until_ten_minutes_of_health() {
        let mut policy = RestartPolicy::default();
        let now = Instant::now();
        let waits: Vec<u64> =
            (0..11).map(|_| (policy.next_start(SchedulerDeath::Failure, now, now, CAP) - now).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let later = now + HEALTHY_AFTER;
        assert_eq!(policy.next_start(SchedulerDeath::Failure, now, later, CAP), later + RESTART_FIRST);
    }
}
