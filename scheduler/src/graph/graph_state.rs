//! Who keeps the graph of a database, and with which session. PURE: no clock, no connection.
//!
//! One scheduler of a database holds its lock (kind 6) on the queue's session. While nothing of the graph is in use, that
//! session also holds the catalog's wake-up lock, and the graph costs nothing else; as soon as there is a timer, a job without
//! input or a back-fill, a session of its own is dialled and kept until nothing has been in use for a while.
//! The table in the crate's README is printed from here.

use std::time::{Duration, Instant};

/// How often the lock is tried while another scheduler holds it.
const ELSEWHERE_PAUSE: Duration = Duration::from_secs(5);
/// The backstop behind the wake-up lock.
const DORMANT_PAUSE: Duration = Duration::from_secs(60);
/// The wake-up lock is not free, because another transaction is open: tried again soon.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphState {
    /// No session of the queue, or no catalog.
    Absent,
    /// The queue's session asks whether the graph is ours and in use; the catalog may change meanwhile.
    Querying {
        changed: bool,
    },
    /// Another scheduler keeps it; asked again at a moment.
    Elsewhere {
        ask_at: Instant,
    },
    /// Ours, and nothing of it is in use.
    Dormant {
        ask_at: Instant,
    },
    /// Ours and in use; its session is dialled again at a moment.
    Down {
        retry_at: Instant,
    },
    Dialling,
    Preparing,
    /// Timers fire.
    Keeping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphEvent {
    /// The queue's session knows the catalog.
    Ready,
    /// The queue's session is gone.
    Gone,
    Passed {
        now: Instant,
    },
    /// The catalog has notified.
    CatalogChanged,
    /// `keeps`: the lock is ours; `hears`: the wake-up lock is held; `used`: there is something to keep.
    Watched {
        now: Instant,
        keeps: bool,
        hears: bool,
        used: bool,
    },
    Up,
    Prepared,
    Lost {
        now: Instant,
    },
    /// Nothing has been in use for a while.
    Unused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphEffect {
    /// By the queue's session: is it ours, is it in use?
    Ask,
    Dial,
    Prepare,
    HangUp,
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct GraphStep {
    pub next: GraphState,
    pub effects: Vec<GraphEffect>,
}

pub fn step(state: GraphState, event: GraphEvent) -> GraphStep {
    use GraphEffect as F;
    use GraphEvent as E;
    use GraphState as S;
    let go = |next, effects| GraphStep { next, effects };
    match (state, event) {
        (S::Absent, E::Ready) => go(S::Querying { changed: false }, vec![F::Ask]),
        (S::Querying { .. } | S::Elsewhere { .. } | S::Dormant { .. }, E::Gone) => go(S::Absent, vec![]),
        (S::Down { .. } | S::Dialling | S::Preparing | S::Keeping, E::Gone) => go(S::Absent, vec![F::HangUp]),
        (S::Elsewhere { ask_at } | S::Dormant { ask_at }, E::Passed { now }) if now >= ask_at => {
            go(S::Querying { changed: false }, vec![F::Ask])
        }
        (S::Dormant { .. }, E::CatalogChanged) => go(S::Querying { changed: false }, vec![F::Ask]),
        (S::Querying { .. }, E::CatalogChanged) => go(S::Querying { changed: true }, vec![]),
        (S::Querying { .. }, E::Watched { now, keeps: false, .. }) => {
            go(S::Elsewhere { ask_at: now + ELSEWHERE_PAUSE }, vec![])
        }
        (S::Querying { .. }, E::Watched { used: true, .. }) => go(S::Dialling, vec![F::Dial]),
        (S::Querying { changed: true }, E::Watched { .. }) => go(S::Querying { changed: false }, vec![F::Ask]),
        (S::Querying { changed: false }, E::Watched { now, hears, .. }) => {
            go(S::Dormant { ask_at: now + if hears { DORMANT_PAUSE } else { REFUSED_PAUSE } }, vec![])
        }
        (S::Down { retry_at }, E::Passed { now }) if now >= retry_at => go(S::Dialling, vec![F::Dial]),
        (S::Dialling, E::Up) => go(S::Preparing, vec![F::Prepare]),
        (S::Preparing, E::Prepared) => go(S::Keeping, vec![]),
        (S::Dialling | S::Preparing | S::Keeping, E::Lost { now }) => {
            go(S::Down { retry_at: now + RETRY_PAUSE }, vec![F::HangUp])
        }
        (S::Keeping, E::Unused) => go(S::Querying { changed: false }, vec![F::HangUp, F::Ask]),
        // Nothing of the following changes anything: it comes too late, or not now.
        (state @ S::Absent, E::Gone) => go(state, vec![]),
        (
            state @ (S::Querying { .. }
            | S::Elsewhere { .. }
            | S::Dormant { .. }
            | S::Down { .. }
            | S::Dialling
            | S::Preparing
            | S::Keeping),
            E::Ready,
        ) => go(state, vec![]),
        (state, E::Passed { .. }) => go(state, vec![]),
        (
            state @ (S::Absent | S::Elsewhere { .. } | S::Down { .. } | S::Dialling | S::Preparing | S::Keeping),
            E::CatalogChanged,
        ) => go(state, vec![]),
        (
            state @ (S::Absent
            | S::Elsewhere { .. }
            | S::Dormant { .. }
            | S::Down { .. }
            | S::Dialling
            | S::Preparing
            | S::Keeping),
            E::Watched { .. },
        ) => go(state, vec![]),
        (
            state @ (S::Absent
            | S::Querying { .. }
            | S::Elsewhere { .. }
            | S::Dormant { .. }
            | S::Down { .. }
            | S::Preparing
            | S::Keeping),
            E::Up,
        ) => go(state, vec![]),
        (
            state @ (S::Absent
            | S::Querying { .. }
            | S::Elsewhere { .. }
            | S::Dormant { .. }
            | S::Down { .. }
            | S::Dialling
            | S::Keeping),
            E::Prepared,
        ) => go(state, vec![]),
        (
            state @ (S::Absent | S::Querying { .. } | S::Elsewhere { .. } | S::Dormant { .. } | S::Down { .. }),
            E::Lost { .. },
        ) => go(state, vec![]),
        (
            state @ (S::Absent
            | S::Querying { .. }
            | S::Elsewhere { .. }
            | S::Dormant { .. }
            | S::Down { .. }
            | S::Dialling
            | S::Preparing),
            E::Unused,
        ) => go(state, vec![]),
    }
}

impl GraphState {
    pub fn deadline(self) -> Option<Instant> {
        match self {
            GraphState::Elsewhere { ask_at } | GraphState::Dormant { ask_at } => Some(ask_at),
            GraphState::Down { retry_at } => Some(retry_at),
            GraphState::Absent
            | GraphState::Querying { .. }
            | GraphState::Dialling
            | GraphState::Preparing
            | GraphState::Keeping => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(state: GraphState) -> &'static str {
        match state {
            GraphState::Absent => "Absent",
            GraphState::Querying { changed: false } => "Querying",
            GraphState::Querying { changed: true } => "Querying (changed)",
            GraphState::Elsewhere { .. } => "Elsewhere",
            GraphState::Dormant { .. } => "Dormant",
            GraphState::Down { .. } => "Down",
            GraphState::Dialling => "Dialling",
            GraphState::Preparing => "Preparing",
            GraphState::Keeping => "Keeping",
        }
    }

    fn table() -> String {
        let past = Instant::now();
        let now = past + Duration::from_millis(1);
        let watched = |keeps: bool, used: bool| GraphEvent::Watched { now, keeps, hears: keeps && !used, used };
        let states = [
            GraphState::Absent,
            GraphState::Querying { changed: false },
            GraphState::Querying { changed: true },
            GraphState::Elsewhere { ask_at: past },
            GraphState::Dormant { ask_at: past },
            GraphState::Down { retry_at: past },
            GraphState::Dialling,
            GraphState::Preparing,
            GraphState::Keeping,
        ];
        let events = [
            ("Ready", GraphEvent::Ready),
            ("Gone", GraphEvent::Gone),
            ("Passed (due)", GraphEvent::Passed { now }),
            ("CatalogChanged", GraphEvent::CatalogChanged),
            ("Watched (not ours)", watched(false, false)),
            ("Watched (unused)", watched(true, false)),
            ("Watched (used)", watched(true, true)),
            ("Up", GraphEvent::Up),
            ("Prepared", GraphEvent::Prepared),
            ("Lost", GraphEvent::Lost { now }),
            ("Unused", GraphEvent::Unused),
        ];
        let mut text = String::from("| state | event | next | effects |\n|---|---|---|---|\n");
        for state in states {
            for (event_name, event) in events {
                let GraphStep { next, effects } = step(state, event);
                if name(next) != name(state) || !effects.is_empty() {
                    let effects: Vec<String> = effects.iter().map(|effect| format!("{effect:?}")).collect();
                    text += &format!("| {} | {event_name} | {} | {} |\n", name(state), name(next), effects.join(", "));
                }
            }
        }
        text
    }

    #[test]
    fn the_readme_shows_the_table_that_the_code_walks() {
        let readme = include_str!("../../README.md");
        assert!(readme.contains(&table()), "put this into scheduler/README.md:\n\n{}", table());
    }

    #[test]
    fn a_change_during_the_query_brings_another_one() {
        let now = Instant::now();
        let changed = step(GraphState::Querying { changed: false }, GraphEvent::CatalogChanged).next;
        let answer = GraphEvent::Watched { now, keeps: true, hears: true, used: false };
        assert_eq!(step(changed, answer).effects, [GraphEffect::Ask]);
        assert_eq!(step(GraphState::Querying { changed: false }, answer).effects, []);
    }
}
