//! A server that refuses to write: its disk is full, it lacks memory, or it takes no writes now.
//!
//! Its sessions are alive, so nothing is given up. What was refused is asked again later and later: results are kept, claims
//! pause. The outage is one line in the log when it begins, one each minute while it lasts, and one when it is over. Workers
//! that record their results themselves wait in the same way (`worker::recorder`) and say so in their slots.

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

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= REMINDER);
        if due {
            self.told = Some(now);
        }
        due
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
        if self.session.write_pause.is_due(now) {
            self.session.said.remind();
        }
        self.say(Trouble { kind: TroubleKind::Short, text });
    }

    /// Workers that wait until the server takes their results.
    pub(crate) fn hear_recorders(&mut self, now: Instant) {
        if let Some(why) = self.attempts.table.recording() {
            self.tell_write_pause(&why, now);
        } else if self.session.write_pause.is_told()
            && self.attempts.records.is_empty()
            && !self.session.write_pause.pauses(now)
        {
            // Nothing waits to be written: the next claim shows whether the server does.
            self.claims.timer.hurry(now);
        }
    }

    /// The server has written something, or there was nothing to write.
    pub(crate) fn written(&mut self) {
        if self.attempts.table.recording().is_some() {
            return;
        }
        self.session.write_pause.busy = 0;
        self.session.write_pause.until = None;
        self.session.write_pause.pause.succeeded();
        if self.session.write_pause.told.take().is_some() {
            self.say_well();
        }
    }
}
