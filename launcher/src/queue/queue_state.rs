//! The life of one queue: does it have a slot, does its scheduler run. PURE.
//!
//! Four states that an operator knows: ENABLED, ALLOCATED, STARTED, DISABLED. STARTED has two rims here, because
//! nothing in this process waits: Starting (forked, its parameters not read yet) and Ending (told to end, not gone yet).
//! A slot is held exactly in Allocated, Starting, Started and Ending. `step` decides; the loop carries the effects out
//! and reports what came of them as events. Both tables in the crate's README are printed from here by tests.

use crate::limits::{END_SESSION_AFTER, END_STEP, END_TASKS_AFTER, FORK_RETRY, KILL_AFTER};
use crate::queue::restart_policy::{Death, RestartPolicy};
use nix::unistd::Pid;
use shared::process::order::WaitFor;
use shared::region::SlotHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Wanted, holds nothing; `wait` is for the next scheduler.
    Enabled { wait: WaitFor },
    /// Holds a slot; the scheduler is to be started at a moment.
    Allocated { slot: SlotHandle, start_at: Instant, wait: WaitFor },
    /// Forked; has not read its parameters yet.
    Starting { slot: SlotHandle, pid: Pid, began: Instant, ack_by: Instant },
    /// The scheduler runs.
    Started { slot: SlotHandle, pid: Pid, began: Instant },
    /// The scheduler was told to end; stronger words follow at a moment.
    Ending { slot: SlotHandle, pid: Pid, rung: Urgency, next_rung: Instant, then: Then },
    /// Not wanted any more, or of no use until somebody changes something; looked at again at a moment, if ever.
    Disabled { why: String, again_at: Option<Instant> },
}

/// How strongly a scheduler was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Running tasks may finish.
    Finish,
    /// Running tasks are cancelled and planned again.
    Cancel,
    /// The same, and quickly: two seconds in all.
    Hurry,
    /// The workers' sessions are ended through the server.
    EndTasks,
    /// The scheduler's own session too.
    EndSession,
    Kill,
}

/// What follows the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    Stay { why: String },
    StartAgain { wait: WaitFor },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    Passed {
        now: Instant,
    },
    SlotGiven {
        slot: SlotHandle,
        now: Instant,
    },
    SlotRefused,
    Spawned {
        pid: Pid,
        now: Instant,
        close: Duration,
    },
    /// The slot is still ours.
    SpawnFailed {
        now: Instant,
    },
    Acknowledged,
    /// The loop of the scheduler stands still.
    BeatStopped,
    /// By the launcher itself: its own end, a config read again, a database that somebody works on.
    EndAsked {
        rung: Urgency,
        then: Then,
        now: Instant,
        close: Duration,
    },
    /// A message.
    StopAsked {
        now: Instant,
    },
    StartAsked {
        now: Instant,
    },
    RestartAsked {
        wait: WaitFor,
        now: Instant,
    },
    /// The scheduler is gone; `useless`: starting it again cannot help.
    Gone {
        death: Death,
        useless: Option<Useless>,
        now: Instant,
        longest: Duration,
    },
}

