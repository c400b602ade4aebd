//! What follows from an event in the life of a queue. PURE.
//!
//! One function per state, and no event is left out. Both tables in the crate's README are printed from here by tests.

use crate::limits::{END_STEP, FORK_RETRY};
use crate::queue::departure::Departure;
use crate::queue::queue_state::{
    Allocated, DisabledReason, NoSlot, QueueMemory, QueueState, SchedulerProcess, SettingsSync, Then, Urgency,
};
use nix::unistd::Pid;
use shared::process::exit_code::ExitCode;
use shared::process::order::WaitFor;
use shared::region::SlotHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    Passed {
        now: Instant,
    },
    /// A pass in which it may not start.
    HeldBack,
    SlotGiven {
        slot: SlotHandle,
        now: Instant,
    },
    SlotRefused {
        now: Instant,
    },
    /// Another process swept the slot before it could be kept.
    SlotLost,
    Spawned {
        pid: Pid,
        now: Instant,
        close: Duration,
    },
    /// The slot is still ours.
    SpawnFailed {
        error: String,
        now: Instant,
    },
    /// The scheduler has read its cell.
    Acknowledged,
    /// The config was read again; settings of the server count too, so the scheduler reloads even if nothing has
    /// changed here.
    SettingsChanged,
    /// They are in the cell.
    SettingsSent,
    /// What the scheduler's loop has counted so far.
    BeatSeen {
        count: u64,
        now: Instant,
    },
    /// By the launcher itself: its own end, a queue that is gone, a database that somebody works on.
    EndAsked {
        urgency: Urgency,
        then: Then,
        now: Instant,
        close: Duration,
    },
    /// The config disables it, or it may not be served.
    Unwanted {
        why: String,
        now: Instant,
        close: Duration,
    },
    /// The config wants it again, or with another login.
    WantedAgain {
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
    /// The scheduler is gone. `longest`: the queue's own cap of pauses between starts.
    Gone {
        departure: Departure,
        now: Instant,
        longest: Duration,
    },
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
    /// Put the present settings into the cell.
    SendSettings,
    Tell(Urgency),
    Log(Notice),
}

/// What is logged, once per episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// `expected`: there is most likely nothing to serve.
    NoSlot {
        expected: bool,
    },
    ForkFailed {
        error: String,
    },
    StandsStill,
    Left(Departure),
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct QueueStep {
    pub next: QueueState,
    pub effects: Vec<QueueEffect>,
}

use QueueEffect as F;
use QueueEvent as E;
use QueueState as S;

fn go(next: S, effects: Vec<F>) -> QueueStep {
    QueueStep { next, effects }
}

fn end(process: SchedulerProcess, urgency: Urgency, then: Then, now: Instant, close: Duration) -> QueueStep {
    let next_at = now + urgency.next(close).1;
    go(S::Ending { process, urgency, next_at, then }, vec![F::Tell(urgency)])
}

pub fn step(state: QueueState, event: QueueEvent, memory: &mut QueueMemory) -> QueueStep {
    match state {
        S::Enabled { wait, no_slot } => enabled(wait, no_slot, event, memory),
        S::Allocated(allocated) => step_allocated(allocated, event),
        S::Starting { process, ack_by } => alive(process, Some(ack_by), event, memory),
        S::Started { process } => alive(process, None, event, memory),
        S::Ending { process, urgency, next_at, then } => ending(process, urgency, next_at, then, event, memory),
        S::Disabled { why, again_at } => disabled(why, again_at, event),
    }
}

