//! How many failed tasks have been logged: all processes of a launcher together log `FAILURES_LOGGED` of them in
//! `FAILURES_PERIOD`. The rest is counted, and the count is in the next line.
//!
//! One word: the period above, the number of its failures below. Who moves it to the next period reports the former one.

use super::{HostMoment, Region, layout};
use crate::limits::{FAILURES_LOGGED, FAILURES_PERIOD};
use std::sync::atomic::Ordering::{AcqRel, Acquire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureCount {
    period: u32,
    failures: u32,
}

impl FailureCount {
    fn unpack(word: u64) -> FailureCount {
        FailureCount { period: (word >> 32) as u32, failures: word as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.period) << 32 | u64::from(self.failures)
    }

    fn unlogged(self) -> u32 {
        self.failures.saturating_sub(FAILURES_LOGGED)
    }

    /// One more failure. Some: it is logged, with the number of earlier ones that were not.
    fn failed(self, period: u32) -> (FailureCount, Option<u32>) {
        if period != self.period {
            return (FailureCount { period, failures: 1 }, Some(self.unlogged()));
        }
        let failures = self.failures.saturating_add(1);
        (FailureCount { failures, ..self }, (failures <= FAILURES_LOGGED).then_some(0))
    }

    /// How many of a period that is over were not logged.
    fn passed(self, period: u32) -> (FailureCount, u32) {
        if period == self.period { (self, 0) } else { (FailureCount { period, failures: 0 }, self.unlogged()) }
    }
}

impl Region {
    /// Some: a failed task is logged now, with the number of earlier ones that were not.
    pub fn count_failure(&self) -> Option<u32> {
        self.change_failures(|count, period| count.failed(period))
    }

    /// By the launcher, once in a while: how many failed tasks of a period that is over were not logged.
    pub fn take_unlogged_failures(&self) -> u32 {
        self.change_failures(|count, period| count.passed(period))
    }

    fn change_failures<T>(&self, change: impl Fn(FailureCount, u32) -> (FailureCount, T)) -> T {
        let period = (HostMoment::now().millis() / FAILURES_PERIOD.as_millis() as u64) as u32;
        let word = self.words.at(layout::HEADER_FAILURES);
        let mut seen = word.load(Acquire);
        loop {
            let (next, told) = change(FailureCount::unpack(seen), period);
            match word.compare_exchange(seen, next.pack(), AcqRel, Acquire) {
                Ok(_) => return told,
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failures_of_a_period_are_logged_and_the_rest_is_counted_once() {
        let mut count = FailureCount::unpack(0);
        for number in 1..=FAILURES_LOGGED + 7 {
            let (next, logged) = count.failed(5);
            assert_eq!(logged, (number <= FAILURES_LOGGED).then_some(0));
            count = FailureCount::unpack(next.pack());
        }
        assert_eq!(count.passed(5), (count, 0));
        assert_eq!(count.failed(6), (FailureCount { period: 6, failures: 1 }, Some(7)));
        let (after, unlogged) = count.passed(6);
        assert_eq!((unlogged, after.passed(7).1, after.failed(6).1), (7, 0, Some(0)));
    }
}
