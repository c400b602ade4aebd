//! A server that refuses to write: its disk is full, it lacks memory, or it takes no writes now.
//!
//! Its sessions are alive, so nothing is given up. What was refused is asked again later and later: results are kept, claims
//! pause. The outage is one line in the log when it begins, one each minute while it lasts, and one when it is over. Workers
//! that record their results themselves wait in the same way (`worker::recorder`) and say so in their slots.

use shared::db::back_off::BackOff;
use shared::db::trouble::TroubleKind;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So often a refusal because of another transaction is followed by another try at once.
const QUICK_TRIES: u32 = 3;
const REMINDER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct WritePause {
    pause: BackOff,
    /// Nothing is written before then.
    until: Option<Instant>,
    /// When the outage was last told.
    told: Option<Instant>,
    busy: u32,
}

impl Default for WritePause {
    fn default() -> WritePause {
        WritePause { pause: BackOff::new(FIRST_PAUSE, LONGEST_PAUSE), until: None, told: None, busy: 0 }
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

    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// One more refusal. True: another transaction was in the way, and that is no outage yet.
    pub fn refused(&mut self, kind: TroubleKind, now: Instant) -> bool {
        if kind == TroubleKind::Busy {
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

    /// The outage is to be reported again.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= REMINDER);
        if due {
            self.told = Some(now);
        }
        due
    }

    /// The server has written something, or there was nothing to write. True: a reported outage is over.
    pub fn succeeded(&mut self) -> bool {
        self.busy = 0;
        self.until = None;
        self.pause.succeeded();
        self.told.take().is_some()
    }
}
