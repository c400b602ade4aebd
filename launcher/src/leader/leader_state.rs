//! Is this launcher the active one of its name? PURE.
//!
//! The answer is a lock that the launcher's own session holds in the maintenance database. Schedulers are started only
//! by the leader. A lost session alone does not end them: for two seconds the launcher tries to get the lock back.
//! If it cannot, those that serve are let go; if the lock turns out to be another launcher's, all are ended.
//! What holds the lock may also be our own former session, which the server has not missed yet: that one is ended.

use crate::limits::{FORMER_PERIOD, RECONNECT_FIRST, RECONNECT_LAST, REGAIN_TIMEOUT, STANDBY_PERIOD};
use shared::db::back_off::BackOff;
use shared::db::db_error::DbError;
use std::time::Instant;

/// `regain_by`: this launcher has led, and its schedulers are let go then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderState {
    /// No session.
    Down {
        retry_at: Instant,
        regain_by: Option<Instant>,
    },
    Dialling {
        regain_by: Option<Instant>,
    },
    /// The lock has been asked for.
    Locking {
        regain_by: Option<Instant>,
    },
    /// The lock is not to be had: it is another launcher's or our former session's, or the server is a stand-by.
    StandingBy {
        retry_at: Instant,
        regain_by: Option<Instant>,
    },
    Leading,
}

