//! PURE. What goes back from the batches of live workers: which tasks, and when it is tried again.
//!
//! A task is in here from the moment its batch was closed until the database has planned it again, or it is nobody's any
//! more. A row that somebody has locked is tried again after a pause; so is all of it after a lost session: the attempt
//! is the fence, and a second try changes nothing that it should not.

use crate::limits::RETURN_PAUSE;
use std::time::Instant;

#[derive(Debug, Default)]
pub struct Returns {
    /// To be given back.
    waiting: Vec<(i64, i32)>,
    /// Being given back at this moment.
    under_way: Vec<(i64, i32)>,
    next_try: Option<Instant>,
}

impl Returns {
    pub fn add(&mut self, tasks: Vec<(i64, i32)>, now: Instant) {
        if !tasks.is_empty() {
            self.waiting.extend(tasks);
            self.next_try = Some(now);
        }
    }

    pub fn knows(&self, task: i64, attempt: i32) -> bool {
        self.waiting.iter().chain(&self.under_way).any(|known| *known == (task, attempt))
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.next_try.filter(|_| self.under_way.is_empty() && !self.waiting.is_empty())
    }

    /// What is to be given back now, if anything is.
    pub fn begin(&mut self, now: Instant) -> Option<Vec<(i64, i32)>> {
        self.deadline().filter(|at| now >= *at)?;
        self.under_way = std::mem::take(&mut self.waiting);
        Some(self.under_way.clone())
    }

    /// It is done but for these. True: something has gone back, or is nobody's any more.
    pub fn done(&mut self, locked: Vec<(i64, i32)>, now: Instant) -> bool {
        let some = locked.len() < self.under_way.len();
        self.under_way.clear();
        if !locked.is_empty() {
            self.waiting.extend(locked);
            self.next_try = Some(now + RETURN_PAUSE);
        }
        some
    }

    /// The session is lost, and the answer with it.
    pub fn all_undone(&mut self, now: Instant) {
        let tasks = std::mem::take(&mut self.under_way);
        self.add(tasks, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_locked_or_lost_on_the_way_is_tried_again() {
        let now = Instant::now();
        let mut returns = Returns::default();
        assert_eq!((returns.deadline(), returns.begin(now)), (None, None));
        returns.add(vec![(1, 1), (2, 1)], now);
        assert_eq!(returns.begin(now), Some(vec![(1, 1), (2, 1)]));
        returns.add(vec![(3, 1)], now);
        assert_eq!(returns.begin(now), None, "one question at a time");
        assert!(returns.done(vec![(2, 1)], now));
        let later = returns.deadline().unwrap();
        assert!(later > now);
        assert_eq!(returns.begin(now), None);
        assert_eq!(returns.begin(later), Some(vec![(3, 1), (2, 1)]));
        returns.all_undone(later);
        assert_eq!(returns.begin(later), Some(vec![(3, 1), (2, 1)]));
        assert!(!returns.done(vec![(3, 1), (2, 1)], later));
        assert!(returns.deadline().is_some());
        assert_eq!(returns.begin(later + RETURN_PAUSE), Some(vec![(3, 1), (2, 1)]));
        assert!(returns.done(vec![], later));
        assert_eq!(returns.deadline(), None);
    }
}
