//! The life of one attempt as its scheduler sees it. PURE: no clock, no process, no database.
//!
//! It is the life of every attempt: on a pooled connection, on one of its own, live, in a batch, atomic, on a remote. They
//! differ in whose connection it is, in who records the begin, and in who records the end. `step` decides what comes next and
//! what is to be done; `attempt_table` does it and reports back. An attempt has at most one question to the database in flight:
//! `Asked`, then one of `Granted`, `Refused`, `Unanswered`. The table in the crate's README is printed from here by a test.

use crate::limits::{CANCEL_TIMEOUT, CANCEL_TRIES, RETURN_PAUSE, SETTLE_PAUSE, SWEEP_PERIOD};
use shared::process::begin_channel::Reply;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// The row is ours, and no process has it. It may wait for the reset of its connection.
    Claimed,
    /// Its worker was forked and the task has not begun. A worker that reads its order from a cell must do so in time.
    Assigned { ack_by: Option<Instant> },
    /// Its worker has a session and waits; the begin is to be recorded, or is being (`asked`).
    Connected { asked: bool },
    /// The worker runs the task.
    Running,
    /// The worker was let go before the task began, and exits by itself.
    Leaving,
    /// The worker was asked to cancel and to plan the task again.
    Cancelling { kill_at: Instant },
    /// The worker was killed; its end is still to be seen.
    Killed,
    /// The worker is gone and has left a result, which is to be recorded.
    Reported,
    /// The result is being recorded, with others.
    Recording,
    /// It could not be recorded with others. A worker that only records gets it, or has it.
    RecordRetry { under_way: bool },
    /// The worker is gone, and perhaps its row is unfinished: the database is asked.
    Settling { tries: u32, next: Option<Instant> },
    /// A batch has claimed the task and never sent it: its row is to be planned again.
    Returning { next: Option<Instant> },
    /// The task has run, and the database refuses its end in every form.
    Unrecordable,
    /// The row is finished or planned again: nothing is left to do.
    Over,
}

/// How a worker gets its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// By the fork, on a connection for which the claim has recorded the begin.
    Pooled,
    /// By the fork; it connects, reports its backend and waits for the begin.
    Own,
    /// From a cell, in time; it records begin and end itself.
    Cell { ack_by: Instant },
    /// By the fork, with a result that it is to record.
    Recorder,
}

/// What a worker has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerOutcome {
    /// It has finished its rows.
    Finished,
    /// A result.
    Result,
    /// It has run, and no form of its end is accepted.
    Unrecordable,
    /// It was to record a result and has not.
    Unrecorded,
    /// Nothing is known.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEvent {
    Forked(Door),
    /// No worker was or will be forked.
    NotForked {
        now: Instant,
    },
    /// The worker has its order out of the cell.
    Acknowledged,
    /// The worker has reported its backend.
    Connected,
    Passed {
        now: Instant,
    },
    /// The scheduler ends and wants the task back.
    CancelAsked {
        now: Instant,
    },
    /// Nothing more may begin: the launcher does not lead.
    LetGo,
    Ended {
        outcome: WorkerOutcome,
    },
    /// The question that the state asks is in flight.
    Asked,
    Granted,
    /// The database does not do it, at least not now.
    Refused {
        now: Instant,
    },
    /// The question is put again later.
    Unanswered {
        now: Instant,
    },
    SessionLost {
        now: Instant,
    },
    /// It has begun on a server whose data are not on the present one.
    DataLost {
        now: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Wipe and free the worker's cell.
    FreeCell,
    /// Tell the worker to cancel the task and to plan it again.
    Cancel,
    /// SIGKILL: it has not answered in time.
    Kill,
    /// SIGKILL: it has not begun, and is not to.
    Abandon,
    /// Tell the worker that its task has begun, or that it has to see to that itself.
    Answer(Reply),
    /// Close the begin channel: the worker leaves.
    CloseChannel,
    /// Ask the database what became of the row; end its backend.
    Settle { terminate: bool },
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub next: AttemptState,
    pub effects: Vec<Effect>,
}