fn enabled(wait: WaitFor, no_slot: Option<NoSlot>, event: QueueEvent, memory: &QueueMemory) -> QueueStep {
    let same = S::Enabled { wait, no_slot };
    match event {
        E::Passed { .. } => go(same, vec![F::Reserve]),
        E::SlotGiven { slot, now } => go(S::allocated(slot, now, wait), vec![]),
        E::SlotRefused { now } => {
            let (no_slot, log) = NoSlot::again(no_slot, now);
            // A queue without a catalog asks for a slot at every probe.
            let expected = memory.left == Some(ExitCode::NotInstalled);
            let notice = log.then_some(F::Log(Notice::NoSlot { expected }));
            go(S::Enabled { wait, no_slot: Some(no_slot) }, notice.into_iter().collect())
        }
        E::StopAsked { .. } => go(S::disabled(DisabledReason::Stopped), vec![]),
        E::RestartAsked { wait: later, .. } => go(S::Enabled { wait: wait.then(later), no_slot }, vec![]),
        E::EndAsked { then: Then::Stay { why }, .. } => go(S::disabled(why), vec![]),
        E::Unwanted { why, .. } => go(S::disabled(DisabledReason::Unwanted(why)), vec![]),
        E::EndAsked { then: Then::StartAgain { .. }, .. }
        | E::WantedAgain { .. }
        | E::StartAsked { .. }
        | E::HeldBack
        | E::SlotLost
        | E::Spawned { .. }
        | E::SpawnFailed { .. }
        | E::Acknowledged
        | E::SettingsChanged
        | E::SettingsSent
        | E::BeatSeen { .. }
        | E::Gone { .. } => go(same, vec![]),
    }
}

fn step_allocated(state: Allocated, event: QueueEvent) -> QueueStep {
    let (slot, wait) = (state.slot, state.wait);
    match event {
        E::Passed { now } => {
            let start = now >= state.start_at;
            let effects = if start { vec![F::Spawn { wait }] } else { vec![] };
            go(S::Allocated(Allocated { held_back: false, ..state }), effects)
        }
        E::HeldBack => go(S::Allocated(Allocated { held_back: true, ..state }), vec![]),
        E::Spawned { pid, now, close } => {
            go(S::Starting { process: SchedulerProcess::new(slot, pid, now), ack_by: now + close }, vec![])
        }
        E::SpawnFailed { error, now } => {
            let notice = state.failure.is_none().then(|| F::Log(Notice::ForkFailed { error: error.clone() }));
            let next = Allocated { start_at: now + FORK_RETRY, failure: Some(error), ..state };
            go(S::Allocated(next), notice.into_iter().collect())
        }
        E::SlotLost => go(S::enabled(wait), vec![]),
        E::StopAsked { .. } => go(S::disabled(DisabledReason::Stopped), vec![F::Release]),
        E::StartAsked { now } => go(S::Allocated(Allocated { start_at: now, ..state }), vec![]),
        E::RestartAsked { wait: later, now } => {
            go(S::Allocated(Allocated { start_at: now, wait: wait.then(later), ..state }), vec![])
        }
        E::EndAsked { then: Then::Stay { why }, .. } => go(S::disabled(why), vec![F::Release]),
        E::Unwanted { why, .. } => go(S::disabled(DisabledReason::Unwanted(why)), vec![F::Release]),
        E::EndAsked { then: Then::StartAgain { .. }, .. }
        | E::WantedAgain { .. }
        | E::SlotGiven { .. }
        | E::SlotRefused { .. }
        | E::Acknowledged
        | E::SettingsChanged
        | E::SettingsSent
        | E::BeatSeen { .. }
        | E::Gone { .. } => go(S::Allocated(state), vec![]),
    }
}

