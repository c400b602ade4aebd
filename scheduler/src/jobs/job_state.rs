//! The state of a job as the scheduler of its queue sees it, and the ladder on which a run is ended. PURE.
//!
//! What is planned for when stands in the database; here a job is followed from the moment a run of it is claimed until
//! that run is over. A run that takes longer than its max_runtime, or whose job is deleted, is ended: its statement is
//! cancelled, a second later its backend is terminated, and at three seconds its process is killed. `step` has no clock
//! and no process; the table in the crate's README is printed from this file by a test.

use std::time::{Duration, Instant};

/// From the cancel on.
const TERMINATE_AFTER: Duration = Duration::from_secs(1);
const KILL_AFTER: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Its next start is known, or somebody else's to cause.
    Scheduled,
    /// A run is claimed: it is being started, or runs.
    Starting { since: Instant, limit: Option<Duration>, paused: bool },
    /// Its run is being ended.
    Terminating { why: Why, since: Instant, stage: TerminationStage, paused: bool },
    /// Paused: nothing starts by itself.
    Disabled,
}

/// Why a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Overrun,
    Deleted,
}

/// How far the ladder has been climbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationStage {
    Cancelled,
    Terminated,
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// A run was claimed.
    Claimed { now: Instant },
    /// How the job is defined by now.
    Defined { limit: Option<Duration>, scheduled: bool },
    /// The job is no longer there.
    Deleted { now: Instant },
    /// Time has passed.
    Passed { now: Instant },
    /// The process that ran it is gone.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Cancel(Why),
    Terminate,
    Kill,
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub next: JobState,
    pub effect: Option<Effect>,
}

impl JobState {
    /// When `Passed` has something to say.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            JobState::Starting { since, limit, .. } => limit.and_then(|limit| since.checked_add(limit)),
            JobState::Terminating { since, stage: TerminationStage::Cancelled, .. } => Some(*since + TERMINATE_AFTER),
            JobState::Terminating { since, stage: TerminationStage::Terminated, .. } => Some(*since + KILL_AFTER),
            JobState::Terminating { stage: TerminationStage::Killed, .. }
            | JobState::Scheduled
            | JobState::Disabled => None,
        }
    }

    pub fn over(&self) -> bool {
        matches!(self, JobState::Scheduled | JobState::Disabled)
    }
}