impl AttemptState {
    /// When `Passed` changes something.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            AttemptState::Assigned { ack_by } => *ack_by,
            AttemptState::Cancelling { kill_at } => Some(*kill_at),
            AttemptState::Settling { next, .. } => *next,
            AttemptState::Claimed
            | AttemptState::Connected { .. }
            | AttemptState::Running
            | AttemptState::Leaving
            | AttemptState::Killed
            | AttemptState::Reported
            | AttemptState::Recording
            | AttemptState::RecordRetry { .. }
            | AttemptState::Returning { .. }
            | AttemptState::Unrecordable
            | AttemptState::Over => None,
        }
    }
}

use AttemptEvent as E;
use AttemptState as S;

fn go(next: S, effects: Vec<Effect>) -> Step {
    Step { next, effects }
}

fn settle_at(now: Instant) -> S {
    S::Settling { tries: 0, next: Some(now) }
}

/// One step. What is not listed changes nothing: time that is not late, a second request, an answer that came too late.
pub fn step(state: S, event: E) -> Step {
    let changed = match state {
        S::Claimed | S::Assigned { .. } | S::Connected { .. } => before_the_begin(state, event),
        S::Running | S::Leaving | S::Cancelling { .. } | S::Killed => with_a_worker(state, event),
        S::Reported | S::Recording | S::RecordRetry { .. } => with_a_result(state, event),
        S::Settling { .. } | S::Returning { .. } | S::Unrecordable => without_either(state, event),
        S::Over => None,
    };
    changed.unwrap_or_else(|| go(state, Vec::new()))
}

fn before_the_begin(state: S, event: E) -> Option<Step> {
    Some(match (state, event) {
        (S::Claimed, E::Forked(Door::Pooled)) => go(S::Running, vec![]),
        (S::Claimed, E::Forked(Door::Own)) => go(S::Assigned { ack_by: None }, vec![]),
        (S::Claimed, E::Forked(Door::Cell { ack_by })) => go(S::Assigned { ack_by: Some(ack_by) }, vec![]),
        (S::Claimed, E::NotForked { now } | E::DataLost { now }) => go(settle_at(now), vec![]),
        (S::Assigned { ack_by: Some(_) }, E::Acknowledged) => go(S::Running, vec![Effect::FreeCell]),
        // The cell is freed when the end is seen: a child that is just reading must not find it reused.
        (S::Assigned { ack_by: Some(ack_by) }, E::Passed { now }) if now >= ack_by => go(S::Killed, vec![Effect::Kill]),
        (S::Assigned { ack_by: Some(_) }, E::CancelAsked { now }) => cancel(now, vec![]),
        (S::Assigned { ack_by: None }, E::Connected) => go(S::Connected { asked: false }, vec![]),
        // It may wait for the server, and reads nothing meanwhile.
        (S::Assigned { ack_by: None }, E::CancelAsked { .. } | E::LetGo) => {
            go(S::Leaving, vec![Effect::CloseChannel, Effect::Abandon])
        }
        (S::Assigned { ack_by: None }, E::SessionLost { .. }) => go(S::Leaving, vec![Effect::CloseChannel]),
        (S::Connected { .. }, E::Asked) => go(S::Connected { asked: true }, vec![]),
        (S::Connected { .. }, E::Granted) => go(S::Running, vec![Effect::Answer(Reply::Begun), Effect::CloseChannel]),
        // The worker may wait where we may not.
        (S::Connected { .. }, E::Refused { .. }) => {
            go(S::Running, vec![Effect::Answer(Reply::Yourself), Effect::CloseChannel])
        }
        (S::Connected { .. }, E::Unanswered { .. }) => go(S::Connected { asked: false }, vec![]),
        (S::Connected { .. }, E::CancelAsked { now }) => cancel(now, vec![Effect::CloseChannel]),
        (S::Connected { .. }, E::LetGo | E::SessionLost { .. }) => go(S::Leaving, vec![Effect::CloseChannel]),
        (S::Assigned { .. } | S::Connected { .. }, E::Ended { outcome }) => ended(outcome),
        _ => return None,
    })
}