/// Why the lock is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// Another launcher of this name is active, or the server is a stand-by.
    Others,
    /// The session by which we led before still has it.
    Formers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderEvent {
    Passed {
        now: Instant,
    },
    Up,
    Held,
    Refused {
        by: RefusedBy,
        why: String,
        now: Instant,
    },
    Lost {
        db_error: DbError,
        now: Instant,
    },
    /// The config has another login: the session is gone, and nothing is known of the new one.
    LoginChanged {
        now: Instant,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderEffect {
    Dial,
    AskLock,
    Report(DbError),
    /// The lock is ours: schedulers may start.
    Lead,
    /// It may not be ours any more: nothing is begun for now.
    Doubt,
    /// It could not be had back in time: nothing of ours may serve.
    LetGo,
    /// The lock is another's: no scheduler of ours may live.
    Resign,
}

/// The machine with what it must remember between steps.
#[derive(Debug)]
pub struct Leader {
    pub state: LeaderState,
    back_off: BackOff,
}

impl Leader {
    pub fn new(now: Instant) -> Leader {
        let back_off = BackOff::new(RECONNECT_FIRST, RECONNECT_LAST);
        Leader { state: LeaderState::Down { retry_at: now, regain_by: None }, back_off }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            LeaderState::Down { retry_at, regain_by } | LeaderState::StandingBy { retry_at, regain_by } => {
                regain_by.into_iter().chain([retry_at]).min()
            }
            LeaderState::Dialling { regain_by } | LeaderState::Locking { regain_by } => regain_by,
            LeaderState::Leading => None,
        }
    }

    pub fn handle(&mut self, event: LeaderEvent) -> Vec<LeaderEffect> {
        let state = std::mem::replace(&mut self.state, LeaderState::Leading);
        let (next, effects) = step(state, event, &mut self.back_off);
        self.state = next;
        effects
    }
}

impl LeaderState {
    /// Until when the schedulers are left in place, should the session be lost now.
    fn regain_by(&self, now: Instant) -> Option<Instant> {
        match self {
            LeaderState::Leading => Some(now + REGAIN_TIMEOUT),
            LeaderState::Down { regain_by, .. }
            | LeaderState::Dialling { regain_by }
            | LeaderState::Locking { regain_by }
            | LeaderState::StandingBy { regain_by, .. } => *regain_by,
        }
    }

    /// The same with nobody waiting any more, if their time is over.
    fn overdue(&self, now: Instant) -> Option<LeaderState> {
        let over = |regain_by: Option<Instant>| regain_by.is_some_and(|by| now >= by);
        match self {
            LeaderState::Down { retry_at, regain_by } if over(*regain_by) => {
                Some(LeaderState::Down { retry_at: *retry_at, regain_by: None })
            }
            LeaderState::Dialling { regain_by } if over(*regain_by) => Some(LeaderState::Dialling { regain_by: None }),
            LeaderState::Locking { regain_by } if over(*regain_by) => Some(LeaderState::Locking { regain_by: None }),
            LeaderState::StandingBy { retry_at, regain_by } if over(*regain_by) => {
                Some(LeaderState::StandingBy { retry_at: *retry_at, regain_by: None })
            }
            LeaderState::Down { .. }
            | LeaderState::Dialling { .. }
            | LeaderState::Locking { .. }
            | LeaderState::StandingBy { .. }
            | LeaderState::Leading => None,
        }
    }
}

fn step(state: LeaderState, event: LeaderEvent, back_off: &mut BackOff) -> (LeaderState, Vec<LeaderEffect>) {
    use LeaderEffect as F;
    use LeaderEvent as E;
    use LeaderState as S;
    match (state, event) {
        (state, E::Passed { now }) if state.overdue(now).is_some() => {
            // What else is due comes with the next pass.
            (state.overdue(now).unwrap_or(state), vec![F::LetGo])
        }
        (S::Down { retry_at, regain_by }, E::Passed { now }) if now >= retry_at => {
            (S::Dialling { regain_by }, vec![F::Dial])
        }
        (S::StandingBy { retry_at, regain_by }, E::Passed { now }) if now >= retry_at => {
            (S::Locking { regain_by }, vec![F::AskLock])
        }
        (S::Dialling { regain_by }, E::Up) => (S::Locking { regain_by }, vec![F::AskLock]),
        (S::Locking { .. }, E::Held) => {
            back_off.succeeded();
            (S::Leading, vec![F::Lead])
        }
        (S::Locking { .. }, E::Refused { by: RefusedBy::Others, why, now }) => {
            let retry_at = now + STANDBY_PERIOD;
            (S::StandingBy { retry_at, regain_by: None }, vec![F::Report(DbError::standing(why)), F::Resign])
        }
        (S::Locking { regain_by }, E::Refused { by: RefusedBy::Formers, why, now }) => {
            let retry_at = now + FORMER_PERIOD;
            (S::StandingBy { retry_at, regain_by }, vec![F::Report(DbError::passing(why))])
        }
        (S::Leading, E::Lost { db_error, now }) => {
            // At once: nobody knows better than us that the lock has come free.
            let regain_by = S::Leading.regain_by(now);
            (S::Down { retry_at: now, regain_by }, vec![F::Doubt, F::Report(db_error)])
        }
        (
            state @ (S::Down { .. } | S::Dialling { .. } | S::Locking { .. } | S::StandingBy { .. }),
            E::Lost { db_error, now },
        ) => {
            back_off.set_cap(db_error.retry_cap());
            let regain_by = state.regain_by(now);
            (S::Down { retry_at: back_off.next(now), regain_by }, vec![F::Report(db_error)])
        }
        (
            state @ (S::Down { .. } | S::Dialling { .. } | S::Locking { .. } | S::StandingBy { .. } | S::Leading),
            E::LoginChanged { now },
        ) => {
            back_off.succeeded();
            let effects = if state == S::Leading { vec![F::Doubt] } else { vec![] };
            (S::Down { retry_at: now, regain_by: state.regain_by(now) }, effects)
        }
        (
            state @ (S::Down { .. } | S::StandingBy { .. } | S::Dialling { .. } | S::Locking { .. } | S::Leading),
            E::Passed { .. },
        ) => (state, vec![]),
        (state @ (S::Down { .. } | S::Locking { .. } | S::StandingBy { .. } | S::Leading), E::Up) => (state, vec![]),
        (
            state @ (S::Down { .. } | S::Dialling { .. } | S::StandingBy { .. } | S::Leading),
            E::Held | E::Refused { .. },
        ) => (state, vec![]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn refused(by: RefusedBy, now: Instant) -> LeaderEvent {
        LeaderEvent::Refused { by, why: "taken".into(), now }
    }

    fn lost(now: Instant) -> LeaderEvent {
        LeaderEvent::Lost { db_error: DbError::passing("gone"), now }
    }

    fn leading(now: Instant) -> Leader {
        let mut leader = Leader::new(now);
        leader.state = LeaderState::Leading;
        leader
    }

    #[test]
    fn the_lock_is_asked_for_once_connected_and_again_while_it_is_anothers() {
        let now = Instant::now();
        let mut leader = Leader::new(now);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), [LeaderEffect::Dial]);
        assert_eq!(leader.handle(LeaderEvent::Up), [LeaderEffect::AskLock]);
        let said = leader.handle(refused(RefusedBy::Others, now));
        assert_eq!(said, [LeaderEffect::Report(DbError::standing("taken")), LeaderEffect::Resign]);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), []);
        assert_eq!(leader.handle(LeaderEvent::Passed { now: now + STANDBY_PERIOD }), [LeaderEffect::AskLock]);
        assert_eq!(leader.handle(LeaderEvent::Held), [LeaderEffect::Lead]);
    }

    #[test]
    fn a_lost_session_is_dialled_at_once_and_a_lock_regained_in_time_ends_nobody() {
        let now = Instant::now();
        let mut leader = leading(now);
        assert_eq!(leader.handle(lost(now)), [LeaderEffect::Doubt, LeaderEffect::Report(DbError::passing("gone"))]);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), [LeaderEffect::Dial]);
        assert_eq!(leader.handle(lost(now)), [LeaderEffect::Report(DbError::passing("gone"))]);
        let soon = now + REGAIN_TIMEOUT - Duration::from_millis(1);
        assert_eq!(leader.handle(LeaderEvent::Passed { now: soon }), [LeaderEffect::Dial]);
        assert_eq!(leader.handle(LeaderEvent::Up), [LeaderEffect::AskLock]);
        assert_eq!(leader.handle(LeaderEvent::Held), [LeaderEffect::Lead]);
        assert_eq!(leader.handle(LeaderEvent::Passed { now: now + REGAIN_TIMEOUT * 2 }), []);
    }

    #[test]
    fn after_two_seconds_without_the_lock_everything_is_let_go_once_and_the_lock_still_asked_for() {
        let now = Instant::now();
        for reached in 0..4 {
            let mut leader = leading(now);
            leader.handle(lost(now));
            let way = [
                LeaderEvent::Passed { now },
                LeaderEvent::Up,
                refused(RefusedBy::Formers, now + REGAIN_TIMEOUT - Duration::from_millis(200)),
            ];
            for event in way.into_iter().take(reached) {
                leader.handle(event);
            }
            assert!(leader.deadline().is_some_and(|at| at <= now + REGAIN_TIMEOUT), "{:?}", leader.state);
            let late = now + REGAIN_TIMEOUT;
            assert_eq!(leader.handle(LeaderEvent::Passed { now: late }), [LeaderEffect::LetGo], "{:?}", leader.state);
            let next = leader.handle(LeaderEvent::Passed { now: late });
            assert!(!next.contains(&LeaderEffect::LetGo), "{next:?}");
        }
    }

    #[test]
    fn our_own_former_session_makes_nobody_resign() {
        let now = Instant::now();
        let mut leader = leading(now);
        leader.handle(lost(now));
        leader.handle(LeaderEvent::Passed { now });
        leader.handle(LeaderEvent::Up);
        let said = leader.handle(refused(RefusedBy::Formers, now));
        assert_eq!(said, [LeaderEffect::Report(DbError::passing("taken"))]);
        assert_eq!(leader.handle(LeaderEvent::Passed { now: now + FORMER_PERIOD }), [LeaderEffect::AskLock]);
        assert_eq!(leader.handle(LeaderEvent::Held), [LeaderEffect::Lead]);
    }

    #[test]
    fn another_login_is_tried_at_once() {
        let now = Instant::now();
        let mut leader = Leader::new(now);
        for _ in 0..5 {
            leader.handle(lost(now));
        }
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), []);
        assert_eq!(leader.handle(LeaderEvent::LoginChanged { now }), []);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), [LeaderEffect::Dial]);
        let mut leader = leading(now);
        assert_eq!(leader.handle(LeaderEvent::LoginChanged { now }), [LeaderEffect::Doubt]);
    }
}
