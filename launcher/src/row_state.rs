//! The life of one config row: does it have a slot, does its scheduler run. PURE.
//!
//! A slot is held exactly in Allocated, Starting, Started and Ending. `step` decides; the loop carries the effects out
//! and reports what came of them as events. The table in the crate's README is printed from here by a test.

use crate::restart_policy::{Death, RestartPolicy};
use nix::unistd::Pid;
use shared::region::SlotHandle;
use std::time::{Duration, Instant};

/// From one rung of the ladder to the next, once `close` is over.
const RUNG: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Wanted, holds nothing.
    Enabled,
    /// Holds a slot; the scheduler is to be started at a moment.
    Allocated { slot: SlotHandle, start_at: Instant },
    /// Forked; has not read its parameters yet.
    Starting { slot: SlotHandle, pid: Pid, began: Instant, ack_by: Instant },
    /// The scheduler runs.
    Started { slot: SlotHandle, pid: Pid, began: Instant },
    /// The scheduler was told to end; stronger words follow at a moment.
    Ending { slot: SlotHandle, pid: Pid, rung: Rung, next_rung: Instant, then: Then },
    /// Not wanted any more, or of no use until somebody changes something.
    Disabled { why: String },
}

/// How strongly a scheduler was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    Finish,
    Cancel,
    Kill,
}

