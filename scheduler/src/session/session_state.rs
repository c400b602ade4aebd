//! How far the scheduler's session has come. PURE: no clock, no connection.
//!
//! The scheduler outlives its server: whatever breaks, it waits and begins again from the top, and what its workers
//! do meanwhile is looked at when the session works again. The table in the crate's README is printed from here.

use shared::db::back_off::BackOff;
use shared::db::db_error::DbError;
use std::time::{Duration, Instant};

/// How long another holder of the queue's lock is tolerated when the lock was ours before.
pub const REGAIN_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const LOCK_PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub enum SessionState {
    /// No connection; the next try is due at a moment.
    Down { retry_at: Instant },
    /// Connecting.
    Dialling,
    /// Connected; whatever must be over before this database is looked at is waited for.
    Standing,
    /// Table, lock and unfinished rows are being looked at.
    Preparing,
    /// Connected, but the queue belongs to another scheduler; asked again at a moment.
    Excluded { retry_at: Instant, since: Instant },
    /// The queue is ours: tasks are claimed.
    Working,
}

#[derive(Clone, Debug)]
pub enum SessionEvent {
    Passed {
        now: Instant,
    },
    Up,
    /// Nothing is in the way any more.
    Admitted,
    Prepared,
    /// Another scheduler holds the queue's lock.
    Refused {
        now: Instant,
    },
    Lost {
        now: Instant,
        db_error: DbError,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEffect {
    Dial,
    Stand,
    Prepare,
    /// Say the reason, in the log (once) and in the slot status.
    Say(DbError),
    /// Report that the error is over.
    SayWell,
    /// The queue was lost to another scheduler for good: leave, so that no worker of ours goes on.
    GiveUp,
}

#[must_use]
#[derive(Debug)]
pub struct SessionStep {
    pub next: SessionState,
    pub effects: Vec<SessionEffect>,
}

/// The session's machine with what it must remember between steps.
#[derive(Debug)]
pub struct SessionMachine {
    pub state: SessionState,
    back_off: BackOff,
    /// Whether the lock has ever been ours.
    pub held_before: bool,
}

impl SessionMachine {
    pub fn new(now: Instant) -> SessionMachine {
        let back_off = BackOff::new(RETRY_FIRST, Duration::from_secs(1));
        SessionMachine { state: SessionState::Down { retry_at: now }, back_off, held_before: false }
    }

    pub fn working(&self) -> bool {
        matches!(self.state, SessionState::Working)
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            SessionState::Down { retry_at } | SessionState::Excluded { retry_at, .. } => Some(retry_at),
            SessionState::Dialling | SessionState::Standing | SessionState::Preparing | SessionState::Working => None,
        }
    }

    /// Steps and returns what is to be done.
    pub fn handle(&mut self, event: SessionEvent) -> Vec<SessionEffect> {
        let state = std::mem::replace(&mut self.state, SessionState::Dialling);
        let step = step(state, event, &mut self.back_off, self.held_before);
        self.state = step.next;
        self.held_before |= self.working();
        step.effects
    }
}

pub fn step(state: SessionState, event: SessionEvent, back_off: &mut BackOff, held_before: bool) -> SessionStep {
    use SessionEffect as F;
    use SessionEvent as E;
    use SessionState as S;
    let go = |next: S, effects: Vec<F>| SessionStep { next, effects };
    match (state, event) {
        (S::Down { retry_at }, E::Passed { now }) if now >= retry_at => go(S::Dialling, vec![F::Dial]),
        (S::Excluded { retry_at, since }, E::Passed { now }) if now >= retry_at => {
            if held_before && now >= since + REGAIN_TIMEOUT {
                go(S::Excluded { retry_at, since }, vec![F::GiveUp])
            } else {
                go(S::Excluded { retry_at: now + LOCK_PAUSE, since }, vec![F::Prepare])
            }
        }
        (S::Dialling, E::Up) => go(S::Standing, vec![F::Stand]),
        (S::Standing, E::Admitted) => go(S::Preparing, vec![F::Prepare]),
        (S::Preparing | S::Excluded { .. }, E::Prepared) => {
            back_off.succeeded();
            go(S::Working, vec![F::SayWell])
        }
        (S::Preparing, E::Refused { now }) => go(
            S::Excluded { retry_at: now + LOCK_PAUSE, since: now },
            vec![F::Say(DbError::passing("another scheduler serves this queue; waiting for it to end"))],
        ),
        (
            S::Down { .. } | S::Dialling | S::Standing | S::Preparing | S::Excluded { .. } | S::Working,
            E::Lost { now, db_error },
        ) => {
            back_off.set_cap(db_error.retry_cap());
            go(S::Down { retry_at: back_off.next(now) }, vec![F::Say(db_error)])
        }
        // Nothing to do yet, or an answer that came too late.
        (
            state @ (S::Down { .. } | S::Dialling | S::Standing | S::Preparing | S::Excluded { .. } | S::Working),
            E::Passed { .. },
        ) => go(state, vec![]),
        (state @ (S::Down { .. } | S::Standing | S::Preparing | S::Excluded { .. } | S::Working), E::Up) => {
            go(state, vec![])
        }
        (state @ (S::Down { .. } | S::Dialling | S::Preparing | S::Excluded { .. } | S::Working), E::Admitted) => {
            go(state, vec![])
        }
        (state @ (S::Down { .. } | S::Dialling | S::Standing | S::Working), E::Prepared) => go(state, vec![]),
        (state @ (S::Down { .. } | S::Dialling | S::Standing | S::Excluded { .. } | S::Working), E::Refused { .. }) => {
            go(state, vec![])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(state: &SessionState) -> &'static str {
        match state {
            SessionState::Down { .. } => "Down",
            SessionState::Dialling => "Dialling",
            SessionState::Standing => "Standing",
            SessionState::Preparing => "Preparing",
            SessionState::Excluded { .. } => "Excluded",
            SessionState::Working => "Working",
        }
    }

    fn table() -> String {
        let past = Instant::now();
        let now = past + Duration::from_millis(500);
        let states = [
            SessionState::Down { retry_at: past },
            SessionState::Dialling,
            SessionState::Standing,
            SessionState::Preparing,
            SessionState::Excluded { retry_at: past, since: past },
            SessionState::Working,
        ];
        let lost = SessionEvent::Lost { now, db_error: DbError::passing("why") };
        let events = [
            ("Passed (due)", SessionEvent::Passed { now }),
            ("Up", SessionEvent::Up),
            ("Admitted", SessionEvent::Admitted),
            ("Prepared", SessionEvent::Prepared),
            ("Refused", SessionEvent::Refused { now }),
            ("Lost", lost),
        ];
        let mut text = format!("| state |{}\n", events.clone().map(|(name, _)| format!(" {name} |")).concat());
        text += &format!("|---|{}\n", "---|".repeat(events.len()));
        for state in states {
            text += &format!("| {} |", name(&state));
            for (_, event) in events.clone() {
                let mut back_off = BackOff::new(RETRY_FIRST, Duration::from_secs(1));
                let step = step(state.clone(), event, &mut back_off, false);
                let effects: Vec<String> = step
                    .effects
                    .iter()
                    .map(|effect| format!("{effect:?}").split('(').next().unwrap_or_default().to_owned())
                    .collect();
                let same = name(&step.next) == name(&state);
                let change = if same { "·".to_owned() } else { format!("→ {}", name(&step.next)) };
                let effects = if effects.is_empty() { String::new() } else { format!(" [{}]", effects.join(", ")) };
                text += &format!(" {change}{effects} |");
            }
            text += "\n";
        }
        text
    }

    #[test]
    fn the_readme_shows_the_table_that_the_code_walks() {
        let readme = include_str!("../../README.md");
        assert!(readme.contains(&table()), "put this into scheduler/README.md:\n\n{}", table());
    }

    #[test]
    fn a_queue_that_was_ours_and_is_anothers_for_two_seconds_is_given_up() {
        let mut now = Instant::now();
        let mut session = SessionMachine::new(now);
        session.held_before = true;
        session.state = SessionState::Preparing;
        let _ = session.handle(SessionEvent::Refused { now });
        let began = now;
        let gave_up = (0..20).find_map(|_| {
            now += LOCK_PAUSE;
            session.handle(SessionEvent::Passed { now }).contains(&SessionEffect::GiveUp).then_some(now - began)
        });
        assert!(gave_up.is_some_and(|after| after >= REGAIN_TIMEOUT && after < REGAIN_TIMEOUT + LOCK_PAUSE * 2));
    }

    #[test]
    fn a_server_that_is_down_is_asked_at_least_every_second() {
        let now = Instant::now();
        let mut session = SessionMachine::new(now);
        for _ in 0..10 {
            session.state = SessionState::Dialling;
            let _ = session.handle(SessionEvent::Lost { now, db_error: DbError::passing("down") });
        }
        assert!(session.deadline().is_some_and(|at| at <= now + Duration::from_secs(1)));
    }
}
