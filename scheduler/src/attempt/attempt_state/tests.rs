//! The machine as the README shows it, and what holds however events follow one another.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn name(state: S) -> &'static str {
    match state {
        S::Claimed => "Claimed",
        S::Assigned { ack_by: None } => "Assigned",
        S::Assigned { ack_by: Some(_) } => "Assigned (cell)",
        S::Connected { asked: false } => "Connected",
        S::Connected { asked: true } => "Connected (asked)",
        S::Running => "Running",
        S::Leaving => "Leaving",
        S::Cancelling { .. } => "Cancelling",
        S::Killed => "Killed",
        S::Reported => "Reported",
        S::Recording => "Recording",
        S::RecordRetry { under_way: false } => "RecordRetry",
        S::RecordRetry { under_way: true } => "RecordRetry (under way)",
        S::Settling { next: Some(_), .. } => "Settling",
        S::Settling { next: None, .. } => "Settling (asked)",
        S::Returning { next: Some(_) } => "Returning",
        S::Returning { next: None } => "Returning (asked)",
        S::Unrecordable => "Unrecordable",
        S::Over => "Over",
    }
}

fn states(past: Instant) -> [S; 19] {
    [
        S::Claimed,
        S::Assigned { ack_by: None },
        S::Assigned { ack_by: Some(past) },
        S::Connected { asked: false },
        S::Connected { asked: true },
        S::Running,
        S::Leaving,
        S::Cancelling { kill_at: past },
        S::Killed,
        S::Reported,
        S::Recording,
        S::RecordRetry { under_way: false },
        S::RecordRetry { under_way: true },
        S::Settling { tries: 1, next: Some(past) },
        S::Settling { tries: 1, next: None },
        S::Returning { next: Some(past) },
        S::Returning { next: None },
        S::Unrecordable,
        S::Over,
    ]
}

fn events(now: Instant) -> [(&'static str, E); 21] {
    let ended = |outcome| E::Ended { outcome };
    [
        ("Forked (pooled)", E::Forked(Door::Pooled)),
        ("Forked (own)", E::Forked(Door::Own)),
        ("Forked (cell)", E::Forked(Door::Cell { ack_by: now })),
        ("Forked (recorder)", E::Forked(Door::Recorder)),
        ("NotForked", E::NotForked { now }),
        ("Acknowledged", E::Acknowledged),
        ("Connected", E::Connected),
        ("Passed (late)", E::Passed { now }),
        ("CancelAsked", E::CancelAsked { now }),
        ("LetGo", E::LetGo),
        ("Asked", E::Asked),
        ("Granted", E::Granted),
        ("Refused", E::Refused { now }),
        ("Unanswered", E::Unanswered { now }),
        ("SessionLost", E::SessionLost { now }),
        ("DataLost", E::DataLost { now }),
        ("Ended (finished)", ended(WorkerOutcome::Finished)),
        ("Ended (result)", ended(WorkerOutcome::Result)),
        ("Ended (unrecordable)", ended(WorkerOutcome::Unrecordable)),
        ("Ended (unrecorded)", ended(WorkerOutcome::Unrecorded)),
        ("Ended (unknown)", ended(WorkerOutcome::Unknown)),
    ]
}

/// Events that lead from a state to the same one with the same effects are in one line. The end of a worker is the same for all
/// states that have one, and is printed once.
fn table() -> String {
    let past = Instant::now();
    let now = past + Duration::from_secs(1);
    let mut text = "| state | event | next | effects |\n|---|---|---|---|\n".to_owned();
    let (ends, others): (Vec<_>, Vec<_>) =
        events(now).into_iter().partition(|(_, event)| matches!(event, E::Ended { .. }));
    for state in states(past) {
        let mut lines: Vec<(Vec<&str>, String)> = Vec::new();
        for (event_name, event) in &others {
            let step = step(state, *event);
            if step.next == state && step.effects.is_empty() {
                continue;
            }
            let end = format!(" {} |\n", shown(&step));
            match lines.iter_mut().find(|(_, known)| *known == end) {
                Some((names, _)) => names.push(event_name),
                None => lines.push((vec![event_name], end)),
            }
        }
        for (names, end) in lines {
            text += &format!("| {} | {} |{end}", name(state), names.join(", "));
        }
    }
    for (event_name, event) in ends {
        let E::Ended { outcome } = event else { continue };
        for state in states(past) {
            let unchanged = Step { next: state, effects: Vec::new() };
            assert_eq!(step(state, event), if has_worker(state) { ended(outcome) } else { unchanged }, "{state:?}");
        }
        text += &format!("| with a worker | {event_name} | {} |\n", shown(&ended(outcome)));
    }
    text
}

fn shown(step: &Step) -> String {
    let effects: Vec<String> = step.effects.iter().map(|effect| format!("{effect:?}")).collect();
    format!("{} | {}", name(step.next), effects.join(", "))
}

#[test]
fn the_readme_shows_the_table_that_the_code_walks() {
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(&table()), "put this into scheduler/README.md:\n\n{}", table());
}

#[test]
fn a_backend_that_does_not_heed_a_cancel_is_terminated() {
    let mut now = Instant::now();
    let mut state = S::Killed;
    let mut asked = Vec::new();
    let mut event = E::Ended { outcome: WorkerOutcome::Unknown };
    for _ in 0..12 {
        let step = step(state, event);
        asked.extend(step.effects.iter().filter_map(|effect| match effect {
            Effect::Settle { terminate } => Some(*terminate),
            _ => None,
        }));
        state = step.next;
        event = match &state {
            S::Settling { next: None, .. } => E::Unanswered { now },
            _ => {
                now += SETTLE_PAUSE;
                E::Passed { now }
            }
        };
    }
    assert_eq!(asked[..6], [false, false, false, false, true, true]);
}