/// What follows the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Stay,
    StartAgain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowEvent {
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
    /// The slot has been released by the one who tried.
    SpawnFailed {
        now: Instant,
    },
    Acknowledged,
    /// The loop of the scheduler stands still.
    BeatStopped,
    EndAsked {
        rung: Rung,
        then: Then,
        now: Instant,
        close: Duration,
    },
    /// The scheduler is gone; `permanent`: starting it again cannot help.
    Gone {
        death: Death,
        permanent: Option<String>,
        now: Instant,
        longest: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowEffect {
    /// Try to get a slot.
    Reserve,
    /// Start the scheduler in the slot.
    Spawn,
    /// Keep the dead scheduler's slot in our own name.
    KeepSlot,
    Release,
    FreeCell,
    Tell(Rung),
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct RowStep {
    pub next: RowState,
    pub effects: Vec<RowEffect>,
}

impl RowState {
    pub fn name(&self) -> &'static str {
        match self {
            RowState::Enabled => "ENABLED",
            RowState::Allocated { .. } => "ALLOCATED",
            RowState::Starting { .. } => "STARTING",
            RowState::Started { .. } => "STARTED",
            RowState::Ending { .. } => "ENDING",
            RowState::Disabled { .. } => "DISABLED",
        }
    }

    pub fn slot(&self) -> Option<SlotHandle> {
        match self {
            RowState::Enabled | RowState::Disabled { .. } => None,
            RowState::Allocated { slot, .. }
            | RowState::Starting { slot, .. }
            | RowState::Started { slot, .. }
            | RowState::Ending { slot, .. } => Some(*slot),
        }
    }

    pub fn pid(&self) -> Option<Pid> {
        match self {
            RowState::Enabled | RowState::Disabled { .. } | RowState::Allocated { .. } => None,
            RowState::Starting { pid, .. } | RowState::Started { pid, .. } | RowState::Ending { pid, .. } => Some(*pid),
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self {
            RowState::Allocated { start_at, .. } => Some(*start_at),
            RowState::Starting { ack_by, .. } => Some(*ack_by),
            RowState::Ending { next_rung, .. } => Some(*next_rung),
            RowState::Enabled | RowState::Started { .. } | RowState::Disabled { .. } => None,
        }
    }
}

pub fn step(state: RowState, event: RowEvent, policy: &mut RestartPolicy) -> RowStep {
    use RowEffect as F;
    use RowEvent as E;
    use RowState as S;
    let go = |next: S, effects: Vec<F>| RowStep { next, effects };
    let end = |slot, pid, rung: Rung, then, now: Instant, close: Duration| {
        let patience = if rung == Rung::Finish { close + RUNG } else { RUNG };
        go(S::Ending { slot, pid, rung, next_rung: now + patience, then }, vec![F::Tell(rung)])
    };
    match (state, event) {
        (S::Enabled, E::Passed { .. }) => go(S::Enabled, vec![F::Reserve]),
        (S::Enabled, E::SlotGiven { slot, now }) => go(S::Allocated { slot, start_at: now }, vec![]),
        (S::Enabled, E::SlotRefused) => go(S::Enabled, vec![]),
        (S::Allocated { slot, start_at }, E::Passed { now }) if now >= start_at => {
            go(S::Allocated { slot, start_at }, vec![F::Spawn])
        }
        (S::Allocated { slot, .. }, E::Spawned { pid, now, close }) => {
            go(S::Starting { slot, pid, began: now, ack_by: now + close }, vec![])
        }
        (S::Allocated { .. }, E::SpawnFailed { .. }) => go(S::Enabled, vec![]),
        (S::Starting { slot, pid, began, .. }, E::Acknowledged) => {
            go(S::Started { slot, pid, began }, vec![F::FreeCell])
        }
        // Its end is seen as Gone; the cell is freed then, for a child may just be reading.
        (S::Starting { slot, pid, began, ack_by }, E::Passed { now }) if now >= ack_by => {
            go(S::Starting { slot, pid, began, ack_by: now + RUNG }, vec![F::Tell(Rung::Kill)])
        }
        (state @ (S::Starting { .. } | S::Started { .. }), E::BeatStopped) => go(state, vec![F::Tell(Rung::Kill)]),
        (
            S::Starting { slot, began, .. } | S::Started { slot, began, .. },
            E::Gone { death, permanent: None, now, longest },
        ) => {
            let start_at = policy.next_start(death, began, now, longest);
            go(S::Allocated { slot, start_at }, vec![F::FreeCell, F::KeepSlot])
        }
        (S::Starting { .. } | S::Started { .. }, E::Gone { permanent: Some(why), .. }) => {
            go(S::Disabled { why }, vec![F::FreeCell, F::Release])
        }
        (S::Enabled, E::EndAsked { then: Then::Stay, .. }) => go(disabled(), vec![]),
        (S::Allocated { .. }, E::EndAsked { then: Then::Stay, .. }) => go(disabled(), vec![F::Release]),
        (S::Disabled { .. }, E::EndAsked { then: Then::StartAgain, .. }) => go(S::Enabled, vec![]),
        (S::Starting { slot, pid, .. } | S::Started { slot, pid, .. }, E::EndAsked { rung, then, now, close }) => {
            end(slot, pid, rung, then, now, close)
        }
        (S::Ending { slot, pid, rung: before, then: first, next_rung }, E::EndAsked { rung, then, now, close }) => {
            if rung > before {
                end(slot, pid, rung, then, now, close)
            } else {
                let then = if then == Then::Stay { Then::Stay } else { first };
                go(S::Ending { slot, pid, rung: before, next_rung, then }, vec![])
            }
        }
        (S::Ending { slot, pid, rung, next_rung, then }, E::Passed { now }) if now >= next_rung => {
            let stronger = if rung == Rung::Finish { Rung::Cancel } else { Rung::Kill };
            end(slot, pid, stronger, then, now, Duration::ZERO)
        }
        (S::Ending { slot, then: Then::StartAgain, .. }, E::Gone { now, .. }) => {
            go(S::Allocated { slot, start_at: now }, vec![F::FreeCell, F::KeepSlot])
        }
        (S::Ending { then: Then::Stay, .. }, E::Gone { .. }) => go(disabled(), vec![F::FreeCell, F::Release]),
        (state @ S::Ending { .. }, E::Acknowledged) => go(state, vec![F::FreeCell]),
        // Nothing to do, or an event that came too late to matter.
        (
            state @ S::Enabled,
            E::Spawned { .. }
            | E::SpawnFailed { .. }
            | E::Acknowledged
            | E::BeatStopped
            | E::EndAsked { then: Then::StartAgain, .. }
            | E::Gone { .. },
        ) => go(state, vec![]),
        (
            state @ S::Allocated { .. },
            E::Passed { .. }
            | E::SlotGiven { .. }
            | E::SlotRefused
            | E::Acknowledged
            | E::BeatStopped
            | E::EndAsked { then: Then::StartAgain, .. }
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
            | E::EndAsked { then: Then::Stay, .. }
            | E::Gone { .. },
        ) => go(state, vec![]),
    }
}

fn disabled() -> RowState {
    RowState::Disabled { why: "ended because it was asked to".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::region::Region;

    fn slot() -> SlotHandle {
        Region::create(1).unwrap().slots().reserve().unwrap()
    }

    fn states(at: Instant) -> [RowState; 6] {
        let (slot, pid) = (slot(), Pid::from_raw(7));
        [
            RowState::Enabled,
            RowState::Allocated { slot, start_at: at },
            RowState::Starting { slot, pid, began: at, ack_by: at },
            RowState::Started { slot, pid, began: at },
            RowState::Ending { slot, pid, rung: Rung::Finish, next_rung: at, then: Then::Stay },
            disabled(),
        ]
    }

    fn events(now: Instant) -> [(&'static str, RowEvent); 12] {
        let (pid, close) = (Pid::from_raw(7), Duration::from_secs(60));
        let stay = |rung| RowEvent::EndAsked { rung, then: Then::Stay, now, close };
        let gone = |permanent: Option<&str>| RowEvent::Gone {
            death: Death::AfterWork,
            permanent: permanent.map(str::to_owned),
            now,
            longest: close,
        };
        [
            ("Passed (due)", RowEvent::Passed { now }),
            ("SlotGiven", RowEvent::SlotGiven { slot: slot(), now }),
            ("SlotRefused", RowEvent::SlotRefused),
            ("Spawned", RowEvent::Spawned { pid, now, close }),
            ("SpawnFailed", RowEvent::SpawnFailed { now }),
            ("Acknowledged", RowEvent::Acknowledged),
            ("BeatStopped", RowEvent::BeatStopped),
            ("EndAsked (finish)", stay(Rung::Finish)),
            ("EndAsked (cancel)", stay(Rung::Cancel)),
            ("EndAsked (start again)", RowEvent::EndAsked { rung: Rung::Finish, then: Then::StartAgain, now, close }),
            ("Gone", gone(None)),
            ("Gone (permanent)", gone(Some("why"))),
        ]
    }

    /// One line per state and event that does something.
    fn table() -> String {
        let past = Instant::now();
        let now = past + Duration::from_secs(1);
        let mut text = "| state | event | next | effects |\n|---|---|---|---|\n".to_owned();
        for state in states(past) {
            for (name, event) in events(now) {
                let step = step(state.clone(), event, &mut RestartPolicy::default());
                if step.next != state || !step.effects.is_empty() {
                    let effects: Vec<String> = step.effects.iter().map(|effect| format!("{effect:?}")).collect();
                    let next = step.next.name();
                    text += &format!("| {} | {name} | {next} | {} |\n", state.name(), effects.join(", "));
                }
            }
        }
        text
    }

    #[test]
    fn the_readme_shows_the_table_that_the_code_walks() {
        let readme = include_str!("../README.md");
        assert!(readme.contains(&table()), "put this into launcher/README.md:\n\n{}", table());
    }

    #[test]
    fn whoever_leaves_a_state_with_a_slot_for_one_without_releases_it() {
        let past = Instant::now();
        for state in states(past) {
            for (name, event) in events(past + Duration::from_secs(1)) {
                let failed = matches!(event, RowEvent::SpawnFailed { .. });
                let step = step(state.clone(), event, &mut RestartPolicy::default());
                let lost = state.slot().is_some() && step.next.slot().is_none();
                let released = step.effects.contains(&RowEffect::Release);
                assert_eq!(lost && !failed, released, "{} by {name}", state.name());
            }
        }
    }

    #[test]
    fn a_scheduler_that_does_not_end_is_told_so_ever_more_strongly() {
        let now = Instant::now();
        let close = Duration::from_secs(10);
        let started = RowState::Started { slot: slot(), pid: Pid::from_raw(7), began: now };
        let policy = &mut RestartPolicy::default();
        let asked = step(started, RowEvent::EndAsked { rung: Rung::Finish, then: Then::Stay, now, close }, policy);
        let mut told = asked.effects;
        let mut state = asked.next;
        for _ in 0..2 {
            let at = state.deadline().unwrap();
            let step = step(state, RowEvent::Passed { now: at }, policy);
            told.extend(step.effects);
            state = step.next;
        }
        assert_eq!(told, [RowEffect::Tell(Rung::Finish), RowEffect::Tell(Rung::Cancel), RowEffect::Tell(Rung::Kill)]);
    }
}