pub fn step(state: JobState, event: JobEvent) -> Step {
    use JobEvent as E;
    use JobState as S;
    let stay = |next: S| Step { next, effect: None };
    let late = state.deadline();
    let terminate = |why, since, paused| Step {
        next: S::Terminating { why, since, stage: TerminationStage::Cancelled, paused },
        effect: Some(Effect::Cancel(why)),
    };
    match (state, event) {
        (S::Scheduled | S::Disabled, E::Claimed { now }) => {
            stay(S::Starting { since: now, limit: None, paused: state == S::Disabled })
        }
        (S::Scheduled | S::Disabled, E::Defined { scheduled, .. }) => {
            stay(if scheduled { S::Scheduled } else { S::Disabled })
        }
        (S::Starting { since, .. }, E::Defined { limit, scheduled }) => {
            stay(S::Starting { since, limit, paused: !scheduled })
        }
        (S::Starting { paused, .. }, E::Deleted { now }) => terminate(Why::Deleted, now, paused),
        (S::Starting { paused, .. }, E::Passed { now }) if late.is_some_and(|at| now >= at) => {
            terminate(Why::Overrun, now, paused)
        }
        (S::Terminating { why, since, stage: TerminationStage::Cancelled, paused }, E::Passed { now })
            if late.is_some_and(|at| now >= at) =>
        {
            Step {
                next: S::Terminating { why, since, stage: TerminationStage::Terminated, paused },
                effect: Some(Effect::Terminate),
            }
        }
        (S::Terminating { why, since, stage: TerminationStage::Terminated, paused }, E::Passed { now })
            if late.is_some_and(|at| now >= at) =>
        {
            Step {
                next: S::Terminating { why, since, stage: TerminationStage::Killed, paused },
                effect: Some(Effect::Kill),
            }
        }
        (S::Terminating { why, since, stage, .. }, E::Defined { scheduled, .. }) => {
            stay(S::Terminating { why, since, stage, paused: !scheduled })
        }
        (S::Starting { paused, .. } | S::Terminating { paused, .. }, E::Ended) => {
            stay(if paused { S::Disabled } else { S::Scheduled })
        }
        // The worker has gone on to another run of the job.
        (S::Starting { limit, paused, .. }, E::Claimed { now }) => stay(S::Starting { since: now, limit, paused }),
        // Time that changes nothing, a second reason to end what is being ended, news of nobody's run.
        (state @ (S::Scheduled | S::Disabled), E::Deleted { .. } | E::Passed { .. } | E::Ended) => stay(state),
        (state @ S::Starting { .. }, E::Passed { .. }) => stay(state),
        (state @ S::Terminating { .. }, E::Claimed { .. } | E::Deleted { .. } | E::Passed { .. }) => stay(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(state: &JobState) -> &'static str {
        match state {
            JobState::Scheduled => "Scheduled",
            JobState::Starting { .. } => "Starting",
            JobState::Terminating { stage: TerminationStage::Cancelled, .. } => "Terminating (cancelled)",
            JobState::Terminating { stage: TerminationStage::Terminated, .. } => "Terminating (terminated)",
            JobState::Terminating { stage: TerminationStage::Killed, .. } => "Terminating (killed)",
            JobState::Disabled => "Disabled",
        }
    }

    fn table() -> String {
        let since = Instant::now();
        let now = since + Duration::from_secs(60);
        let limit = Some(Duration::from_secs(10));
        let terminating = |stage| JobState::Terminating { why: Why::Overrun, since, stage, paused: false };
        let states = [
            JobState::Scheduled,
            JobState::Starting { since, limit, paused: false },
            terminating(TerminationStage::Cancelled),
            terminating(TerminationStage::Terminated),
            terminating(TerminationStage::Killed),
            JobState::Disabled,
        ];
        let events = [
            ("Claimed", JobEvent::Claimed { now }),
            ("Defined (paused)", JobEvent::Defined { limit, scheduled: false }),
            ("Defined (scheduled)", JobEvent::Defined { limit, scheduled: true }),
            ("Deleted", JobEvent::Deleted { now }),
            ("Passed (late)", JobEvent::Passed { now }),
            ("Ended", JobEvent::Ended),
        ];
        let mut text = format!("| state |{}\n", events.map(|(name, _)| format!(" {name} |")).concat());
        text += &format!("|---|{}\n", "---|".repeat(events.len()));
        for state in states {
            text += &format!("| {} |", name(&state));
            for (_, event) in events {
                let Step { next, effect } = step(state, event);
                let change = if name(&next) == name(&state) { "·".to_owned() } else { format!("→ {}", name(&next)) };
                let effect = effect.map(|effect| format!(" [{effect:?}]")).unwrap_or_default();
                text += &format!(" {change}{effect} |");
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
    fn a_run_over_its_time_is_cancelled_then_its_backend_terminated_then_its_process_killed() {
        let began = Instant::now();
        let limit = Some(Duration::from_secs(10));
        let mut state = step(JobState::Scheduled, JobEvent::Claimed { now: began }).next;
        state = step(state, JobEvent::Defined { limit, scheduled: true }).next;
        let mut climbed = Vec::new();
        for tenth in 0..200 {
            let now = began + Duration::from_millis(100) * tenth;
            let step = step(state, JobEvent::Passed { now });
            climbed.extend(step.effect.map(|effect| (tenth, effect)));
            state = step.next;
        }
        assert_eq!(climbed, [(100, Effect::Cancel(Why::Overrun)), (110, Effect::Terminate), (130, Effect::Kill)]);
        assert_eq!(step(state, JobEvent::Ended).next, JobState::Scheduled);
    }

    #[test]
    fn a_limit_that_is_set_while_the_run_lasts_counts_from_its_start() {
        let since = Instant::now();
        let state = JobState::Starting { since, limit: None, paused: false };
        assert_eq!(state.deadline(), None);
        let limited = step(state, JobEvent::Defined { limit: Some(Duration::from_secs(5)), scheduled: true }).next;
        assert_eq!(limited.deadline(), Some(since + Duration::from_secs(5)));
    }

    #[test]
    fn a_job_that_was_paused_while_it_ran_is_disabled_when_the_run_has_ended() {
        let now = Instant::now();
        let state = step(JobState::Scheduled, JobEvent::Claimed { now }).next;
        let state = step(state, JobEvent::Defined { limit: None, scheduled: false }).next;
        assert_eq!(step(state, JobEvent::Ended).next, JobState::Disabled);
    }
}
