//! A server that refuses to write: its disk is full, it lacks memory, or it takes no writes now.
//!
//! Its sessions are alive, so nothing is given up. What was refused is asked again later and later: results are kept, claims
//! pause. The outage is one line in the log when it begins, one each minute while it lasts, and one when it is over. Workers
//! that record their results themselves wait in the same way (`worker::record`) and say so in their slots.

use crate::attempt::attempts::UnfinishedQuestion;
use crate::command::Refused;
use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use shared::db::back_off::BackOff;
use shared::db::lock_key;
use shared::db::trouble::{Trouble, TroubleKind};
use std::future::Future;
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

    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let calm = self.last.filter(|_| self.written && self.told.is_some()).map(|last| last + CALM);
        self.until.filter(|until| now < *until).into_iter().chain(calm).min()
    }

    /// One more refusal. True: another transaction was in the way, and that is no outage yet.
    fn refused(&mut self, kind: TroubleKind, now: Instant) -> bool {
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

    /// True: it is to be told.
    fn lasts(&mut self, now: Instant) -> bool {
        (self.last, self.written) = (Some(now), false);
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= REMINDER);
        if due {
            self.told = Some(now);
        }
        due
    }

    fn accepted(&mut self) {
        self.busy = 0;
        self.until = None;
        self.written = true;
        self.pause.succeeded();
    }

    /// True: it was told, and is over.
    fn ends(&mut self, now: Instant) -> bool {
        let calm = self.written && self.last.is_none_or(|last| now.saturating_duration_since(last) >= CALM);
        calm && self.told.take().is_some()
    }
}

/// A refusal that leaves the session alive becomes an answer; any other is the end of the session.
pub async fn or_refused(
    what: Refused,
    answer: impl Future<Output = Result<Answer, Trouble>>,
) -> Result<Answer, Trouble> {
    match answer.await {
        Err(trouble) if matches!(trouble.kind, TroubleKind::Short | TroubleKind::Busy) => {
            Ok(Answer::Refused(what, trouble))
        }
        answer => answer,
    }
}

impl Scheduler {
    pub(crate) fn refused(&mut self, what: Refused, trouble: &Trouble, now: Instant) {
        shared::debug!("a statement was refused", queue = self.base.label, what = format!("{what:?}"), why = trouble);
        let quick = self.session.write_pause.refused(trouble.kind, now);
        if !quick {
            self.tell_write_pause(&trouble.text, now);
        }
        match what {
            Refused::Look => {
                self.release_reserved();
                self.errands_lost();
                self.let_go_of_bell();
                self.claims.timer.forget(now);
            }
            Refused::Results => self.errands_lost(),
            Refused::Begins => self.attempts.begins.refused(),
            Refused::Settlement(run) => self.attempts.table.unsettled(run, now),
            Refused::Returns => self.attempts.returns.all_undone(now),
            Refused::Unfinished(purpose) => {
                self.attempts.unfinished = UnfinishedQuestion::Wanted;
                self.attempts.purpose.sweep |= purpose.sweep;
                self.attempts.purpose.adopt |= purpose.adopt;
            }
            Refused::Retirement(backend) => self.pool.retired(backend, false, now),
            Refused::Chore => {}
        }
        if let Some(until) = self.session.write_pause.until.filter(|until| now < *until) {
            self.claims.timer.hold_off(until);
        }
    }

    /// A look that was refused may hold the lock that says that we sleep, and a transaction that has failed.
    fn let_go_of_bell(&mut self) {
        let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) else { return };
        link.ask("tidying the session", ANSWER_TIMEOUT, move |client| async move {
            client.batch_execute("ROLLBACK").await.map_err(|error| Trouble::of(&error))?;
            loop {
                let row = client.query_one(&statements.unlock, &[&lock_key::BELL, &statements.relid]).await;
                if !row.map_err(|error| Trouble::of(&error))?.get::<_, bool>("done") {
                    return Ok(Answer::Named);
                }
            }
        });
    }

    fn tell_write_pause(&mut self, why: &str, now: Instant) {
        let text = format!("the server does not write: {why}; results are kept until it does");
        if self.session.write_pause.lasts(now) {
            self.session.said.remind();
        }
        self.say(Trouble { kind: TroubleKind::Short, text });
    }

    /// Workers that wait until the server takes their results.
    pub(crate) fn hear_recorders(&mut self, now: Instant) {
        if let Some(why) = self.attempts.table.recording() {
            self.tell_write_pause(&why, now);
        } else if self.session.state.working() && self.session.write_pause.ends(now) {
            self.say_well();
        } else if self.session.write_pause.is_told()
            && !self.session.write_pause.written
            && self.attempts.records.is_empty()
            && !self.session.write_pause.pauses(now)
        {
            // Nothing waits to be written: the next claim shows whether the server does.
            self.claims.timer.hurry(now);
        }
    }

    /// The server has written something, or there was nothing to write. The next turn tells if the outage is over.
    pub(crate) fn written(&mut self) {
        if self.attempts.table.recording().is_some() {
            return;
        }
        self.session.write_pause.accepted();
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
            assert!(!pause.refused(TroubleKind::Short, at(second)) && pause.pauses(at(second)));
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
