//! PURE. Rows in TAKE or WORK that this scheduler knows nothing of: which of them are nobody's.
//!
//! A row may be claimed for a moment before its session reports the claim. So a row counts only if two passes in a row
//! find it in the same attempt. One that names the backend of a live worker might be what that worker has just claimed
//! and not yet begun; it is not, if the worker is at another task by now than in the first pass, or still at one that has
//! not ended.

use std::collections::BTreeMap;

/// A claimed row that nobody has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    pub task: i64,
    pub attempt: i32,
    /// The server process that runs it, if it had got so far.
    pub backend: Option<i32>,
}

/// A task and its attempt.
type TaskAttempt = (i64, i32);

#[derive(Debug, Default)]
pub struct Leftovers {
    /// Found in the last pass, and what the live worker was at whose backend it names.
    suspects: BTreeMap<TaskAttempt, Option<TaskAttempt>>,
}

impl Leftovers {
    /// Of the claimed rows, those that are nobody's. `holds`: it is in our hands; `at`: what the live worker is at that has
    /// this backend.
    pub fn judge(
        &mut self,
        found: &[Unfinished],
        holds: impl Fn(i64, i32) -> bool,
        at: impl Fn(i32) -> Option<TaskAttempt>,
    ) -> Vec<TaskAttempt> {
        let before = std::mem::take(&mut self.suspects);
        let mut nobodys = Vec::new();
        for Unfinished { task, attempt, backend } in found {
            let claim = (*task, *attempt);
            if holds(*task, *attempt) {
                continue;
            }
            let now = backend.and_then(&at);
            let not_begun = |worker: TaskAttempt| {
                before.get(&claim) == Some(&Some(worker))
                    && !found.iter().any(|other| (other.task, other.attempt) == worker)
            };
            if before.contains_key(&claim) && !now.is_some_and(not_begun) {
                nobodys.push(claim);
            } else {
                self.suspects.insert(claim, now);
            }
        }
        nobodys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: i32 = 4711;

    fn row(task: i64, attempt: i32, backend: Option<i32>) -> Unfinished {
        Unfinished { task, attempt, backend }
    }

    #[test]
    fn a_row_is_nobodys_when_it_is_found_twice_in_one_attempt() {
        let mut leftovers = Leftovers::default();
        let mut judge = |found: &[Unfinished]| leftovers.judge(found, |task, _| task == 1, |_| None);
        assert_eq!(judge(&[row(1, 1, None), row(2, 1, None)]), []);
        assert_eq!(judge(&[row(1, 1, None), row(2, 2, None), row(3, 1, None)]), [], "it was taken anew");
        assert_eq!(judge(&[row(2, 2, None)]), [(2, 2)]);
        assert_eq!(judge(&[]), []);
        assert_eq!(judge(&[row(3, 1, None)]), [], "it was gone meanwhile");
    }

    #[test]
    fn what_a_worker_may_just_have_claimed_is_left_alone_until_the_worker_has_got_further() {
        let claimed = [row(2, 1, Some(B))];
        let at = |task: i64| move |_: i32| Some((task, 1));
        let mut leftovers = Leftovers::default();
        assert_eq!(leftovers.judge(&claimed, |_, _| false, at(1)), []);
        assert_eq!(leftovers.judge(&claimed, |_, _| false, at(1)), [], "frozen between two tasks");
        let both = [row(1, 1, Some(B)), row(2, 1, Some(B))];
        assert_eq!(leftovers.judge(&both, |task, _| task == 1, at(1)), [(2, 1)], "still at the first one");
        assert_eq!(leftovers.judge(&claimed, |_, _| false, at(1)), []);
        assert_eq!(leftovers.judge(&claimed, |_, _| false, at(3)), [(2, 1)], "at another one");
        assert_eq!(leftovers.judge(&claimed, |_, _| false, at(3)), []);
        assert_eq!(leftovers.judge(&claimed, |_, _| false, |_| None), [(2, 1)], "it is gone");
    }
}
