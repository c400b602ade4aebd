//! The life of one queue: does it have a slot, does its scheduler run. PURE.
//!
//! Four states that an operator knows: ENABLED, ALLOCATED, STARTED, DISABLED. STARTED has two edges here, because
//! nothing in this process waits: Starting (forked, its parameters not read yet) and Ending (told to end, not gone
//! yet). A slot is held exactly in Allocated, Starting, Started and Ending. Everything that is known of a queue's life
//! is in its state, or in `QueueMemory` if it outlives states. `queue_step` decides; `queue_entry` carries the effects
//! out and reports what came of them as events.

use crate::limits::{BEAT_TIMEOUT, END_SESSION_AFTER, END_STEP, END_TASKS_AFTER, KILL_AFTER, NO_SLOT_TIMEOUT};
use crate::queue::restart_policy::RestartPolicy;
use nix::unistd::Pid;
use shared::process::exit_code::ExitCode;
use shared::process::order::WaitFor;
use shared::region::SlotHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Wanted, holds nothing; `wait` is for the next scheduler.
    Enabled { wait: WaitFor, no_slot: Option<NoSlot> },
    /// Holds a slot; the scheduler is to be started at a moment.
    Allocated(Allocated),
    /// Forked; has not read its parameters yet.
    Starting { process: SchedulerProcess, ack_by: Instant },
    /// The scheduler runs.
    Started { process: SchedulerProcess },
    /// The scheduler was told to end; stronger means follow at a moment.
    Ending { process: SchedulerProcess, urgency: Urgency, next_at: Instant, then: Then },
    /// Not wanted any more, or of no use until somebody changes something; looked at again at a moment, if ever.
    Disabled { why: DisabledReason, again_at: Option<Instant> },
}

/// Since when the queue gets no slot. A pass of another scheduler reserves all free slots for a moment: only a lasting
/// lack is logged, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSlot {
    pub since: Instant,
    pub logged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    pub slot: SlotHandle,
    pub start_at: Instant,
    pub wait: WaitFor,
    /// It may not start at present, even if its time has come: this launcher does not lead, or somebody works on the
    /// database.
    pub held_back: bool,
    /// Why the last fork failed.
    pub failure: Option<String>,
}

/// A scheduler process, as far as its queue's life depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerProcess {
    pub slot: SlotHandle,
    pub pid: Pid,
    pub began: Instant,
    pub settings: SettingsSync,
    pub beat: Beat,
}

/// Whether the scheduler knows the present settings of its queue. It reads them from its cell, one set after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsSync {
    Known,
    /// Changed, and the cell is free.
    Changed,
    /// In the cell, not read yet.
    Sent,
    /// In the cell, not read yet, and changed again.
    SentAndChanged,
}

/// The last beat that the scheduler's loop has counted, and when that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub count: u64,
    pub seen_at: Instant,
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
    Stay { why: DisabledReason },
    StartAgain { wait: WaitFor },
}

/// Why a queue is disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisabledReason {
    /// By a message or an order.
    Stopped,
    /// Its database does not exist.
    Dropped,
    /// The config says so, or it may not be served.
    Unwanted(String),
    /// Its scheduler found that it cannot serve it.
    Useless(String),
    LauncherEnds,
    /// The config no longer has it, or its table is gone: it is forgotten once nothing of it is left.
    Removed(&'static str),
}

/// What outlives the states of a queue.
#[derive(Debug, Default)]
pub struct QueueMemory {
    pub restarts: RestartPolicy,
    /// How the last scheduler left, if it left by itself.
    pub left: Option<ExitCode>,
    /// How the last scheduler died, if nobody had told it to end.
    pub last_death: Option<String>,
}

impl QueueState {
    pub fn enabled(wait: WaitFor) -> QueueState {
        QueueState::Enabled { wait, no_slot: None }
    }

    pub fn allocated(slot: SlotHandle, start_at: Instant, wait: WaitFor) -> QueueState {
        QueueState::Allocated(Allocated { slot, start_at, wait, held_back: false, failure: None })
    }

    pub fn disabled(why: DisabledReason) -> QueueState {
        QueueState::Disabled { why, again_at: None }
    }