/// Why a scheduler is not to be started again, and when to look whether that still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Useless {
    pub why: String,
    pub again_after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEffect {
    /// Try to get a slot.
    Reserve,
    /// Start the scheduler in the slot; it waits for this first.
    Spawn {
        wait: WaitFor,
    },
    /// Keep the dead scheduler's slot in our own name.
    KeepSlot,
    Release,
    FreeCell,
    Tell(Urgency),
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct QueueStep {
    pub next: QueueState,
    pub effects: Vec<QueueEffect>,
}

/// What a stopped queue says of itself.
pub const STOPPED: &str = "stopped by a message; start it, or restart the launcher";

impl QueueState {
    pub fn enabled() -> QueueState {
        QueueState::Enabled { wait: WaitFor::default() }
    }

    pub fn disabled(why: &str) -> QueueState {
        QueueState::Disabled { why: why.to_owned(), again_at: None }
    }

    pub fn name(&self) -> &'static str {
        match self {
            QueueState::Enabled { .. } => "ENABLED",
            QueueState::Allocated { .. } => "ALLOCATED",
            QueueState::Starting { .. } => "STARTING",
            QueueState::Started { .. } => "STARTED",
            QueueState::Ending { .. } => "ENDING",
            QueueState::Disabled { .. } => "DISABLED",
        }
    }

    pub fn slot(&self) -> Option<SlotHandle> {
        match self {
            QueueState::Enabled { .. } | QueueState::Disabled { .. } => None,
            QueueState::Allocated { slot, .. }
            | QueueState::Starting { slot, .. }
            | QueueState::Started { slot, .. }
            | QueueState::Ending { slot, .. } => Some(*slot),
        }
    }

    pub fn pid(&self) -> Option<Pid> {
        match self {
            QueueState::Enabled { .. } | QueueState::Disabled { .. } | QueueState::Allocated { .. } => None,
            QueueState::Starting { pid, .. } | QueueState::Started { pid, .. } | QueueState::Ending { pid, .. } => {
                Some(*pid)
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self {
            QueueState::Allocated { start_at, .. } => Some(*start_at),
            QueueState::Starting { ack_by, .. } => Some(*ack_by),
            QueueState::Ending { next_rung, .. } => Some(*next_rung),
            QueueState::Disabled { again_at, .. } => *again_at,
            QueueState::Enabled { .. } | QueueState::Started { .. } => None,
        }
    }
}

impl Urgency {
    /// What follows if it does not help, and after how long.
    fn next(self, close: Duration) -> (Urgency, Duration) {
        match self {
            Urgency::Finish => (Urgency::Cancel, close + END_STEP),
            Urgency::Cancel => (Urgency::Kill, END_STEP),
            Urgency::Hurry => (Urgency::EndTasks, END_TASKS_AFTER),
            Urgency::EndTasks => (Urgency::EndSession, END_SESSION_AFTER),
            Urgency::EndSession => (Urgency::Kill, KILL_AFTER),
            Urgency::Kill => (Urgency::Kill, END_STEP),
        }
    }
}

pub fn step(state: QueueState, event: QueueEvent, policy: &mut RestartPolicy) -> QueueStep {
    use QueueEffect as F;
    use QueueEvent as E;
    use QueueState as S;
    let go = |next: S, effects: Vec<F>| QueueStep { next, effects };
    let end = |slot, pid, rung: Urgency, then, now: Instant, close: Duration| {
        let next_rung = now + rung.next(close).1;
        go(S::Ending { slot, pid, rung, next_rung, then }, vec![F::Tell(rung)])
    };
    let stopped = || Then::Stay { why: STOPPED.to_owned() };
    match (state, event) {
        // By itself.
        (S::Enabled { wait }, E::Passed { .. }) => go(S::Enabled { wait }, vec![F::Reserve]),
        (S::Enabled { wait }, E::SlotGiven { slot, now }) => go(S::Allocated { slot, start_at: now, wait }, vec![]),
        (state @ S::Enabled { .. }, E::SlotRefused) => go(state, vec![]),
        (S::Allocated { slot, start_at, wait }, E::Passed { now }) if now >= start_at => {
            go(S::Allocated { slot, start_at, wait }, vec![F::Spawn { wait }])
        }
        (S::Allocated { slot, .. }, E::Spawned { pid, now, close }) => {
            go(S::Starting { slot, pid, began: now, ack_by: now + close }, vec![])
        }
        (S::Allocated { slot, wait, .. }, E::SpawnFailed { now }) => {
            go(S::Allocated { slot, start_at: now + FORK_RETRY, wait }, vec![])
        }
        (S::Starting { slot, pid, began, .. }, E::Acknowledged) => {
            go(S::Started { slot, pid, began }, vec![F::FreeCell])
        }
        // Its end is seen as Gone; the cell is freed then, for a child may just be reading.
        (S::Starting { slot, pid, began, ack_by }, E::Passed { now }) if now >= ack_by => {
            go(S::Starting { slot, pid, began, ack_by: now + END_STEP }, vec![F::Tell(Urgency::Kill)])
        }
        (state @ (S::Starting { .. } | S::Started { .. }), E::BeatStopped) => go(state, vec![F::Tell(Urgency::Kill)]),
        (
            S::Starting { slot, began, .. } | S::Started { slot, began, .. },
            E::Gone { death, useless: None, now, longest },
        ) => {
            let start_at = policy.next_start(death, began, now, longest);
            go(S::Allocated { slot, start_at, wait: WaitFor::default() }, vec![F::FreeCell, F::KeepSlot])
        }
        (S::Starting { .. } | S::Started { .. }, E::Gone { useless: Some(Useless { why, again_after }), now, .. }) => {
            let again_at = again_after.map(|after| now + after);
            go(S::Disabled { why, again_at }, vec![F::FreeCell, F::Release])
        }
        (S::Ending { slot, pid, rung, next_rung, then }, E::Passed { now }) if now >= next_rung => {
            end(slot, pid, rung.next(Duration::ZERO).0, then, now, Duration::ZERO)
        }
        (S::Ending { slot, then: Then::StartAgain { wait }, .. }, E::Gone { now, .. }) => {
            go(S::Allocated { slot, start_at: now, wait }, vec![F::FreeCell, F::KeepSlot])
        }
        (S::Ending { then: Then::Stay { why }, .. }, E::Gone { .. }) => {
            go(S::Disabled { why, again_at: None }, vec![F::FreeCell, F::Release])
        }
        (state @ S::Ending { .. }, E::Acknowledged) => go(state, vec![F::FreeCell]),
        (S::Disabled { again_at: Some(at), .. }, E::Passed { now }) if now >= at => go(S::enabled(), vec![]),

        // Messages.
        (S::Enabled { .. }, E::StopAsked { .. }) => go(S::disabled(STOPPED), vec![]),
        (S::Allocated { .. }, E::StopAsked { .. }) => go(S::disabled(STOPPED), vec![F::Release]),
        (S::Starting { slot, pid, .. } | S::Started { slot, pid, .. }, E::StopAsked { now }) => {
            end(slot, pid, Urgency::Hurry, stopped(), now, Duration::ZERO)
        }
        (S::Ending { slot, pid, rung, .. }, E::StopAsked { now }) if rung < Urgency::Hurry => {
            end(slot, pid, Urgency::Hurry, stopped(), now, Duration::ZERO)
        }
        (S::Ending { slot, pid, rung, next_rung, .. }, E::StopAsked { .. }) => {
            go(S::Ending { slot, pid, rung, next_rung, then: stopped() }, vec![])
        }
        // What lasts is kept: it says who disabled it, and is not looked at again by itself.
        (S::Disabled { again_at: None, why }, E::StopAsked { .. }) => go(S::disabled(&why), vec![]),
        (S::Disabled { again_at: Some(_), .. }, E::StopAsked { .. }) => go(S::disabled(STOPPED), vec![]),
        (state @ S::Enabled { .. }, E::StartAsked { .. }) => go(state, vec![]),
        (S::Allocated { slot, wait, .. }, E::StartAsked { now }) => {
            go(S::Allocated { slot, start_at: now, wait }, vec![])
        }
        (state @ (S::Starting { .. } | S::Started { .. }), E::StartAsked { .. }) => go(state, vec![]),
        (S::Ending { slot, pid, rung, next_rung, then }, E::StartAsked { .. }) => {
            let then = match then {
                Then::Stay { .. } => Then::StartAgain { wait: WaitFor::default() },
                Then::StartAgain { wait } => Then::StartAgain { wait },
            };
            go(S::Ending { slot, pid, rung, next_rung, then }, vec![])
        }
        (S::Disabled { .. }, E::StartAsked { .. }) => go(S::enabled(), vec![]),
        (S::Enabled { wait: old }, E::RestartAsked { wait, .. }) => go(S::Enabled { wait: old.then(wait) }, vec![]),
        (S::Allocated { slot, wait: old, .. }, E::RestartAsked { wait, now }) => {
            go(S::Allocated { slot, start_at: now, wait: old.then(wait) }, vec![])
        }
        (S::Starting { slot, pid, .. } | S::Started { slot, pid, .. }, E::RestartAsked { wait, now }) => {
            end(slot, pid, Urgency::Hurry, Then::StartAgain { wait }, now, Duration::ZERO)
        }
        (S::Ending { slot, pid, rung, .. }, E::RestartAsked { wait, now }) if rung < Urgency::Hurry => {
            end(slot, pid, Urgency::Hurry, Then::StartAgain { wait }, now, Duration::ZERO)
        }
        (S::Ending { slot, pid, rung, next_rung, then }, E::RestartAsked { wait, .. }) => {
            let old = if let Then::StartAgain { wait } = then { wait } else { WaitFor::default() };
            let then = Then::StartAgain { wait: old.then(wait) };
            go(S::Ending { slot, pid, rung, next_rung, then }, vec![])
        }
        (S::Disabled { .. }, E::RestartAsked { wait, .. }) => go(S::Enabled { wait }, vec![]),

        // The launcher's own reasons.
        (S::Enabled { .. }, E::EndAsked { then: Then::Stay { why }, .. }) => go(S::disabled(&why), vec![]),
        (S::Allocated { .. }, E::EndAsked { then: Then::Stay { why }, .. }) => go(S::disabled(&why), vec![F::Release]),
        (S::Disabled { .. }, E::EndAsked { then: Then::StartAgain { .. }, .. }) => go(S::enabled(), vec![]),
        (S::Starting { slot, pid, .. } | S::Started { slot, pid, .. }, E::EndAsked { rung, then, now, close }) => {
            end(slot, pid, rung, then, now, close)
        }
        (S::Ending { slot, pid, rung: before, then: first, next_rung }, E::EndAsked { rung, then, now, close }) => {
            // Whoever wants it to stay away has the last word.
            let then = if matches!(first, Then::Stay { .. }) { first } else { then };
            if rung > before {
                end(slot, pid, rung, then, now, close)
            } else {
                go(S::Ending { slot, pid, rung: before, next_rung, then }, vec![])
            }
        }

        // Nothing to do, or an event that came too late to matter.
        (
            state @ S::Enabled { .. },
            E::Spawned { .. }
            | E::SpawnFailed { .. }
            | E::Acknowledged
            | E::BeatStopped
            | E::EndAsked { then: Then::StartAgain { .. }, .. }
            | E::Gone { .. },
        ) => go(state, vec![]),
        (
            state @ S::Allocated { .. },
            E::Passed { .. }
            | E::SlotGiven { .. }
            | E::SlotRefused
            | E::Acknowledged
            | E::BeatStopped
            | E::EndAsked { then: Then::StartAgain { .. }, .. }
            | E::Gone { .. },
        ) => go(state, vec![]),
        (
            state @ (S::Starting { .. } | S::Started { .. } | S::Ending { .. }),
            E::Passed { .. } | E::SlotGiven { .. } | E::SlotRefused | E::Spawned { .. } | E::SpawnFailed { .. },
        ) => go(state, vec![]),
        (state @ S::Started { .. }, E::Acknowledged) => go(state, vec![]),
        (state @ S::Ending { .. }, E::BeatStopped) => go(state, vec![]),
        (
            state @ S::Disabled { .. },
            E::Passed { .. }
            | E::SlotGiven { .. }
            | E::SlotRefused
            | E::Spawned { .. }
            | E::SpawnFailed { .. }
            | E::Acknowledged
            | E::BeatStopped
            | E::EndAsked { then: Then::Stay { .. }, .. }
            | E::Gone { .. },
        ) => go(state, vec![]),
    }
}

#[cfg(test)]
mod tests;