/// Starting, which ends at `ack_by`, or Started.
fn alive(process: SchedulerProcess, ack_by: Option<Instant>, event: QueueEvent, memory: &mut QueueMemory) -> QueueStep {
    let at = |process: SchedulerProcess, ack_by: Option<Instant>| match ack_by {
        Some(ack_by) => S::Starting { process, ack_by },
        None => S::Started { process },
    };
    // Settings go out as soon as the cell is free, and again with the next pass if that fails.
    let sends = |process: SchedulerProcess| process.settings == SettingsSync::Changed;
    match event {
        // Its end is seen as Gone; the cell is freed then, for a child may just be reading.
        E::Passed { now } if ack_by.is_some_and(|by| now >= by) => {
            go(at(process, Some(now + END_STEP)), vec![F::Tell(Urgency::Kill)])
        }
        E::Passed { .. } if sends(process) => go(at(process, ack_by), vec![F::SendSettings]),
        E::Acknowledged => {
            let process = process.with(process.settings.acknowledged());
            let effects = if sends(process) { vec![F::FreeCell, F::SendSettings] } else { vec![F::FreeCell] };
            go(at(process, None), effects)
        }
        E::SettingsChanged => {
            let process = process.with(process.settings.changed());
            go(at(process, ack_by), if sends(process) { vec![F::SendSettings] } else { vec![] })
        }
        E::SettingsSent => go(at(process.with(SettingsSync::Sent), ack_by), vec![]),
        E::BeatSeen { count, now } => {
            let (process, late) = process.beat(count, now);
            let effects = if late { vec![F::Log(Notice::StandsStill), F::Tell(Urgency::Kill)] } else { vec![] };
            go(at(process, ack_by), effects)
        }
        E::StopAsked { now } => {
            end(process, Urgency::Hurry, Then::Stay { why: DisabledReason::Stopped }, now, Duration::ZERO)
        }
        E::RestartAsked { wait, now } => end(process, Urgency::Hurry, Then::StartAgain { wait }, now, Duration::ZERO),
        E::EndAsked { urgency, then, now, close } => end(process, urgency, then, now, close),
        E::Unwanted { why, now, close } => {
            end(process, Urgency::Finish, Then::Stay { why: DisabledReason::Unwanted(why) }, now, close)
        }
        E::WantedAgain { now, close } => {
            end(process, Urgency::Finish, Then::StartAgain { wait: WaitFor::default() }, now, close)
        }
        E::Gone { departure, now, longest } => gone(process, departure, now, longest, memory),
        E::Passed { .. }
        | E::StartAsked { .. }
        | E::HeldBack
        | E::SlotGiven { .. }
        | E::SlotRefused { .. }
        | E::SlotLost
        | E::Spawned { .. }
        | E::SpawnFailed { .. } => go(at(process, ack_by), vec![]),
    }
}

/// The scheduler is gone without having been told to end.
fn gone(
    process: SchedulerProcess,
    departure: Departure,
    now: Instant,
    longest: Duration,
    memory: &mut QueueMemory,
) -> QueueStep {
    memory.left = departure.left;
    if departure.is_death() {
        memory.last_death = Some(departure.end.clone());
    }
    let notice = F::Log(Notice::Left(departure.clone()));
    match departure.useless {
        None => {
            let start_at = memory.restarts.next_start(departure.death, process.began, now, longest);
            let next = S::allocated(process.slot, start_at, WaitFor::default());
            go(next, vec![notice, F::FreeCell, F::KeepSlot])
        }
        Some(useless) => {
            let again_at = useless.again_after.map(|after| now + after);
            go(
                S::Disabled { why: DisabledReason::Useless(useless.why), again_at },
                vec![notice, F::FreeCell, F::Release],
            )
        }
    }
}

