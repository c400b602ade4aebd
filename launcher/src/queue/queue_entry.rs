//! One queue: its life, its scheduler process, its slot and cell.
//!
//! `queue_step` decides; this module carries its effects out, and reports to it what the slot of the scheduler shows.
//! `queue_table` calls it for every queue on every pass.

use crate::queue::database_list::FoundDatabase;
use crate::queue::departure::Departure;
use crate::queue::login_refusal::{LoginRefusal, owner_refused};
use crate::queue::queue_state::{DisabledReason, QueueMemory, QueueState, Then, Urgency};
use crate::queue::queue_step::{self, Notice, QueueEffect, QueueEvent};
use crate::queue::scheduler_slot;
use crate::queue::wanted::{Origin, WantedQueue};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::process::order::{WaitFor, encode};
use shared::process::spawn::Spawner;
use shared::region::{Phase, ProcessKind, Region, Ticket};
use shared::sys::wait::{Child, ProcessEnd};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct QueueEntry {
    pub wanted: WantedQueue,
    pub origin: Origin,
    /// The database's OID, once it was seen on the launcher's own server.
    pub database: Option<u32>,
    /// The present name of the database, if it was renamed since the config was written.
    renamed: Option<String>,
    /// The table whose locks show work on the catalog; remembered between two schedulers.
    pub marker: Option<u32>,
    /// What the server lacks and we may not create.
    missing: Option<String>,
    /// The server does not let the owner of a found queue in.
    login: LoginRefusal,
    pub state: QueueState,
    pub memory: QueueMemory,
    pub child: Option<Child>,
    /// The cell in use.
    ticket: Option<Ticket>,
    /// Sessions that are to be ended through the server.
    pub sessions_to_end: Vec<i32>,
}

impl QueueEntry {
    pub fn new(wanted: WantedQueue, origin: Origin, database: Option<u32>) -> QueueEntry {
        let enabled = || QueueState::enabled(WaitFor::default());
        let state = wanted
            .unwanted()
            .map_or_else(enabled, |why| QueueState::disabled(DisabledReason::Unwanted(why.to_owned())));
        wanted.log_refusal(None);
        QueueEntry {
            wanted,
            origin,
            database,
            renamed: None,
            marker: None,
            missing: None,
            login: LoginRefusal::default(),
            state,
            memory: QueueMemory::default(),
            child: None,
            ticket: None,
            sessions_to_end: Vec::new(),
        }
    }

    /// Steps the machine and does what needs no more than the region and the child; returns all effects.
    pub fn step(&mut self, region: &Region, event: QueueEvent) -> Vec<QueueEffect> {
        let state = std::mem::replace(&mut self.state, QueueState::enabled(WaitFor::default()));
        let slot = state.slot();
        let before = state.name();
        let step = queue_step::step(state, event, &mut self.memory);
        self.state = step.next;
        if before != self.state.name() {
            shared::debug!("queue state changed", queue = self.wanted.label(), from = before, to = self.state.name());
        }
        for effect in &step.effects {
            match effect {
                QueueEffect::FreeCell => {
                    if let Some(ticket) = self.ticket.take() {
                        region.free(ticket);
                    }
                }
                QueueEffect::Release => {
                    if let Some(slot) = slot {
                        region.slots().release(slot);
                    }
                }
                QueueEffect::KeepSlot => {
                    if let (Some(slot), Some(child)) = (slot, &self.child)
                        && region.slots().take_back(slot, child.pid()).is_err()
                    {
                        self.step(region, QueueEvent::SlotLost);
                    }
                }
                QueueEffect::SendSettings => self.send_settings(region),
                QueueEffect::Tell(urgency) => self.tell(region, *urgency),
                QueueEffect::Log(notice) => self.log(notice),
                QueueEffect::Reserve | QueueEffect::Spawn { .. } => {}
            }
        }
        step.effects
    }

    fn log(&self, notice: &Notice) {
        let queue = self.wanted.label();
        match notice {
            Notice::NoSlot { expected } => {
                let level = if *expected { Level::Debug } else { Level::Warning };
                let text = "queue waits for a slot of its scheduler; raise max_workers, or stop another queue";
                shared::log_line!(level, text, queue = queue);
            }
            Notice::ForkFailed { error } => shared::error!("cannot start a scheduler", queue = queue, error = error),
            Notice::StandsStill => {
                shared::error!("scheduler hangs; ending and restarting it", queue = queue);
            }
            Notice::Left(departure) => departure.log(&queue),
        }
    }

