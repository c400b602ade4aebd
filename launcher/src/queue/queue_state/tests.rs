//! The two tables of the README, printed from the code, and what they do not show.

use super::*;
use shared::region::Region;

const WAIT: WaitFor = WaitFor { message: Some((1, 2)), marker: false };

fn slot() -> SlotHandle {
    Region::create(1).unwrap().slots().reserve().unwrap()
}

fn stay() -> Then {
    Then::Stay { why: "asked".to_owned() }
}

fn states(at: Instant) -> [QueueState; 7] {
    let (slot, pid) = (slot(), Pid::from_raw(7));
    [
        QueueState::enabled(),
        QueueState::Allocated { slot, start_at: at, wait: WaitFor::default() },
        QueueState::Starting { slot, pid, began: at, ack_by: at },
        QueueState::Started { slot, pid, began: at },
        QueueState::Ending { slot, pid, rung: Urgency::Finish, next_rung: at, then: stay() },
        QueueState::disabled("asked"),
        QueueState::Disabled { why: "not installed".to_owned(), again_at: Some(at) },
    ]
}

fn events(now: Instant) -> [(&'static str, QueueEvent); 15] {
    let (pid, close) = (Pid::from_raw(7), Duration::from_secs(60));
    let end = |rung, then| QueueEvent::EndAsked { rung, then, now, close };
    let gone = |useless: Option<&str>| QueueEvent::Gone {
        death: Death::AfterWork,
        useless: useless.map(|why| Useless { why: why.to_owned(), again_after: None }),
        now,
        longest: close,
    };
    [
        ("Passed (due)", QueueEvent::Passed { now }),
        ("SlotGiven", QueueEvent::SlotGiven { slot: slot(), now }),
        ("SlotRefused", QueueEvent::SlotRefused),
        ("Spawned", QueueEvent::Spawned { pid, now, close }),
        ("SpawnFailed", QueueEvent::SpawnFailed { now }),
        ("Acknowledged", QueueEvent::Acknowledged),
        ("BeatStopped", QueueEvent::BeatStopped),
        ("StopAsked", QueueEvent::StopAsked { now }),
        ("StartAsked", QueueEvent::StartAsked { now }),
        ("RestartAsked", QueueEvent::RestartAsked { wait: WAIT, now }),
        ("EndAsked (finish)", end(Urgency::Finish, stay())),
        ("EndAsked (cancel)", end(Urgency::Cancel, stay())),
        ("EndAsked (start again)", end(Urgency::Hurry, Then::StartAgain { wait: WaitFor::default() })),
        ("Gone", gone(None)),
        ("Gone (useless)", gone(Some("why"))),
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
            if step.next.name() != state.name() || !step.effects.is_empty() {
                let effects: Vec<String> = step.effects.iter().map(said).collect();
                let again =
                    if state.deadline().is_some() && state.name() == "DISABLED" { " (to be probed)" } else { "" };
                let next = step.next.name();
                text += &format!("| {}{again} | {name} | {next} | {} |\n", state.name(), effects.join(", "));
            }
        }
    }
    text
}

