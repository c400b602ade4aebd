//! When to try again: a delay that doubles from a first value up to a cap.

use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct BackOff {
    first: Duration,
    cap: Duration,
    tries: u32,
}

impl BackOff {
    pub const fn new(first: Duration, cap: Duration) -> BackOff {
        BackOff { first, cap, tries: 0 }
    }

    /// The moment of the next try after one more failure at `now`.
    pub fn next(&mut self, now: Instant) -> Instant {
        let delay = self.first.saturating_mul(1 << self.tries.min(16)).min(self.cap);
        self.tries = self.tries.saturating_add(1);
        now + delay
    }

    pub fn succeeded(&mut self) {
        self.tries = 0;
    }

    /// Nothing has failed since the last success.
    pub fn fresh(&self) -> bool {
        self.tries == 0
    }

    pub fn set_cap(&mut self, cap: Duration) {
        self.cap = cap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_cap_and_starts_anew_after_a_success() {
        let mut back_off = BackOff::new(Duration::from_millis(100), Duration::from_millis(500));
        let now = Instant::now();
        let delays: Vec<u128> = (0..5).map(|_| (back_off.next(now) - now).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 500, 500]);
        back_off.succeeded();
        assert_eq!((back_off.next(now) - now).as_millis(), 100);
    }
}