    pub fn name(&self) -> &'static str {
        match self {
            QueueState::Enabled { .. } => "ENABLED",
            QueueState::Allocated(_) => "ALLOCATED",
            QueueState::Starting { .. } => "STARTING",
            QueueState::Started { .. } => "STARTED",
            QueueState::Ending { .. } => "ENDING",
            QueueState::Disabled { .. } => "DISABLED",
        }
    }

    pub fn process(&self) -> Option<&SchedulerProcess> {
        match self {
            QueueState::Enabled { .. } | QueueState::Disabled { .. } | QueueState::Allocated(_) => None,
            QueueState::Starting { process, .. }
            | QueueState::Started { process }
            | QueueState::Ending { process, .. } => Some(process),
        }
    }

    pub fn slot(&self) -> Option<SlotHandle> {
        match self {
            QueueState::Allocated(Allocated { slot, .. }) => Some(*slot),
            QueueState::Enabled { .. }
            | QueueState::Disabled { .. }
            | QueueState::Starting { .. }
            | QueueState::Started { .. }
            | QueueState::Ending { .. } => self.process().map(|process| process.slot),
        }
    }

    pub fn pid(&self) -> Option<Pid> {
        self.process().map(|process| process.pid)
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self {
            // One that is held back is looked at with every change of locks and leadership, and not before.
            QueueState::Allocated(Allocated { start_at, held_back, .. }) => (!held_back).then_some(*start_at),
            QueueState::Starting { ack_by, .. } => Some(*ack_by),
            QueueState::Ending { next_at, .. } => Some(*next_at),
            QueueState::Disabled { again_at, .. } => *again_at,
            QueueState::Enabled { .. } | QueueState::Started { .. } => None,
        }
    }

    pub fn is_disabled(&self) -> bool {
        matches!(self, QueueState::Disabled { .. })
    }

    pub fn is_stopped(&self) -> bool {
        matches!(self, QueueState::Disabled { why: DisabledReason::Stopped, .. })
    }

    /// Nobody wants the queue any more; its scheduler may still be there.
    pub fn is_removed(&self) -> bool {
        match self {
            QueueState::Ending { then: Then::Stay { why }, .. } | QueueState::Disabled { why, .. } => {
                matches!(why, DisabledReason::Removed(_))
            }
            QueueState::Ending { then: Then::StartAgain { .. }, .. }
            | QueueState::Enabled { .. }
            | QueueState::Allocated(_)
            | QueueState::Starting { .. }
            | QueueState::Started { .. } => false,
        }
    }

    /// It has waited for a slot for so long that this was logged.
    pub fn lacks_slot(&self) -> bool {
        matches!(self, QueueState::Enabled { no_slot: Some(NoSlot { logged: true, .. }), .. })
    }

    /// Why no scheduler serves the queue, as far as that does not depend on what a scheduler reports.
    pub fn why(&self, memory: &QueueMemory) -> Option<String> {
        match self {
            QueueState::Disabled { why, .. } => Some(why.text().to_owned()),
            QueueState::Enabled { .. } => self.lacks_slot().then(|| "no slot is free; raise max_workers".to_owned()),
            QueueState::Allocated(Allocated { failure, .. }) => {
                let fork = failure.as_ref();
                let fork = fork.map(|error| format!("cannot start a scheduler: {error}; retrying every second"));
                fork.or_else(|| memory.last_death.as_ref().map(|end| format!("its scheduler died ({end})")))
            }
            QueueState::Starting { .. } | QueueState::Started { .. } | QueueState::Ending { .. } => None,
        }
    }
}

impl NoSlot {
    /// No slot at this moment either. True: that is logged now.
    pub fn again(before: Option<NoSlot>, now: Instant) -> (NoSlot, bool) {
        let before = before.unwrap_or(NoSlot { since: now, logged: false });
        let long = now >= before.since + NO_SLOT_TIMEOUT;
        (NoSlot { logged: before.logged || long, ..before }, long && !before.logged)
    }
}

impl SchedulerProcess {
    pub fn new(slot: SlotHandle, pid: Pid, now: Instant) -> SchedulerProcess {
        SchedulerProcess { slot, pid, began: now, settings: SettingsSync::Sent, beat: Beat { count: 0, seen_at: now } }
    }

    pub fn with(self, settings: SettingsSync) -> SchedulerProcess {
        SchedulerProcess { settings, ..self }
    }

    /// The scheduler's loop has counted so far. True: it stands still.
    pub fn beat(self, count: u64, now: Instant) -> (SchedulerProcess, bool) {
        let still = count == self.beat.count;
        let late = still && now >= self.beat.seen_at + BEAT_TIMEOUT;
        let beat = if still && !late { self.beat } else { Beat { count, seen_at: now } };
        (SchedulerProcess { beat, ..self }, late)
    }
}

impl SettingsSync {
    pub fn changed(self) -> SettingsSync {
        match self {
            SettingsSync::Known | SettingsSync::Changed => SettingsSync::Changed,
            SettingsSync::Sent | SettingsSync::SentAndChanged => SettingsSync::SentAndChanged,
        }
    }

    /// The scheduler has read its cell.
    pub fn acknowledged(self) -> SettingsSync {
        match self {
            SettingsSync::Known | SettingsSync::Sent => SettingsSync::Known,
            SettingsSync::Changed | SettingsSync::SentAndChanged => SettingsSync::Changed,
        }
    }
}

impl Urgency {
    /// What follows if it does not help, and after how long.
    pub fn next(self, close: Duration) -> (Urgency, Duration) {
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

impl DisabledReason {
    pub fn text(&self) -> &str {
        match self {
            DisabledReason::Stopped => "stopped by a command; start it, or restart the launcher",
            DisabledReason::Dropped => {
                "its database was dropped; it is served again once a database of that name exists"
            }
            DisabledReason::LauncherEnds => "the launcher is stopping",
            DisabledReason::Unwanted(text) | DisabledReason::Useless(text) => text,
            DisabledReason::Removed(text) => text,
        }
    }
}
