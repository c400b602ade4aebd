//! PURE. How long the last tasks took, and so how many are taken at once and how many may be on the wire.
//!
//! A task that is taken and not run yet is kept from others. So a worker takes several only if its last tasks were
//! short, and no more than would be done in `BATCH_SPAN`.

use crate::limits::{BATCH_SPAN, FEW_TASKS, FIRST_BATCH, MEASURED_TASKS, SHORT_TASK};
use shared::region::{BATCH_TASKS, ON_WIRE};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    batches: bool,
    seen: usize,
    last: [Duration; MEASURED_TASKS],
}

impl Pace {
    /// Without batches every task comes alone, however short.
    pub fn new(batches: bool) -> Pace {
        Pace { batches, seen: 0, last: [Duration::ZERO; MEASURED_TASKS] }
    }

    /// One more task.
    #[must_use]
    pub fn counted(mut self, took: Duration) -> Pace {
        self.last[self.seen % MEASURED_TASKS] = took;
        self.seen += 1;
        self
    }

    fn mean(self) -> Duration {
        let count = self.seen.clamp(1, MEASURED_TASKS);
        self.last[..count].iter().sum::<Duration>() / count as u32
    }

    /// How many are taken at once.
    pub fn size(self) -> usize {
        if !self.batches || self.seen == 0 {
            return 1;
        }
        let most = if self.seen < FEW_TASKS { FIRST_BATCH } else { BATCH_TASKS };
        let fit = BATCH_SPAN.as_nanos() / self.mean().as_nanos().max(1);
        usize::try_from(fit).unwrap_or(most).clamp(1, most)
    }

    /// How many may be on the wire: those cannot be taken back.
    pub fn depth(self) -> usize {
        if self.mean() < SHORT_TASK { ON_WIRE } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(tasks_ms: &[u64]) -> Pace {
        tasks_ms.iter().fold(Pace::new(true), |pace, ms| pace.counted(Duration::from_millis(*ms)))
    }

    #[test]
    fn a_batch_is_what_fits_into_its_span() {
        assert_eq!((after(&[]).size(), after(&[0]).size()), (1, FIRST_BATCH), "too few to know");
        assert_eq!(after(&[15]).size(), 1);
        assert_eq!(after(&[0; 2]).size(), BATCH_TASKS);
        assert_eq!(after(&[1; 2]).size(), BATCH_TASKS);
        assert_eq!(after(&[2; 2]).size(), 10);
        assert_eq!(after(&[10; 4]).size(), 2);
        assert_eq!(after(&[15; 4]).size(), 1);
        assert_eq!(after(&[3_600_000; 4]).size(), 1);
    }

    #[test]
    fn one_long_task_makes_the_next_batches_smaller_for_a_while() {
        let mut pace = after(&[0; 20]).counted(Duration::from_millis(60));
        for _ in 0..MEASURED_TASKS - 1 {
            assert_eq!((pace.size(), pace.depth()), (2, 1));
            pace = pace.counted(Duration::ZERO);
        }
        pace = pace.counted(Duration::ZERO);
        assert_eq!((pace.size(), pace.depth()), (BATCH_TASKS, 2));
    }

    #[test]
    fn without_batches_every_task_comes_alone() {
        let pace = (0..100).fold(Pace::new(false), |pace, _| pace.counted(Duration::ZERO));
        assert_eq!(pace.size(), 1);
    }
}