    fn tell(&mut self, region: &Region, urgency: Urgency) {
        let (Some(child), Some(slot)) = (&self.child, self.state.slot()) else { return };
        match urgency {
            Urgency::Finish => child.signal(Signal::SIGTERM),
            Urgency::Cancel | Urgency::Hurry => child.signal(Signal::SIGINT),
            Urgency::EndTasks => self.sessions_to_end.extend(scheduler_slot::workers_backends(region, slot)),
            Urgency::EndSession => self.sessions_to_end.extend(scheduler_slot::all_backends(region, slot)),
            Urgency::Kill => {
                shared::warning!("scheduler does not end; killing it", queue = self.wanted.label());
                child.signal(Signal::SIGKILL);
            }
        }
    }

    /// The sessions that this scheduler and its workers have reported.
    pub fn backends(&self, region: &Region) -> Vec<i32> {
        self.state.slot().map(|slot| scheduler_slot::all_backends(region, slot)).unwrap_or_default()
    }

    pub fn serves(&self, region: &Region) -> bool {
        self.state.slot().is_some_and(|slot| scheduler_slot::serves(region, slot))
    }

    /// One slot always stays for workers: a scheduler that could start no task would be of no use.
    pub fn reserve(&mut self, region: &Region, now: Instant) {
        let slots = region.slots();
        let slot = if slots.used() + 1 < slots.limit() { slots.reserve() } else { None };
        self.step(
            region,
            match slot {
                Some(slot) => QueueEvent::SlotGiven { slot, now },
                None => QueueEvent::SlotRefused { now },
            },
        );
    }

    pub fn spawn(&mut self, region: &Region, spawner: &Spawner, wait: WaitFor, now: Instant) {
        let Some(slot) = self.state.slot() else { return };
        // Whatever has led here: it would run as a user that it must not run as.
        if let Some(why) = self.wanted.refusal.clone() {
            let (then, close) = (Then::Stay { why: DisabledReason::Unwanted(why) }, Duration::ZERO);
            self.step(region, QueueEvent::EndAsked { urgency: Urgency::Hurry, then, now, close });
            return;
        }
        let order = self.wanted.order(self.origin, wait, self.marker.is_some());
        match spawner.try_spawn(slot, ProcessKind::Scheduler, &self.wanted.label(), &order, scheduler::run) {
            Ok((child, ticket)) => {
                let pid = child.pid();
                self.child = Some(child);
                self.ticket = Some(ticket);
                self.step(region, QueueEvent::Spawned { pid, now, close: self.wanted.close() });
            }
            Err(error) => {
                self.step(region, QueueEvent::SpawnFailed { error: error.to_string(), now });
            }
        }
    }

    /// Reads what the slot of the scheduler shows.
    pub fn observe(&mut self, region: &Region, now: Instant) {
        if self.ticket.is_some_and(|ticket| region.accepted(ticket)) {
            self.step(region, QueueEvent::Acknowledged);
        }
        let Some(slot) = self.state.slot() else { return self.note_login(region) };
        if let Some(marker) = region.slots().slot_status(slot).marker() {
            self.marker = Some(marker);
        }
        self.note_login(region);
        if let Some(count) = region.slots().slot_status(slot).beat() {
            self.step(region, QueueEvent::BeatSeen { count, now });
        }
    }

    /// Logs a refused login once.
    fn note_login(&mut self, region: &Region) {
        let refused = self.login_refused(region);
        let running = self.phase(region) == Some(Phase::Running);
        if let Some(why) = self.login.seen(refused, running) {
            shared::warning!("queue is not served", queue = self.wanted.label(), why = why);
        }
    }

    /// `probe`: how long after leaving for want of a catalog it is looked for again.
    pub fn gone(&mut self, region: &Region, end: ProcessEnd, probe: Duration, now: Instant) {
        let worked = self.phase(region) >= Some(Phase::Running);
        let departure = Departure::of(end, worked, self.why(region), self.origin, probe);
        if departure.left == Some(ExitCode::NotInstalled) {
            self.marker = None;
        }
        let longest = Duration::from_millis(self.wanted.config.settings.restart_ms);
        self.step(region, QueueEvent::Gone { departure, now, longest });
        if let Some(child) = self.child.take() {
            region.sweep(child.pid());
            child.reap();
        }
    }

    /// A queue that is in the new config too.
    pub fn change(&mut self, region: &Region, mut new: WantedQueue, now: Instant) {
        if let Some(name) = &self.renamed {
            new.target.database.clone_from(name);
            if let Some(installer) = &mut new.installer {
                installer.database.clone_from(name);
            }
        }
        let login_changed = self.wanted.target != new.target;
        let was_wanted = self.wanted.unwanted().is_none() && !self.state.is_removed();
        let stopped = self.state.is_stopped() && self.wanted.config.enabled;
        new.log_refusal(self.wanted.refusal.as_deref());
        self.wanted = new;
        let close = self.wanted.close();
        let event = match self.wanted.unwanted() {
            Some(why) => QueueEvent::Unwanted { why: why.to_owned(), now, close },
            None if stopped => return,
            None if login_changed || !was_wanted => QueueEvent::WantedAgain { now, close },
            None => QueueEvent::SettingsChanged,
        };
        self.step(region, event);
    }

