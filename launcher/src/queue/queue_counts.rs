//! Which queues are served, and what follows from that: `ready`, the exit status of `status`, and whether an order or a
//! message has done what it promises.
//!
//! A queue is served while its scheduler claims tasks and has its session: a scheduler that waits for its server, its
//! login or its lock does not serve. READY for the service manager means less: the start is over.

use crate::queue::found_queue;
use crate::queue::queue_entry::QueueEntry;
use crate::queue::queue_state::{Allocated, QueueState};
use crate::queue::queue_table::QueueTable;
use crate::queue::request::QueueRequest;
use crate::queue::start_conditions::StartConditions;
use crate::queue::wanted::Origin;
use shared::process::exit_code::ExitCode;
use shared::process::order::WaitFor;
use shared::region::{Phase, Region};

/// How many queues there are to serve, and how many are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Without those that an operator has switched off or stopped.
    pub wanted: usize,
    pub served: usize,
    /// Neither served nor with a reason: a moment later they are one or the other.
    pub starting: usize,
    /// Why the first one is not served.
    pub reason: Option<String>,
}

pub fn is_served(entry: &QueueEntry, region: &Region) -> bool {
    let Some(slot) = entry.state.slot() else { return false };
    // A scheduler that loses its session takes its backend back, and keeps its phase.
    entry.phase(region) == Some(Phase::Running) && region.slots().slot_status(slot).running().is_some()
}

/// An operator wants it so.
fn is_switched_off(entry: &QueueEntry) -> bool {
    let off = !entry.wanted.config.enabled || entry.memory.left == Some(ExitCode::SwitchedOff);
    entry.state.is_stopped() || entry.state.is_disabled() && off
}

/// It was found, and is none: no catalog, or no such table.
fn is_no_queue(entry: &QueueEntry) -> bool {
    let left = matches!(entry.memory.left, Some(ExitCode::NotInstalled | ExitCode::NoQueue));
    let refused = entry.wanted.refusal.as_deref().is_some_and(|why| !found_queue::is_news(why));
    entry.origin == Origin::Found && entry.state.is_disabled() && (left || refused)
}

impl QueueCounts {
    pub fn of(table: &QueueTable) -> QueueCounts {
        let region = &table.region;
        let mut counts = QueueCounts::default();
        let mut off = None;
        for entry in table.entries.iter().filter(|entry| !entry.state.is_removed() && !is_no_queue(entry)) {
            let why = || {
                let why = entry.why(region);
                format!("{}: {}", entry.wanted.label(), why.as_deref().unwrap_or("its scheduler is starting"))
            };
            if is_switched_off(entry) {
                off.get_or_insert_with(why);
                continue;
            }
            counts.wanted += 1;
            if is_served(entry, region) {
                counts.served += 1;
            } else {
                counts.starting += usize::from(entry.why(region).is_none());
                counts.reason.get_or_insert_with(why);
            }
        }
        counts.reason = counts.reason.or(off);
        counts
    }
}

/// Every wanted queue does its work, or has its reason.
pub fn is_ready(table: &QueueTable) -> bool {
    let settled =
        |entry: &QueueEntry| entry.phase(&table.region) == Some(Phase::Running) || entry.why(&table.region).is_some();
    table.databases.is_searched() && table.entries.iter().all(settled)
}

/// Whether a request has come to its end: done, or it cannot be; None while it goes on. A start is done once the queue
/// is served. `open`: of a message, whose transaction the new scheduler may have to wait for; then a scheduler that
/// waits is enough.
pub fn arrived(
    table: &QueueTable,
    database: u32,
    request: QueueRequest,
    open: Option<&dyn StartConditions>,
) -> Option<bool> {
    let entries = table.entries.iter().filter(|entry| {
        // One that still ends has no reason to show yet.
        let refused = entry.memory.left == Some(ExitCode::NoQueue) || entry.wanted.refusal.is_some();
        let elsewhere = entry.state.is_disabled() && refused;
        table.is_local(entry) && entry.database == Some(database) && !entry.state.is_removed() && !elsewhere
    });
    let mut done = Some(false);
    for entry in entries {
        let held_back = open.is_some_and(|open| open.held_back(database));
        let waits = open.is_some_and(|open| open.waits_for(database, entry.marker) != WaitFor::default());
        let one = match (request, &entry.state) {
            (QueueRequest::Stop, QueueState::Disabled { .. }) => Some(true),
            (QueueRequest::Stop, _) => None,
            (QueueRequest::Start | QueueRequest::Restart, QueueState::Disabled { .. }) => Some(false),
            (QueueRequest::Start | QueueRequest::Restart, QueueState::Enabled { .. }) => {
                entry.state.lacks_slot().then_some(false)
            }
            (QueueRequest::Start | QueueRequest::Restart, QueueState::Allocated(Allocated { failure, .. })) => {
                if held_back {
                    Some(true)
                } else {
                    failure.is_some().then_some(false)
                }
            }
            (QueueRequest::Start | QueueRequest::Restart, QueueState::Started { .. }) => {
                (waits || is_served(entry, &table.region)).then_some(true)
            }
            (QueueRequest::Start | QueueRequest::Restart, QueueState::Starting { .. } | QueueState::Ending { .. }) => {
                None
            }
        };
        match one {
            Some(true) => done = Some(true),
            Some(false) => return Some(false),
            None => return None,
        }
    }
    done
}
