//! Which queues are served, and what follows from that: the word `ready`, the exit status of `status`, and whether a command
//! or a message has done what it promises.
//!
//! A queue is served while its scheduler claims tasks and has its session: a scheduler that waits for its server, its login or
//! its lock is a process, and no service. READY for the service manager is less: it says that the start is over.

use crate::event_loop::Launcher;
use crate::leader::leader_state::LeaderState;
use crate::message::message_table::Command;
use crate::queue::queue_entry::{Origin, QueueEntry};
use crate::queue::queue_state::{QueueState, STOPPED};
use crate::queue::queue_table::{QueueTable, Surroundings};
use crate::server::server_watch::ServerWatch;
use crate::status::status_report::{Outline, report};
use shared::process::exit_code::ExitCode;
use shared::process::order::WaitFor;
use shared::region::{Phase, Region};

/// How many queues there are to serve, and how many are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Without those that an operator has switched off or stopped.
    pub wanted: usize,
    pub served: usize,
    /// Neither served nor with a reason: a moment later they are one or the other.
    pub starting: usize,
    /// Why the first one is not served.
    pub reason: Option<String>,
}

impl QueueEntry {
    pub fn is_served(&self, region: &Region) -> bool {
        let Some(slot) = self.state.slot() else { return false };
        // A scheduler that loses its session takes its backend back, and keeps its phase.
        self.phase(region) == Some(Phase::Running) && region.slots().notes(slot).running().is_some()
    }

    /// An operator wants it so.
    fn is_switched_off(&self) -> bool {
        match &self.state {
            QueueState::Disabled { why, .. } => {
                !self.wanted.row.enabled || why == STOPPED || self.left == Some(ExitCode::SwitchedOff)
            }
            _ => false,
        }
    }

    /// It was found, and is none: no catalog, or no such table.
    fn is_no_queue(&self) -> bool {
        let disabled = matches!(self.state, QueueState::Disabled { .. });
        let left = matches!(self.left, Some(ExitCode::NotInstalled | ExitCode::NoQueue));
        let refused = self.wanted.refusal.as_deref().is_some_and(|why| !crate::queue::found_queue::is_news(why));
        self.origin == Origin::Found && disabled && (left || refused)
    }
}

impl QueueTable {
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let mut off = None;
        for entry in self.entries.iter().filter(|entry| !entry.removed && !entry.is_no_queue()) {
            let why = || {
                let why = entry.why(&self.region);
                format!("{}: {}", entry.wanted.label(), why.as_deref().unwrap_or("its scheduler starts"))
            };
            if entry.is_switched_off() {
                off.get_or_insert_with(why);
                continue;
            }
            tally.wanted += 1;
            if entry.is_served(&self.region) {
                tally.served += 1;
            } else {
                tally.starting += usize::from(entry.why(&self.region).is_none());
                tally.reason.get_or_insert_with(why);
            }
        }
        tally.reason = tally.reason.or(off);
        tally
    }

    /// Every wanted row does its work, or has its reason.
    pub fn ready(&self) -> bool {
        let looked = self.covered.iter().all(|database| self.queues.contains_key(database));
        let mut entries = self.entries.iter();
        looked
            && entries
                .all(|entry| entry.phase(&self.region) == Some(Phase::Running) || entry.why(&self.region).is_some())
    }

    /// Whether a command has come to its end: done, or it cannot be; None while it goes on. A start is done once the queue
    /// is served. `open`: of a message, whose transaction the new scheduler may have to wait for; then a scheduler that waits
    /// is all there can be.
    pub fn arrived(&self, database: u32, command: Command, open: Option<&ServerWatch>) -> Option<bool> {
        let rows = self.entries.iter().filter(|entry| {
            let elsewhere = entry.left == Some(ExitCode::NoQueue) || entry.wanted.refusal.is_some();
            self.is_local(entry) && entry.database == Some(database) && !entry.removed && !elsewhere
        });
        let mut done = Some(false);
        for entry in rows {
            let held_back = open.is_some_and(|ear| ear.held_back(database));
            let waits = open.is_some_and(|ear| ear.waits_for(database, entry.marker) != WaitFor::default());
            let one = match (command, &entry.state) {
                (Command::Stop, QueueState::Disabled { .. }) => Some(true),
                (Command::Stop, _) => None,
                (Command::Start | Command::Restart, QueueState::Disabled { .. }) => Some(false),
                (Command::Start | Command::Restart, QueueState::Enabled { .. }) => entry.said_no_slot.then_some(false),
                (Command::Start | Command::Restart, QueueState::Allocated { .. }) => {
                    if held_back {
                        Some(true)
                    } else {
                        entry.no_fork.is_some().then_some(false)
                    }
                }
                (Command::Start | Command::Restart, QueueState::Started { .. }) => {
                    (waits || entry.is_served(&self.region)).then_some(true)
                }
                (Command::Start | Command::Restart, QueueState::Starting { .. } | QueueState::Ending { .. }) => None,
            };
            match one {
                Some(true) => done = Some(true),
                Some(false) => return Some(false),
                None => return None,
            }
        }
        done
    }
}

impl Launcher {
    /// What `status` tells.
    pub(crate) fn report(&self) -> serde_json::Value {
        let server = self.parts.embedded.as_ref().map(|server| (server.pid().map(|pid| pid.as_raw()), server.major()));
        let tally = self.rows.tally();
        let not_serving = self.not_serving(&tally);
        let outline = Outline {
            name: &self.parts.name,
            ready: not_serving.is_none(),
            tally: &tally,
            leading: self.leading(),
            host: &self.leadership.host.name,
            leader: if self.leading() { Some(self.leadership.own()) } else { self.leadership.seen.clone() },
            why: not_serving.as_deref().or(self.said.current()),
            waits: self.said.current(),
            server,
        };
        report(&outline, &self.parts.region, &self.rows)
    }

    /// Why this launcher neither serves a queue nor stands by for a leader that it sees.
    fn not_serving(&self, tally: &Tally) -> Option<String> {
        if self.stopping.asked() {
            return Some("the launcher is stopping".to_owned());
        }
        if !self.leading() {
            let refused = matches!(self.leader.state, LeaderState::StandingBy { .. } | LeaderState::Asking { .. });
            let stands_by = refused && self.leadership.seen.is_some();
            let why = self.said.current().unwrap_or("the launcher is connecting to its server");
            return (!stands_by).then(|| why.to_owned());
        }
        if tally.served > 0 {
            return None;
        }
        let reason = tally.reason.clone();
        Some(reason.unwrap_or_else(|| {
            "there is no queue: no database that it covers has a task table and a catalog".to_owned()
        }))
    }

    /// Once: every wanted row is served or has its reason.
    pub(crate) fn say_ready(&mut self) {
        let waits = self.said.current().is_some() && !self.rows.has_schedulers();
        let ready = waits || (self.leading() && self.ear.knows_databases && self.rows.ready());
        if ready && !self.said_ready && !self.stopping.asked() {
            shared::info!("ready", slots = self.parts.region.slots().limit());
            self.said_ready = true;
            self.parts.manager.ready(self.said.current().unwrap_or("serving"));
        }
    }
}