fn with_a_worker(state: S, event: E) -> Option<Step> {
    Some(match (state, event) {
        (S::Running | S::Leaving, E::CancelAsked { now }) => cancel(now, vec![]),
        (S::Cancelling { kill_at }, E::Passed { now }) if now >= kill_at => go(S::Killed, vec![Effect::Kill]),
        (S::Cancelling { .. }, E::Acknowledged) => go(state, vec![Effect::FreeCell]),
        (S::Running | S::Leaving | S::Cancelling { .. } | S::Killed, E::Ended { outcome }) => ended(outcome),
        _ => return None,
    })
}

fn with_a_result(state: S, event: E) -> Option<Step> {
    Some(match (state, event) {
        (S::Reported, E::Asked) => go(S::Recording, vec![]),
        (S::Recording, E::Granted) => go(S::Over, vec![]),
        (S::Recording, E::Refused { .. }) => go(S::RecordRetry { under_way: false }, vec![]),
        (S::Recording, E::Unanswered { .. } | E::SessionLost { .. }) => go(S::Reported, vec![]),
        (S::RecordRetry { under_way: false }, E::Forked(Door::Recorder)) => {
            go(S::RecordRetry { under_way: true }, vec![])
        }
        (S::RecordRetry { under_way: true }, E::CancelAsked { now }) => cancel(now, vec![]),
        (S::RecordRetry { under_way: true }, E::Ended { outcome }) => ended(outcome),
        (S::Reported | S::Recording | S::RecordRetry { .. }, E::DataLost { now }) => go(settle_at(now), vec![]),
        _ => return None,
    })
}

fn without_either(state: S, event: E) -> Option<Step> {
    Some(match (state, event) {
        (S::Settling { tries, next: Some(at) }, E::Passed { now }) if now >= at => go(
            S::Settling { tries: tries + 1, next: None },
            vec![Effect::Settle { terminate: tries + 1 > CANCEL_TRIES }],
        ),
        (S::Settling { tries, .. }, E::Refused { now }) => {
            go(S::Settling { tries, next: Some(now + SWEEP_PERIOD) }, vec![])
        }
        (S::Settling { tries, .. }, E::Unanswered { now } | E::SessionLost { now }) => {
            go(S::Settling { tries, next: Some(now + SETTLE_PAUSE) }, vec![])
        }
        (S::Settling { .. } | S::Returning { .. } | S::Unrecordable, E::Granted) => go(S::Over, vec![]),
        (S::Returning { .. }, E::Asked) => go(S::Returning { next: None }, vec![]),
        // Another transaction has locked the row.
        (S::Returning { .. }, E::Refused { now }) => go(S::Returning { next: Some(now + RETURN_PAUSE) }, vec![]),
        (S::Returning { next: None }, E::Unanswered { now } | E::SessionLost { now }) => {
            go(S::Returning { next: Some(now) }, vec![])
        }
        _ => return None,
    })
}

fn cancel(now: Instant, before: Vec<Effect>) -> Step {
    go(S::Cancelling { kill_at: now + CANCEL_TIMEOUT }, [before, vec![Effect::Cancel]].concat())
}

/// The worker is gone.
fn ended(outcome: WorkerOutcome) -> Step {
    match outcome {
        WorkerOutcome::Finished => go(S::Over, vec![Effect::FreeCell]),
        WorkerOutcome::Result => go(S::Reported, vec![Effect::FreeCell]),
        WorkerOutcome::Unrecordable => go(S::Unrecordable, vec![Effect::FreeCell]),
        WorkerOutcome::Unrecorded => go(S::RecordRetry { under_way: false }, vec![Effect::FreeCell]),
        WorkerOutcome::Unknown => {
            go(S::Settling { tries: 1, next: None }, vec![Effect::FreeCell, Effect::Settle { terminate: false }])
        }
    }
}

#[cfg(test)]
mod tests;
