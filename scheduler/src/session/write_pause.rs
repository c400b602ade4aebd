//! A server that refuses to write: its disk is full, it lacks memory, or it takes no writes now.
//!
//! PURE. Its sessions are alive, so nothing is given up. What was refused is asked again later and later: results are kept, claims
//! pause. The outage is one line in the log when it begins, one each minute while it lasts, and one when it is over. Workers
//! that record their results themselves wait in the same way (`worker`) and say so in their slots.

use shared::db::back_off::BackOff;
use shared::db::db_error::DbErrorKind;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So often a refusal because of another transaction is followed by another try at once.
const QUICK_TRIES: u32 = 3;
const REMINDER: Duration = Duration::from_secs(60);
/// A disk that is nearly full takes some writes and refuses others. The outage is over when the last refusal is so long ago,
/// which is longer than tries are apart.
const CALM: Duration = Duration::from_secs(6);

#[derive(Debug)]
pub struct WritePause {
    pause: BackOff,
    /// Nothing is written before then.
    until: Option<Instant>,
    /// When the outage was last told.
    told: Option<Instant>,
    /// The last refusal, and whether something was written since.
    last: Option<Instant>,
    written: bool,
    busy: u32,
}

impl Default for WritePause {
    fn default() -> WritePause {
        let pause = BackOff::new(FIRST_PAUSE, LONGEST_PAUSE);
        WritePause { pause, until: None, told: None, last: None, written: false, busy: 0 }
    }
}

impl WritePause {
    /// Writing is to be left alone for the moment.
    pub fn pauses(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Until when nothing is written, while that lasts.
    pub fn pauses_until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Something was written since the last refusal.
    pub fn has_written(&self) -> bool {
        self.written
    }

    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let calm = self.last.filter(|_| self.written && self.told.is_some()).map(|last| last + CALM);
        self.pauses_until(now).into_iter().chain(calm).min()
    }

    /// One more refusal. True: another transaction was in the way, and that is no outage yet.
    pub fn refused(&mut self, kind: DbErrorKind, now: Instant) -> bool {
        if kind == DbErrorKind::Busy {
            self.busy += 1;
            if self.busy <= QUICK_TRIES {
                return true;
            }
        }
        // Questions that were in flight together count once.
        if !self.pauses(now) {
            self.until = Some(self.pause.next(now));
        }
        false
    }

    /// The server still does not write. True: that is to be reported again.
    pub fn lasts(&mut self, now: Instant) -> bool {
        (self.last, self.written) = (Some(now), false);
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= REMINDER);
        if due {
            self.told = Some(now);
        }
        due
    }

    /// The server has written something, or there was nothing to write.
    pub fn accepted(&mut self) {
        self.busy = 0;
        self.until = None;
        self.written = true;
        self.pause.succeeded();
    }

    /// True: it was reported, and is over.
    pub fn ends(&mut self, now: Instant) -> bool {
        let calm = self.written && self.last.is_none_or(|last| now.saturating_duration_since(last) >= CALM);
        calm && self.told.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_in_which_some_writes_pass_is_one() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut pause = WritePause::default();
        assert!(!pause.ends(began));
        for second in 0..30 {
            assert!(!pause.refused(DbErrorKind::Short, at(second)) && pause.pauses(at(second)));
            assert_eq!(pause.lasts(at(second)), second == 0);
            pause.accepted();
            assert!(!pause.pauses(at(second)) && !pause.ends(at(second)));
        }
        assert_eq!(pause.deadline(at(30)), Some(at(35)));
        assert!(!pause.ends(at(34)) && pause.ends(at(35)) && !pause.ends(at(36)));
        assert_eq!(pause.deadline(at(36)), None);
        assert!(pause.lasts(at(40)) && !pause.ends(at(60)), "nothing was written since");
        assert!(!pause.lasts(at(99)) && pause.lasts(at(100)), "told again after a minute");
    }
}