#[test]
fn a_worker_that_does_not_read_its_order_in_time_is_killed_and_its_row_settled() {
    let now = Instant::now();
    let killed = step(S::Assigned { ack_by: Some(now) }, E::Passed { now });
    assert_eq!(killed.effects, [Effect::Kill]);
    let settling = step(killed.next, E::Ended { outcome: WorkerOutcome::Unknown });
    assert_eq!(settling.effects, [Effect::FreeCell, Effect::Settle { terminate: false }]);
    assert_eq!(step(settling.next, E::Granted).next, S::Over);
}

/// A worker process is there in these states, and in no others.
fn has_worker(state: S) -> bool {
    matches!(
        state,
        S::Assigned { .. }
            | S::Connected { .. }
            | S::Running
            | S::Leaving
            | S::Cancelling { .. }
            | S::Killed
            | S::RecordRetry { under_way: true }
    )
}

/// A question to the database is in flight.
fn has_question(state: S) -> bool {
    matches!(
        state,
        S::Connected { asked: true } | S::Recording | S::Settling { next: None, .. } | S::Returning { next: None }
    )
}

fn has_result(state: S) -> bool {
    matches!(state, S::Reported | S::Recording | S::RecordRetry { .. })
}

/// Whether this can happen to an attempt in this state. A server whose data are elsewhere is met with a new session, when no
/// question is in flight; its recorders are apart: their end is seen whatever the state is by then.
fn is_possible(state: S, event: E) -> bool {
    match event {
        E::Forked(Door::Recorder) => state == S::RecordRetry { under_way: false },
        E::Forked(_) | E::NotForked { .. } => state == S::Claimed,
        E::Connected => state == S::Assigned { ack_by: None },
        E::Acknowledged => matches!(state, S::Assigned { ack_by: Some(_) } | S::Cancelling { .. }),
        E::Ended { outcome: WorkerOutcome::Unrecorded } => has_worker(state) && has_result(state),
        E::Ended { outcome: WorkerOutcome::Finished } => has_worker(state),
        E::Ended { .. } => has_worker(state) && !has_result(state),
        E::Asked => {
            matches!(state, S::Connected { asked: false } | S::Reported | S::Returning { next: Some(_) })
        }
        E::Granted => has_question(state) || state == S::Unrecordable,
        E::Refused { .. } | E::Unanswered { .. } => has_question(state),
        E::DataLost { .. } => !has_question(state) && !has_worker(state),
        E::Passed { .. } | E::CancelAsked { .. } | E::LetGo | E::SessionLost { .. } => true,
    }
}

proptest! {
    #[test]
    fn whatever_follows_no_process_and_no_result_is_lost(choices in prop::collection::vec((0..21usize, 0..2000u64), 1..60)) {
        let mut now = Instant::now();
        let mut state = S::Claimed;
        for (choice, later_ms) in choices {
            now += Duration::from_millis(later_ms);
            let (_, event) = events(now)[choice];
            if !is_possible(state, event) {
                continue;
            }
            let Step { next, effects } = step(state, event);
            let process_ends = matches!(event, E::Ended { .. });
            let process_starts = matches!(event, E::Forked(_));
            prop_assert_eq!(has_worker(next), has_worker(state) && !process_ends || process_starts, "{:?} {:?}", state, event);
            if has_result(state) && !has_result(next) {
                let recorded = matches!(event, E::Granted | E::Ended { outcome: WorkerOutcome::Finished });
                let given_up = matches!(event, E::DataLost { .. } | E::CancelAsked { .. });
                prop_assert!(recorded || given_up, "{:?} {:?}", state, event);
            }
            let settles = effects.iter().any(|effect| matches!(effect, Effect::Settle { .. }));
            prop_assert!(!settles || !has_worker(next), "a live worker's row is settled");
            prop_assert!(!process_ends || effects.contains(&Effect::FreeCell), "a cell is kept: {:?}", state);
            prop_assert!(state != S::Over || next == S::Over && effects.is_empty());
            state = next;
        }
    }

    #[test]
    fn an_attempt_whose_questions_are_answered_comes_to_an_end(choices in prop::collection::vec(0..21usize, 0..40)) {
        let mut now = Instant::now();
        let mut state = S::Claimed;
        for choice in choices {
            let (_, event) = events(now)[choice];
            if is_possible(state, event) {
                state = step(state, event).next;
            }
        }
        for _ in 0..20 {
            now += SWEEP_PERIOD * 2;
            state = step(state, E::Passed { now }).next;
            let event = match state {
                S::Claimed => E::Forked(Door::Pooled),
                S::RecordRetry { under_way: false } => E::Forked(Door::Recorder),
                S::RecordRetry { under_way: true } => E::Ended { outcome: WorkerOutcome::Finished },
                state if has_worker(state) => E::Ended { outcome: WorkerOutcome::Unknown },
                S::Reported | S::Returning { next: Some(_) } => E::Asked,
                _ => E::Granted,
            };
            state = step(state, event).next;
        }
        prop_assert_eq!(state, S::Over);
    }
}
