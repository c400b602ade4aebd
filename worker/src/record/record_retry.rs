//! PURE. How a result is recorded that the server has refused: in which form, and when it is sent again.
//!
//! A result is kept until the database has it. What is wrong with the machine passes, so the same result is sent again, later
//! and later. What is wrong with the data is recorded in a form that the row can take. An input is never run again because its
//! end could not be recorded.

use crate::limits::{
    LARGE_RESULT_BYTES, LARGE_RESULT_TIMEOUT, LONGEST_RECORD_PAUSE, QUICK_TRIES, RECORD_PAUSE, RIGHTS_TRIES,
};
use shared::db::back_off::BackOff;
use shared::db::refusal::Refusal;
use std::time::Instant;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordForm {
    /// The result as it is.
    Whole,
    /// As a failure with its output and the server's complaint, without repetition and pause.
    Failed,
    /// The same without output, the error in ASCII and cut.
    Plainest,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once, on the same session.
    Now(RecordForm),
    /// At this moment. A session that was lost is opened anew.
    At(Instant, RecordForm),
    /// There is nothing to record it in, or a rule of the table's owner refuses every form: the row is left to the scheduler.
    Leave,
}

#[derive(Debug)]
pub struct RecordRetry {
    form: RecordForm,
    bytes: usize,
    pause: BackOff,
    transient: u32,
    stale: bool,
    plainest_refused: u32,
    rights: u32,
    /// The plainest form was sent behind the whole result.
    behind: bool,
    out_of_memory_since: Option<Instant>,
}

impl RecordRetry {
    /// Of a result of so many bytes.
    pub fn new(bytes: usize) -> RecordRetry {
        RecordRetry {
            form: RecordForm::Whole,
            bytes,
            pause: BackOff::new(RECORD_PAUSE, LONGEST_RECORD_PAUSE),
            transient: 0,
            stale: false,
            plainest_refused: 0,
            rights: 0,
            behind: false,
            out_of_memory_since: None,
        }
    }

    /// The server has refused what was last sent. `out_of_memory`: for that reason.
    pub fn refused(&mut self, refusal: Refusal, out_of_memory: bool, now: Instant) -> Retry {
        match refusal {
            Refusal::Gone => Retry::Leave,
            Refusal::Machine if out_of_memory && self.bytes >= LARGE_RESULT_BYTES => {
                let since = *self.out_of_memory_since.get_or_insert(now);
                if now.saturating_duration_since(since) >= LARGE_RESULT_TIMEOUT {
                    self.form = RecordForm::Plainest;
                }
                self.later(now)
            }
            Refusal::Machine | Refusal::Unknown => self.later(now),
            Refusal::Transient => {
                self.transient += 1;
                if self.transient <= QUICK_TRIES { Retry::Now(self.form) } else { self.later(now) }
            }
            Refusal::Stale if !self.stale => {
                self.stale = true;
                Retry::Now(self.form)
            }
            Refusal::Stale | Refusal::Data => match self.form {
                RecordForm::Whole => self.plainer(RecordForm::Failed),
                RecordForm::Failed => self.plainer(RecordForm::Plainest),
                RecordForm::Plainest if self.plainest_refused >= RIGHTS_TRIES => Retry::Leave,
                RecordForm::Plainest => {
                    self.plainest_refused += 1;
                    self.later(now)
                }
            },
            Refusal::Rights => self.without_rights(now),
        }
    }

    fn plainer(&mut self, form: RecordForm) -> Retry {
        self.form = form;
        Retry::Now(form)
    }

    fn later(&mut self, now: Instant) -> Retry {
        Retry::At(self.pause.next(now), self.form)
    }

    /// A person has to change something. The result is tried again and again, and from the third time on the plainest form
    /// right behind it: when the right is given, the whole result comes first.
    fn without_rights(&mut self, now: Instant) -> Retry {
        if std::mem::take(&mut self.behind) {
            return self.later(now);
        }
        self.rights += 1;
        self.behind = self.rights >= RIGHTS_TRIES;
        if self.behind { Retry::Now(RecordForm::Plainest) } else { self.later(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(retry: Retry) -> RecordForm {
        match retry {
            Retry::At(_, form) => form,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_disk_never_changes_the_result_and_is_tried_ever_more_seldom() {
        let mut retry = RecordRetry::new(LARGE_RESULT_BYTES);
        let now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            match retry.refused(Refusal::Machine, false, now) {
                Retry::At(at, RecordForm::Whole) => pauses.push((at - now).as_millis()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn data_that_are_refused_are_recorded_in_a_plainer_form_at_once() {
        let (mut retry, now) = (RecordRetry::new(0), Instant::now());
        assert_eq!(retry.refused(Refusal::Data, false, now), Retry::Now(RecordForm::Failed));
        assert_eq!(retry.refused(Refusal::Data, false, now), Retry::Now(RecordForm::Plainest));
        for _ in 0..RIGHTS_TRIES {
            assert_eq!(at(retry.refused(Refusal::Data, false, now)), RecordForm::Plainest);
        }
        assert_eq!(retry.refused(Refusal::Data, false, now), Retry::Leave, "it is the table's owner who refuses");
    }

    #[test]
    fn a_stale_statement_is_sent_once_more_and_then_taken_for_bad_data() {
        let (mut retry, now) = (RecordRetry::new(0), Instant::now());
        assert_eq!(retry.refused(Refusal::Stale, false, now), Retry::Now(RecordForm::Whole));
        assert_eq!(retry.refused(Refusal::Stale, false, now), Retry::Now(RecordForm::Failed));
    }

    #[test]
    fn what_is_in_the_way_for_a_moment_is_tried_three_times_at_once() {
        let (mut retry, now) = (RecordRetry::new(0), Instant::now());
        for _ in 0..QUICK_TRIES {
            assert_eq!(retry.refused(Refusal::Transient, false, now), Retry::Now(RecordForm::Whole));
        }
        assert_eq!(at(retry.refused(Refusal::Transient, false, now)), RecordForm::Whole);
    }

    #[test]
    fn without_a_right_the_whole_result_and_the_plainest_form_take_turns() {
        let (mut retry, now) = (RecordRetry::new(0), Instant::now());
        for _ in 1..RIGHTS_TRIES {
            assert_eq!(at(retry.refused(Refusal::Rights, false, now)), RecordForm::Whole);
        }
        for _ in 0..3 {
            assert_eq!(retry.refused(Refusal::Rights, false, now), Retry::Now(RecordForm::Plainest));
            assert_eq!(at(retry.refused(Refusal::Rights, false, now)), RecordForm::Whole);
        }
    }

    #[test]
    fn only_a_large_result_is_cut_for_lack_of_memory_and_only_after_ten_minutes() {
        let (mut small, mut large, now) =
            (RecordRetry::new(1000), RecordRetry::new(LARGE_RESULT_BYTES), Instant::now());
        for retry in [&mut small, &mut large] {
            assert_eq!(at(retry.refused(Refusal::Machine, true, now)), RecordForm::Whole);
        }
        assert_eq!(at(small.refused(Refusal::Machine, true, now + LARGE_RESULT_TIMEOUT)), RecordForm::Whole);
        assert_eq!(at(large.refused(Refusal::Machine, true, now + LARGE_RESULT_TIMEOUT)), RecordForm::Plainest);
    }

    #[test]
    fn a_table_that_is_gone_ends_it() {
        assert_eq!(RecordRetry::new(0).refused(Refusal::Gone, false, Instant::now()), Retry::Leave);
    }
}
