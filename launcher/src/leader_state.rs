//! Is this launcher the active one of its name? PURE.
//!
//! The answer is a lock that the launcher's own session holds in the maintenance database. Schedulers are started only
//! by the leader. A lost session does not end them: they have sessions of their own and wait for the same server.
//! They are ended when the lock turns out to be another launcher's.

use shared::db::back_off::BackOff;
use shared::db::trouble::Trouble;
use std::time::{Duration, Instant};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const STANDBY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderState {
    /// No session.
    Down {
        retry_at: Instant,
    },
    Dialling,
    /// The lock has been asked for.
    Asking,
    /// Another launcher of this name is active, or the server is a stand-by.
    StandingBy {
        retry_at: Instant,
    },
    Leading,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderEvent {
    Passed {
        now: Instant,
    },
    Up,
    Held,
    Refused {
        why: String,
        now: Instant,
    },
    Lost {
        trouble: Trouble,
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
    Say(Trouble),
    /// The lock is ours: rows may live.
    Lead,
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
        let back_off = BackOff::new(RETRY_FIRST, Duration::from_secs(1));
        Leader { state: LeaderState::Down { retry_at: now }, back_off }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            LeaderState::Down { retry_at } | LeaderState::StandingBy { retry_at } => Some(retry_at),
            LeaderState::Dialling | LeaderState::Asking | LeaderState::Leading => None,
        }
    }

    pub fn handle(&mut self, event: LeaderEvent) -> Vec<LeaderEffect> {
        let state = std::mem::replace(&mut self.state, LeaderState::Dialling);
        let (next, effects) = step(state, event, &mut self.back_off);
        self.state = next;
        effects
    }
}

fn step(state: LeaderState, event: LeaderEvent, back_off: &mut BackOff) -> (LeaderState, Vec<LeaderEffect>) {
    use LeaderEffect as F;
    use LeaderEvent as E;
    use LeaderState as S;
    match (state, event) {
        (S::Down { retry_at }, E::Passed { now }) if now >= retry_at => (S::Dialling, vec![F::Dial]),
        (S::StandingBy { retry_at }, E::Passed { now }) if now >= retry_at => (S::Asking, vec![F::AskLock]),
        (S::Dialling, E::Up) => (S::Asking, vec![F::AskLock]),
        (S::Asking, E::Held) => {
            back_off.succeeded();
            (S::Leading, vec![F::Lead])
        }
        (S::Asking, E::Refused { why, now }) => {
            (S::StandingBy { retry_at: now + STANDBY_PAUSE }, vec![F::Say(Trouble::standing(why)), F::Resign])
        }
        (S::Down { .. } | S::Dialling | S::Asking | S::StandingBy { .. } | S::Leading, E::Lost { trouble, now }) => {
            back_off.set_cap(trouble.retry_cap());
            (S::Down { retry_at: back_off.next(now) }, vec![F::Say(trouble)])
        }
        (S::Down { .. } | S::Dialling | S::Asking | S::StandingBy { .. } | S::Leading, E::LoginChanged { now }) => {
            back_off.succeeded();
            (S::Down { retry_at: now }, vec![])
        }
        (state @ (S::Down { .. } | S::StandingBy { .. } | S::Dialling | S::Asking | S::Leading), E::Passed { .. }) => {
            (state, vec![])
        }
        (state @ (S::Down { .. } | S::Asking | S::StandingBy { .. } | S::Leading), E::Up) => (state, vec![]),
        (state @ (S::Down { .. } | S::Dialling | S::StandingBy { .. } | S::Leading), E::Held | E::Refused { .. }) => {
            (state, vec![])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_asked_for_once_connected_and_again_while_it_is_anothers() {
        let now = Instant::now();
        let mut leader = Leader::new(now);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), [LeaderEffect::Dial]);
        assert_eq!(leader.handle(LeaderEvent::Up), [LeaderEffect::AskLock]);
        let refused = leader.handle(LeaderEvent::Refused { why: "taken".into(), now });
        assert_eq!(refused, [LeaderEffect::Say(Trouble::standing("taken")), LeaderEffect::Resign]);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), []);
        assert_eq!(leader.handle(LeaderEvent::Passed { now: now + STANDBY_PAUSE }), [LeaderEffect::AskLock]);
        assert_eq!(leader.handle(LeaderEvent::Held), [LeaderEffect::Lead]);
    }

    #[test]
    fn a_lost_session_alone_does_not_end_the_schedulers() {
        let now = Instant::now();
        let mut leader = Leader::new(now);
        leader.state = LeaderState::Leading;
        let said = leader.handle(LeaderEvent::Lost { trouble: Trouble::passing("gone"), now });
        assert_eq!(said, [LeaderEffect::Say(Trouble::passing("gone"))]);
        assert!(matches!(leader.state, LeaderState::Down { retry_at } if retry_at > now));
    }

    #[test]
    fn another_login_is_tried_at_once() {
        let now = Instant::now();
        let mut leader = Leader::new(now);
        for _ in 0..5 {
            leader.handle(LeaderEvent::Lost { trouble: Trouble::passing("refused"), now });
        }
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), []);
        assert_eq!(leader.handle(LeaderEvent::LoginChanged { now }), []);
        assert_eq!(leader.handle(LeaderEvent::Passed { now }), [LeaderEffect::Dial]);
    }
}
