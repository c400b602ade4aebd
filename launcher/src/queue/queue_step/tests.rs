//! The two tables of the README, printed from the code, and what they do not show.

use super::*;
use crate::limits::{BEAT_TIMEOUT, NO_SLOT_TIMEOUT};
use crate::queue::departure::Useless;
use crate::queue::queue_state::Beat;
use crate::queue::restart_policy::SchedulerDeath;
use shared::region::Region;

const WAIT: WaitFor = WaitFor { message: Some((1, 2)), marker: false };

fn slot() -> SlotHandle {
    Region::create(1).unwrap().slots().reserve().unwrap()
}

fn stay() -> Then {
    Then::Stay { why: DisabledReason::Dropped }
}

fn departure(useless: bool) -> Departure {
    let useless = useless.then(|| Useless { why: "why".to_owned(), again_after: None });
    Departure { end: "killed".to_owned(), left: None, death: SchedulerDeath::AfterWork, useless }
}

fn process(at: Instant) -> SchedulerProcess {
    SchedulerProcess::new(slot(), Pid::from_raw(7), at)
}

fn states(at: Instant) -> [QueueState; 7] {
    let known = process(at).with(SettingsSync::Known);
    [
        QueueState::enabled(WaitFor::default()),
        QueueState::allocated(slot(), at, WaitFor::default()),
        QueueState::Starting { process: process(at), ack_by: at },
        QueueState::Started { process: known },
        QueueState::Ending { process: known, urgency: Urgency::Finish, next_at: at, then: stay() },
        QueueState::disabled(DisabledReason::Dropped),
        QueueState::Disabled { why: DisabledReason::Useless("not installed".to_owned()), again_at: Some(at) },
    ]
}