fn said(effect: &QueueEffect) -> String {
    match effect {
        QueueEffect::Spawn { .. } => "Spawn".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Lets everything happen that a state leads to by itself: slots are given, processes start and end as told. The
/// states that an operator knows, in the order in which they come, what becomes of the slot, and what the next
/// scheduler waits for.
fn walk(mut state: QueueState, first: Option<QueueEvent>) -> String {
    let (slot, pid) = (slot(), Pid::from_raw(8));
    let mut now = Instant::now() + Duration::from_secs(1);
    let close = Duration::from_secs(60);
    let known = |state: &QueueState| match state {
        QueueState::Starting { .. } | QueueState::Ending { .. } => None,
        other => Some(other.name()),
    };
    let mut path: Vec<&str> = known(&state).into_iter().collect();
    let mut also: Vec<&str> = Vec::new();
    let mut todo: Vec<QueueEvent> = first.into_iter().collect();
    // Each event leads to at most two more, and the longest way has six.
    for _ in 0..12 {
        now += Duration::from_millis(1);
        let event = if todo.is_empty() { QueueEvent::Passed { now } } else { todo.remove(0) };
        let step = step(state, event, &mut RestartPolicy::default());
        state = step.next;
        for effect in step.effects {
            match effect {
                QueueEffect::Reserve => todo.push(QueueEvent::SlotGiven { slot, now }),
                QueueEffect::Spawn { wait } => {
                    also.extend(wait.message.map(|_| "the next scheduler waits"));
                    todo.push(QueueEvent::Spawned { pid, now, close });
                    todo.push(QueueEvent::Acknowledged);
                }
                QueueEffect::KeepSlot => also.push("slot kept"),
                QueueEffect::Release => also.push("slot released"),
                QueueEffect::FreeCell => {}
                QueueEffect::Tell(_) => {
                    also.push("scheduler ended");
                    let (death, useless) = (Death::AfterWork, None);
                    todo.push(QueueEvent::Gone { death, useless, now, longest: close });
                }
            }
        }
        path.extend(known(&state).filter(|name| path.last() != Some(name)));
    }
    let path = if path.len() == 1 { "stays".to_owned() } else { path.join(" → ") };
    if also.is_empty() { path } else { format!("{path} ({})", also.join(", ")) }
}

/// What an operator has to know: every state, by itself and by each message, to where it comes to rest.
fn summary() -> String {
    let at = Instant::now();
    let now = at;
    let mut text = "| from | by itself | STOP | START | RESTART |\n|---|---|---|---|---|\n".to_owned();
    let states = states(at);
    for state in [&states[0], &states[1], &states[3], &states[5], &states[6]] {
        let probed = if state.deadline().is_some() && state.name() == "DISABLED" { ", to be probed" } else { "" };
        text += &format!(
            "| {}{probed} | {} | {} | {} | {} |\n",
            state.name(),
            walk(state.clone(), None),
            walk(state.clone(), Some(QueueEvent::StopAsked { now })),
            walk(state.clone(), Some(QueueEvent::StartAsked { now })),
            walk(state.clone(), Some(QueueEvent::RestartAsked { wait: WAIT, now })),
        );
    }
    text
}

#[test]
fn the_readme_shows_the_tables_that_the_code_walks() {
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(&summary()), "put this into launcher/README.md:\n\n{}", summary());
    assert!(readme.contains(&table()), "put this into launcher/README.md:\n\n{}", table());
}

#[test]
fn whoever_leaves_a_state_with_a_slot_for_one_without_releases_it() {
    let past = Instant::now();
    for state in states(past) {
        for (name, event) in events(past + Duration::from_secs(1)) {
            let step = step(state.clone(), event, &mut RestartPolicy::default());
            let lost = state.slot().is_some() && step.next.slot().is_none();
            let released = step.effects.contains(&QueueEffect::Release);
            assert_eq!(lost, released, "{} by {name}", state.name());
        }
    }
}

/// Told ever more strongly, as long as it does not go: what, and how long after the first word.
fn ladder(asked: QueueEvent, now: Instant) -> Vec<(Urgency, Duration)> {
    let policy = &mut RestartPolicy::default();
    let mut state = QueueState::Started { slot: slot(), pid: Pid::from_raw(7), began: now };
    let mut event = asked;
    let mut told = Vec::new();
    let mut at = now;
    for _ in 0..5 {
        let step = step(state, event, policy);
        told.extend(step.effects.iter().filter_map(|effect| match effect {
            QueueEffect::Tell(rung) => Some((*rung, at - now)),
            _ => None,
        }));
        state = step.next;
        at = state.deadline().unwrap();
        event = QueueEvent::Passed { now: at };
    }
    told
}

#[test]
fn a_scheduler_that_does_not_end_is_told_so_ever_more_strongly() {
    let now = Instant::now();
    let close = Duration::from_secs(10);
    let told = ladder(QueueEvent::EndAsked { rung: Urgency::Finish, then: stay(), now, close }, now);
    let rungs: Vec<Urgency> = told.iter().map(|(rung, _)| *rung).collect();
    assert_eq!(rungs[..3], [Urgency::Finish, Urgency::Cancel, Urgency::Kill]);
    assert_eq!(told[1].1, close + END_STEP);
}

#[test]
fn a_message_ends_a_scheduler_within_two_seconds() {
    let now = Instant::now();
    for asked in [QueueEvent::StopAsked { now }, QueueEvent::RestartAsked { wait: WaitFor::default(), now }] {
        let told = ladder(asked, now);
        let ms: Vec<(Urgency, u128)> = told.iter().take(4).map(|(rung, at)| (*rung, at.as_millis())).collect();
        assert_eq!(
            ms,
            [(Urgency::Hurry, 0), (Urgency::EndTasks, 500), (Urgency::EndSession, 1000), (Urgency::Kill, 2000)]
        );
    }
}

#[test]
fn a_start_never_changes_what_the_next_scheduler_waits_for_and_a_second_restart_does() {
    let now = Instant::now();
    let policy = &mut RestartPolicy::default();
    let message = WaitFor { message: Some((3, 2)), marker: false };
    let asked = step(QueueState::enabled(), QueueEvent::RestartAsked { wait: WAIT, now }, policy).next;
    let started = step(asked, QueueEvent::StartAsked { now }, policy).next;
    assert_eq!(started, QueueState::Enabled { wait: WAIT });
    let again = step(started, QueueEvent::RestartAsked { wait: message, now }, policy).next;
    assert_eq!(again, QueueState::Enabled { wait: message });
    // handed over once
    let allocated = step(again, QueueEvent::SlotGiven { slot: slot(), now }, policy).next;
    let spawn = step(allocated, QueueEvent::Passed { now }, policy);
    assert_eq!(spawn.effects, [QueueEffect::Spawn { wait: message }]);
    let close = Duration::from_secs(1);
    let starting = step(spawn.next, QueueEvent::Spawned { pid: Pid::from_raw(7), now, close }, policy).next;
    let (death, useless) = (Death::AfterWork, None);
    let after = step(starting, QueueEvent::Gone { death, useless, now, longest: close }, policy).next;
    assert!(matches!(after, QueueState::Allocated { wait: WaitFor { message: None, marker: false }, .. }));
}

#[test]
fn a_message_that_comes_while_a_scheduler_ends_decides_what_follows() {
    let now = Instant::now();
    let policy = &mut RestartPolicy::default();
    let started = QueueState::Started { slot: slot(), pid: Pid::from_raw(7), began: now };
    let mut then = |first: QueueEvent, second: QueueEvent| {
        let ending = step(started.clone(), first, policy).next;
        match step(ending, second, policy).next {
            QueueState::Ending { then, .. } => then,
            other => panic!("{other:?}"),
        }
    };
    let (stop, start) = (QueueEvent::StopAsked { now }, QueueEvent::StartAsked { now });
    let restart = QueueEvent::RestartAsked { wait: WAIT, now };
    assert_eq!(then(stop.clone(), start.clone()), Then::StartAgain { wait: WaitFor::default() });
    assert_eq!(then(stop.clone(), restart.clone()), Then::StartAgain { wait: WAIT });
    assert_eq!(then(restart.clone(), start), Then::StartAgain { wait: WAIT });
    assert_eq!(then(restart, stop), Then::Stay { why: STOPPED.to_owned() });
}
