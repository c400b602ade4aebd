//! The life of one taken task as its scheduler sees it. PURE: no clock, no process, no database.
//!
//! A task is in this machine from the moment it is taken until its row is known to be finished or planned again.
//! `step` says what comes next and what is to be done; the event loop does it and reports back. The table in the
//! crate's README is printed from this file by a test.

use crate::limits::{CANCEL_TIMEOUT, CANCEL_TRIES, SETTLE_PAUSE};
use std::time::Instant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Forked; the cell is published, the acknowledgement still to come.
    Starting { ack_by: Instant },
    /// The worker has its order.
    Running,
    /// The worker was asked to cancel and to plan the task again.
    Cancelling { kill_at: Instant },
    /// The worker was killed; its end is still to be seen.
    Killed,
    /// The worker is gone without having finished its row; it is being found out what became of it.
    Settling { looks: u32, next_look: Option<Instant> },
    /// The row is finished or planned again: nothing is left to do.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// The cell says that the worker has its order.
    Acknowledged,
    /// Time has passed.
    Passed { now: Instant },
    /// The scheduler ends and wants the task back.
    CancelAsked { now: Instant },
    /// The process is gone; `clean`: it says that it has finished its row.
    Ended { clean: bool, now: Instant },
    /// The row is final, planned again, or somebody else's.
    Settled,
    /// Its backend still lives, or the question could not be put.
    Unsettled { now: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Wipe and free the worker's cell.
    FreeCell,
    /// Tell the worker to cancel what it runs and to plan it again.
    TellCancel,
    /// SIGKILL.
    Kill,
    /// Ask the database what became of the row; end its backend.
    Settle { terminate: bool },
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub next: TaskState,
    pub effects: Vec<Effect>,
}

impl TaskState {
    /// When `Passed` has something to say.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            TaskState::Starting { ack_by } => Some(*ack_by),
            TaskState::Cancelling { kill_at } => Some(*kill_at),
            TaskState::Settling { next_look, .. } => *next_look,
            TaskState::Running | TaskState::Killed | TaskState::Over => None,
        }
    }
}