    fn send_settings(&mut self, region: &Region) {
        let (Some(slot), Some(child)) = (self.state.slot(), &self.child) else { return };
        match region.fill(slot, &encode(&self.wanted.order(self.origin, WaitFor::default(), self.marker.is_some()))) {
            Ok(ticket) => {
                child.signal(Signal::SIGHUP);
                self.ticket = Some(ticket);
                self.step(region, QueueEvent::SettingsSent);
            }
            Err(error) => {
                shared::error!("cannot send new settings to the scheduler", queue = self.wanted.label(), error = error)
            }
        }
    }

    /// Its database exists, under this name.
    pub fn database_named(&mut self, region: &Region, name: &str, now: Instant) {
        if self.wanted.target.database == name {
            return;
        }
        let old = std::mem::replace(&mut self.wanted.target.database, name.to_owned());
        if let Some(installer) = &mut self.wanted.installer {
            installer.database = name.to_owned();
        }
        if self.origin == Origin::Found {
            self.wanted.config.data = name.to_owned();
            shared::info!("database renamed", from = old, to = name);
        } else {
            self.renamed = (self.wanted.config.data != name).then(|| name.to_owned());
            shared::warning!("database renamed; change the config before the next start", from = old, to = name);
        }
        self.restart(region, now);
    }

    /// Its database does not exist, or was never seen: another one of its name is taken instead.
    pub fn database_missing(&mut self, region: &Region, found: &[FoundDatabase], now: Instant) {
        if self.origin == Origin::Found {
            return; // forgotten by the reconciliation
        }
        let name = self.wanted.config.data.clone();
        let same = found.iter().find(|one| one.name == name).map(|one| one.oid);
        let was = std::mem::replace(&mut self.database, same);
        if was.is_some() {
            (self.marker, self.renamed) = (None, None);
            self.wanted.target.database.clone_from(&name);
        }
        match (was, same) {
            (Some(_), None) => {
                shared::warning!("database dropped", queue = self.wanted.label());
                let (then, close) = (Then::Stay { why: DisabledReason::Dropped }, Duration::ZERO);
                self.step(region, QueueEvent::EndAsked { urgency: Urgency::Hurry, then, now, close });
            }
            (Some(_), Some(_)) if self.child.is_some() => self.restart(region, now),
            (_, Some(_)) if matches!(self.state, QueueState::Disabled { why: DisabledReason::Dropped, .. }) => {
                self.step(region, QueueEvent::StartAsked { now });
            }
            (None | Some(_), None | Some(_)) => {}
        }
    }

    /// Its scheduler, if it has one, is in a database that is another one now.
    fn restart(&mut self, region: &Region, now: Instant) {
        if self.child.is_some() && !self.state.is_removed() {
            self.step(region, QueueEvent::RestartAsked { wait: WaitFor::default(), now });
        }
    }

    /// What the server lacks now; logged once.
    pub fn provided(&mut self, missing: Option<String>) {
        if let Some(why) = missing.as_ref().filter(|why| self.missing.as_ref() != Some(why)) {
            shared::warning!("queue cannot be served yet", queue = self.wanted.label(), reason = why);
        }
        self.missing = missing;
    }

    pub fn phase(&self, region: &Region) -> Option<Phase> {
        scheduler_slot::phase(region, self.state.slot()?)
    }

    pub fn has_child(&self, pid: Pid) -> bool {
        self.child.as_ref().is_some_and(|child| child.pid() == pid)
    }

    /// The server does not let a found queue's owner in. Its message may not name the owner, and the config does not.
    fn login_refused(&self, region: &Region) -> Option<String> {
        let waits = self.wanted.as_owner && self.phase(region) == Some(Phase::Waiting);
        let reason = self.state.slot().filter(|_| waits).and_then(|slot| scheduler_slot::reason(region, slot));
        reason.and_then(|reason| owner_refused(&self.wanted.target.user, &reason))
    }

    /// Why the queue is not served.
    pub fn why(&self, region: &Region) -> Option<String> {
        if let (Some(missing), true) = (&self.missing, self.phase(region) < Some(Phase::Running)) {
            return Some(missing.clone());
        }
        let reported = || self.state.process().and_then(|process| scheduler_slot::reason(region, process.slot));
        let own = || self.state.why(&self.memory).or_else(reported);
        self.login_refused(region).or_else(own)
    }
}