fn ending(
    process: SchedulerProcess,
    urgency: Urgency,
    next_at: Instant,
    then: Then,
    event: QueueEvent,
    memory: &mut QueueMemory,
) -> QueueStep {
    let stopped = Then::Stay { why: DisabledReason::Stopped };
    let same = |then: Then| go(S::Ending { process, urgency, next_at, then }, vec![]);
    let or_stronger = |asked: Urgency, then: Then, now: Instant, close: Duration| {
        if asked > urgency { end(process, asked, then, now, close) } else { same(then) }
    };
    match (event, then) {
        (E::Passed { now }, then) if now >= next_at => {
            end(process, urgency.next(Duration::ZERO).0, then, now, Duration::ZERO)
        }
        (E::Acknowledged, then) => go(S::Ending { process, urgency, next_at, then }, vec![F::FreeCell]),
        (E::BeatSeen { count, now }, then) => {
            let (process, late) = process.beat(count, now);
            let effects = if late { vec![F::Log(Notice::StandsStill)] } else { vec![] };
            go(S::Ending { process, urgency, next_at, then }, effects)
        }
        (E::StopAsked { now }, _) => or_stronger(Urgency::Hurry, stopped, now, Duration::ZERO),
        (E::StartAsked { .. }, Then::Stay { .. }) => same(Then::StartAgain { wait: WaitFor::default() }),
        (E::RestartAsked { wait, now }, Then::Stay { .. }) => {
            or_stronger(Urgency::Hurry, Then::StartAgain { wait }, now, Duration::ZERO)
        }
        (E::RestartAsked { wait, now }, Then::StartAgain { wait: old }) => {
            let wait = if urgency < Urgency::Hurry { wait } else { old.then(wait) };
            or_stronger(Urgency::Hurry, Then::StartAgain { wait }, now, Duration::ZERO)
        }
        // A queue that is to stay disabled does so; only the config can take back what the config wanted.
        (E::EndAsked { urgency, then: then @ Then::Stay { why: DisabledReason::Removed(_) }, now, close }, _) => {
            or_stronger(urgency, then, now, close)
        }
        (E::EndAsked { urgency, now, close, .. }, then @ Then::Stay { .. }) => or_stronger(urgency, then, now, close),
        (E::EndAsked { urgency, then, now, close }, Then::StartAgain { .. }) => or_stronger(urgency, then, now, close),
        (E::Unwanted { why, .. }, Then::StartAgain { .. } | Then::Stay { why: DisabledReason::Removed(_) }) => {
            same(Then::Stay { why: DisabledReason::Unwanted(why) })
        }
        (E::Unwanted { .. }, then) => same(then),
        (E::WantedAgain { .. }, Then::Stay { why: DisabledReason::Unwanted(_) | DisabledReason::Removed(_) }) => {
            same(Then::StartAgain { wait: WaitFor::default() })
        }
        (E::WantedAgain { .. }, then) => same(then),
        (E::Gone { departure, now, .. }, then) => {
            memory.left = departure.left;
            match then {
                Then::StartAgain { wait } => go(S::allocated(process.slot, now, wait), vec![F::FreeCell, F::KeepSlot]),
                Then::Stay { why } => go(S::disabled(why), vec![F::FreeCell, F::Release]),
            }
        }
        (
            E::Passed { .. }
            | E::StartAsked { .. }
            | E::SettingsChanged
            | E::SettingsSent
            | E::HeldBack
            | E::SlotGiven { .. }
            | E::SlotRefused { .. }
            | E::SlotLost
            | E::Spawned { .. }
            | E::SpawnFailed { .. },
            then,
        ) => same(then),
    }
}

fn disabled(why: DisabledReason, again_at: Option<Instant>, event: QueueEvent) -> QueueStep {
    match event {
        E::Passed { now } if again_at.is_some_and(|at| now >= at) => go(S::enabled(WaitFor::default()), vec![]),
        // A reason that lasts is kept: it says who disabled it, and is not looked at again by itself.
        E::StopAsked { .. } => go(S::disabled(if again_at.is_some() { DisabledReason::Stopped } else { why }), vec![]),
        E::RestartAsked { wait, .. } => go(S::enabled(wait), vec![]),
        E::StartAsked { .. } | E::WantedAgain { .. } | E::EndAsked { then: Then::StartAgain { .. }, .. } => {
            go(S::enabled(WaitFor::default()), vec![])
        }
        E::EndAsked { then: Then::Stay { why: why @ DisabledReason::Removed(_) }, .. } => go(S::disabled(why), vec![]),
        E::Unwanted { why: new, .. } if why != DisabledReason::Stopped => {
            go(S::disabled(DisabledReason::Unwanted(new)), vec![])
        }
        E::Passed { .. }
        | E::Unwanted { .. }
        | E::EndAsked { then: Then::Stay { .. }, .. }
        | E::HeldBack
        | E::SlotGiven { .. }
        | E::SlotRefused { .. }
        | E::SlotLost
        | E::Spawned { .. }
        | E::SpawnFailed { .. }
        | E::Acknowledged
        | E::SettingsChanged
        | E::SettingsSent
        | E::BeatSeen { .. }
        | E::Gone { .. } => go(S::Disabled { why, again_at }, vec![]),
    }
}

#[cfg(test)]
mod tests;