pub fn step(state: TaskState, event: TaskEvent) -> Step {
    use TaskEvent as E;
    use TaskState as S;
    let stay = |state: S| Step { next: state, effects: vec![] };
    match (state, event) {
        (S::Starting { .. }, E::Acknowledged) => Step { next: S::Running, effects: vec![Effect::FreeCell] },
        (S::Starting { ack_by }, E::Passed { now }) if now >= ack_by => {
            // The cell is freed when the end is seen: a child that is just reading must not find it reused.
            Step { next: S::Killed, effects: vec![Effect::Kill] }
        }
        (S::Cancelling { kill_at }, E::Passed { now }) if now >= kill_at => {
            Step { next: S::Killed, effects: vec![Effect::Kill] }
        }
        (S::Settling { looks, next_look: Some(at) }, E::Passed { now }) if now >= at => Step {
            next: S::Settling { looks: looks + 1, next_look: None },
            effects: vec![Effect::Settle { terminate: looks + 1 > CANCEL_TRIES }],
        },
        (S::Starting { .. } | S::Running, E::CancelAsked { now }) => {
            Step { next: S::Cancelling { kill_at: now + CANCEL_TIMEOUT }, effects: vec![Effect::TellCancel] }
        }
        (S::Starting { .. } | S::Running | S::Cancelling { .. } | S::Killed, E::Ended { clean: true, .. }) => {
            Step { next: S::Over, effects: vec![Effect::FreeCell] }
        }
        (S::Starting { .. } | S::Running | S::Cancelling { .. } | S::Killed, E::Ended { clean: false, .. }) => Step {
            next: S::Settling { looks: 1, next_look: None },
            effects: vec![Effect::FreeCell, Effect::Settle { terminate: false }],
        },
        (S::Settling { .. }, E::Settled) => Step { next: S::Over, effects: vec![] },
        (S::Settling { looks, .. }, E::Unsettled { now }) => {
            stay(S::Settling { looks, next_look: Some(now + SETTLE_PAUSE) })
        }
        // Acknowledged twice, time that changes nothing, a second request, answers that came too late.
        (state @ S::Starting { .. }, E::Passed { .. } | E::Settled | E::Unsettled { .. }) => stay(state),
        (state @ S::Running, E::Acknowledged | E::Passed { .. } | E::Settled | E::Unsettled { .. }) => stay(state),
        (S::Cancelling { kill_at }, E::Acknowledged) => {
            Step { next: S::Cancelling { kill_at }, effects: vec![Effect::FreeCell] }
        }
        (state @ S::Cancelling { .. }, E::Passed { .. } | E::CancelAsked { .. } | E::Settled | E::Unsettled { .. }) => {
            stay(state)
        }
        (
            state @ S::Killed,
            E::Acknowledged | E::Passed { .. } | E::CancelAsked { .. } | E::Settled | E::Unsettled { .. },
        ) => stay(state),
        (state @ S::Settling { .. }, E::Acknowledged | E::Passed { .. } | E::CancelAsked { .. } | E::Ended { .. }) => {
            stay(state)
        }
        (
            S::Over,
            E::Acknowledged
            | E::Passed { .. }
            | E::CancelAsked { .. }
            | E::Ended { .. }
            | E::Settled
            | E::Unsettled { .. },
        ) => stay(S::Over),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn name(state: &TaskState) -> &'static str {
        match state {
            TaskState::Starting { .. } => "Starting",
            TaskState::Running => "Running",
            TaskState::Cancelling { .. } => "Cancelling",
            TaskState::Killed => "Killed",
            TaskState::Settling { .. } => "Settling",
            TaskState::Over => "Over",
        }
    }

    fn table() -> String {
        let past = Instant::now();
        let now = past + Duration::from_secs(1);
        let states = [
            TaskState::Starting { ack_by: past },
            TaskState::Running,
            TaskState::Cancelling { kill_at: past },
            TaskState::Killed,
            TaskState::Settling { looks: 1, next_look: Some(past) },
            TaskState::Over,
        ];
        let events = [
            ("Acknowledged", TaskEvent::Acknowledged),
            ("Passed (late)", TaskEvent::Passed { now }),
            ("CancelAsked", TaskEvent::CancelAsked { now }),
            ("Ended (clean)", TaskEvent::Ended { clean: true, now }),
            ("Ended (not clean)", TaskEvent::Ended { clean: false, now }),
            ("Settled", TaskEvent::Settled),
            ("Unsettled", TaskEvent::Unsettled { now }),
        ];
        let mut text = format!("| state |{}\n", events.map(|(name, _)| format!(" {name} |")).concat());
        text += &format!("|---|{}\n", "---|".repeat(events.len()));
        for state in states {
            text += &format!("| {} |", name(&state));
            for (_, event) in events {
                let step = step(state.clone(), event);
                let effects: Vec<String> = step.effects.iter().map(|effect| format!("{effect:?}")).collect();
                let change = if step.next == state { "·".to_owned() } else { format!("→ {}", name(&step.next)) };
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
    fn a_backend_that_does_not_heed_a_cancel_is_terminated() {
        let mut now = Instant::now();
        let mut state = TaskState::Killed;
        let mut asked = Vec::new();
        let mut event = TaskEvent::Ended { clean: false, now };
        for _ in 0..12 {
            let step = step(state, event);
            asked.extend(step.effects.iter().filter_map(|effect| match effect {
                Effect::Settle { terminate } => Some(*terminate),
                _ => None,
            }));
            state = step.next;
            event = match &state {
                TaskState::Settling { next_look: None, .. } => TaskEvent::Unsettled { now },
                _ => {
                    now += SETTLE_PAUSE;
                    TaskEvent::Passed { now }
                }
            };
        }
        assert_eq!(asked[..6], [false, false, false, false, true, true]);
    }

    #[test]
    fn a_worker_that_does_not_read_its_order_in_time_is_killed_and_its_row_settled() {
        let now = Instant::now();
        let killed = step(TaskState::Starting { ack_by: now }, TaskEvent::Passed { now });
        assert_eq!(killed.effects, [Effect::Kill]);
        let settling = step(killed.next, TaskEvent::Ended { clean: false, now });
        assert_eq!(settling.effects, [Effect::FreeCell, Effect::Settle { terminate: false }]);
        assert_eq!(step(settling.next, TaskEvent::Settled).next, TaskState::Over);
    }
}