fn events(now: Instant) -> [(&'static str, QueueEvent); 23] {
    let (pid, close) = (Pid::from_raw(7), Duration::from_secs(60));
    let end = |urgency, then| QueueEvent::EndAsked { urgency, then, now, close };
    let gone = |useless: bool| QueueEvent::Gone { departure: departure(useless), now, longest: close };
    let removed = Then::Stay { why: DisabledReason::Removed("gone") };
    [
        ("Passed (due)", QueueEvent::Passed { now }),
        ("HeldBack", QueueEvent::HeldBack),
        ("SlotGiven", QueueEvent::SlotGiven { slot: slot(), now }),
        ("SlotRefused", QueueEvent::SlotRefused { now }),
        ("SlotLost", QueueEvent::SlotLost),
        ("Spawned", QueueEvent::Spawned { pid, now, close }),
        ("SpawnFailed", QueueEvent::SpawnFailed { error: "why".to_owned(), now }),
        ("Acknowledged", QueueEvent::Acknowledged),
        ("SettingsChanged", QueueEvent::SettingsChanged),
        ("SettingsSent", QueueEvent::SettingsSent),
        ("BeatSeen (another)", QueueEvent::BeatSeen { count: 1, now }),
        ("BeatSeen (the same for too long)", QueueEvent::BeatSeen { count: 0, now: now + BEAT_TIMEOUT }),
        ("StopAsked", QueueEvent::StopAsked { now }),
        ("StartAsked", QueueEvent::StartAsked { now }),
        ("RestartAsked", QueueEvent::RestartAsked { wait: WAIT, now }),
        ("EndAsked (finish)", end(Urgency::Finish, stay())),
        ("EndAsked (cancel)", end(Urgency::Cancel, stay())),
        ("EndAsked (start again)", end(Urgency::Hurry, Then::StartAgain { wait: WaitFor::default() })),
        ("EndAsked (removed)", end(Urgency::Finish, removed)),
        ("Unwanted", QueueEvent::Unwanted { why: "why".to_owned(), now, close }),
        ("WantedAgain", QueueEvent::WantedAgain { now, close }),
        ("Gone", gone(false)),
        ("Gone (useless)", gone(true)),
    ]
}

/// One line per state and event that does something.
fn table() -> String {
    let past = Instant::now();
    let now = past + Duration::from_secs(1);
    let mut text = "| state | event | next | effects |\n|---|---|---|---|\n".to_owned();
    for state in states(past) {
        for (name, event) in events(now) {
            let step = step(state.clone(), event, &mut QueueMemory::default());
            if step.next.name() != state.name() || !step.effects.is_empty() {
                let effects: Vec<String> = step.effects.iter().map(shown).collect();
                let again =
                    if state.deadline().is_some() && state.name() == "DISABLED" { " (to be probed)" } else { "" };
                let next = step.next.name();
                text += &format!("| {}{again} | {name} | {next} | {} |\n", state.name(), effects.join(", "));
            }
        }
    }
    text
}

fn shown(effect: &QueueEffect) -> String {
    match effect {
        QueueEffect::Spawn { .. } => "Spawn".to_owned(),
        QueueEffect::Log(_) => "Log".to_owned(),
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
        let step = step(state, event, &mut QueueMemory::default());
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
                QueueEffect::FreeCell | QueueEffect::SendSettings | QueueEffect::Log(_) => {}
                QueueEffect::Tell(_) => {
                    also.push("scheduler ended");
                    todo.push(QueueEvent::Gone { departure: departure(false), now, longest: close });
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
            let step = step(state.clone(), event, &mut QueueMemory::default());
            let lost = state.slot().is_some() && step.next.slot().is_none();
            let swept = name == "SlotLost" && state.name() == "ALLOCATED";
            let released = step.effects.contains(&QueueEffect::Release) || swept;
            assert_eq!(lost, released, "{} by {name}", state.name());
        }
    }
}

/// How urgently a scheduler that does not end is told, and how long after the first time.
fn ladder(asked: QueueEvent, now: Instant) -> Vec<(Urgency, Duration)> {
    let memory = &mut QueueMemory::default();
    let mut state = QueueState::Started { process: process(now) };
    let mut event = asked;
    let mut told = Vec::new();
    let mut at = now;
    for _ in 0..5 {
        let step = step(state, event, memory);
        told.extend(step.effects.iter().filter_map(|effect| match effect {
            QueueEffect::Tell(urgency) => Some((*urgency, at - now)),
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
    let told = ladder(QueueEvent::EndAsked { urgency: Urgency::Finish, then: stay(), now, close }, now);
    let urgencies: Vec<Urgency> = told.iter().map(|(urgency, _)| *urgency).collect();
    assert_eq!(urgencies[..3], [Urgency::Finish, Urgency::Cancel, Urgency::Kill]);
    assert_eq!(told[1].1, close + END_STEP);
}

#[test]
fn a_message_ends_a_scheduler_within_two_seconds() {
    let now = Instant::now();
    for asked in [QueueEvent::StopAsked { now }, QueueEvent::RestartAsked { wait: WaitFor::default(), now }] {
        let told = ladder(asked, now);
        let ms: Vec<(Urgency, u128)> = told.iter().take(4).map(|(urgency, at)| (*urgency, at.as_millis())).collect();
        assert_eq!(
            ms,
            [(Urgency::Hurry, 0), (Urgency::EndTasks, 500), (Urgency::EndSession, 1000), (Urgency::Kill, 2000)]
        );
    }
}

#[test]
fn a_start_never_changes_what_the_next_scheduler_waits_for_and_a_second_restart_does() {
    let now = Instant::now();
    let memory = &mut QueueMemory::default();
    let message = WaitFor { message: Some((3, 2)), marker: false };
    let asked =
        step(QueueState::enabled(WaitFor::default()), QueueEvent::RestartAsked { wait: WAIT, now }, memory).next;
    let started = step(asked, QueueEvent::StartAsked { now }, memory).next;
    assert_eq!(started, QueueState::enabled(WAIT));
    let again = step(started, QueueEvent::RestartAsked { wait: message, now }, memory).next;
    assert_eq!(again, QueueState::enabled(message));
    // handed over once
    let allocated = step(again, QueueEvent::SlotGiven { slot: slot(), now }, memory).next;
    let spawn = step(allocated, QueueEvent::Passed { now }, memory);
    assert_eq!(spawn.effects, [QueueEffect::Spawn { wait: message }]);
    let close = Duration::from_secs(1);
    let starting = step(spawn.next, QueueEvent::Spawned { pid: Pid::from_raw(7), now, close }, memory).next;
    let after = step(starting, QueueEvent::Gone { departure: departure(false), now, longest: close }, memory).next;
    let QueueState::Allocated(after) = after else { panic!("{after:?}") };
    assert_eq!(after.wait, WaitFor::default());
}

#[test]
fn a_message_that_comes_while_a_scheduler_ends_decides_what_follows() {
    let now = Instant::now();
    let memory = &mut QueueMemory::default();
    let started = QueueState::Started { process: process(now) };
    let mut then = |first: QueueEvent, second: QueueEvent| {
        let ending = step(started.clone(), first, memory).next;
        match step(ending, second, memory).next {
            QueueState::Ending { then, .. } => then,
            other => panic!("{other:?}"),
        }
    };
    let (stop, start) = (QueueEvent::StopAsked { now }, QueueEvent::StartAsked { now });
    let restart = QueueEvent::RestartAsked { wait: WAIT, now };
    assert_eq!(then(stop.clone(), start.clone()), Then::StartAgain { wait: WaitFor::default() });
    assert_eq!(then(stop.clone(), restart.clone()), Then::StartAgain { wait: WAIT });
    assert_eq!(then(restart.clone(), start), Then::StartAgain { wait: WAIT });
    assert_eq!(then(restart, stop), Then::Stay { why: DisabledReason::Stopped });
}

#[test]
fn a_queue_that_comes_back_into_the_config_while_its_scheduler_ends_is_started_again() {
    let now = Instant::now();
    let (memory, close) = (&mut QueueMemory::default(), Duration::from_secs(1));
    let remove = QueueEvent::EndAsked {
        urgency: Urgency::Finish,
        then: Then::Stay { why: DisabledReason::Removed("gone") },
        now,
        close,
    };
    let removed = step(QueueState::Started { process: process(now) }, remove, memory).next;
    assert!(removed.is_removed());
    let back = step(removed.clone(), QueueEvent::WantedAgain { now, close }, memory).next;
    assert!(matches!(&back, QueueState::Ending { then: Then::StartAgain { .. }, .. }) && !back.is_removed());
    let off = step(removed, QueueEvent::Unwanted { why: "off".to_owned(), now, close }, memory).next;
    assert!(!off.is_removed(), "the config has it, and does not enable it");
}

#[test]
fn a_lack_of_slots_is_logged_once_and_only_if_it_lasts() {
    let now = Instant::now();
    let memory = &mut QueueMemory::default();
    let mut state = QueueState::enabled(WaitFor::default());
    let mut logged = Vec::new();
    for at in [now, now + Duration::from_secs(1), now + NO_SLOT_TIMEOUT, now + NO_SLOT_TIMEOUT * 2] {
        let step = step(state, QueueEvent::SlotRefused { now: at }, memory);
        logged.push((step.effects.len(), step.next.lacks_slot()));
        state = step.next;
    }
    assert_eq!(logged, [(0, false), (0, false), (1, true), (0, true)]);
}

#[test]
fn settings_that_change_while_the_cell_is_in_use_are_sent_once_it_is_free() {
    let now = Instant::now();
    let memory = &mut QueueMemory::default();
    let starting = QueueState::Starting { process: process(now), ack_by: now };
    let changed = step(starting, QueueEvent::SettingsChanged, memory);
    assert_eq!(changed.effects, []);
    let started = step(changed.next, QueueEvent::Acknowledged, memory);
    assert_eq!(started.effects, [QueueEffect::FreeCell, QueueEffect::SendSettings]);
    let again = step(started.next, QueueEvent::Passed { now }, memory);
    assert_eq!(again.effects, [QueueEffect::SendSettings], "the first try failed");
    let sent = step(again.next, QueueEvent::SettingsSent, memory);
    assert_eq!(step(sent.next.clone(), QueueEvent::Passed { now }, memory).effects, []);
    let known = step(sent.next, QueueEvent::Acknowledged, memory);
    assert_eq!(known.effects, [QueueEffect::FreeCell]);
    assert_eq!(known.next, QueueState::Started { process: process(now).with(SettingsSync::Known) });
}

#[test]
fn a_loop_that_stands_still_is_killed_and_one_that_counts_is_not() {
    let now = Instant::now();
    let (memory, late) = (&mut QueueMemory::default(), now + BEAT_TIMEOUT);
    let counted = step(QueueState::Started { process: process(now) }, QueueEvent::BeatSeen { count: 3, now }, memory);
    let beat = Beat { count: 3, seen_at: now };
    assert_eq!((counted.next.process().unwrap().beat, counted.effects.as_slice()), (beat, [].as_slice()));
    let still = step(counted.next.clone(), QueueEvent::BeatSeen { count: 3, now: late }, memory);
    assert_eq!(still.effects, [QueueEffect::Log(Notice::StandsStill), QueueEffect::Tell(Urgency::Kill)]);
    let alive = step(counted.next, QueueEvent::BeatSeen { count: 4, now: late }, memory);
    assert_eq!(alive.effects, []);
}
