//! One queue: its machine, its scheduler process, its slot and cell.
//!
//! Policy is `queue_state`; this room carries its effects out and keeps what a queue must remember: its settings, its
//! database, its child, the last beat, what has been said. `queue_table` calls it for every queue on every pass.

use crate::limits::{BEAT_TIMEOUT, NO_SLOT_TIMEOUT};
use crate::queue::queue_state::{self, QueueEffect, QueueEvent, QueueState, STOPPED, Then, Urgency, Useless};
use crate::queue::restart_policy::{Death, RestartPolicy};
use crate::queue::wanted::Wanted;
use nix::sys::signal::Signal;
use shared::db::identifier::quoted;
use shared::db::trouble::refuses_login;
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::process::order::{WaitFor, encode};
use shared::process::spawn::Nursery;
use shared::region::{Kind, Phase, Region, SlotHandle, Ticket};
use shared::sys::wait::{Child, End};
use std::time::{Duration, Instant};

/// How a queue came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The config names its database.
    Named,
    /// The config says "*", and it was found.
    Found,
}

#[derive(Debug)]
pub struct QueueEntry {
    pub wanted: Wanted,
    pub origin: Origin,
    /// The database's OID, once it was seen on the launcher's own server.
    pub database: Option<u32>,
    /// What the database is called now, if it was renamed since the config was written.
    pub renamed: Option<String>,
    /// The table whose locks tell of work on the catalog; remembered between two schedulers.
    pub marker: Option<u32>,
    /// How the last scheduler left, if it left by itself.
    pub left: Option<ExitCode>,
    /// Sessions that are to be ended through the server.
    pub to_end: Vec<i32>,
    pub state: QueueState,
    /// It may not start at present, whatever its time says: we do not lead, or somebody works on its database.
    pub kept_waiting: bool,
    pub policy: RestartPolicy,
    pub child: Option<Child>,
    pub ticket: Option<Ticket>,
    /// New settings that the scheduler has not been told yet.
    pub untold: bool,
    /// The config no longer has this row: it goes once its scheduler has ended.
    pub removed: bool,
    pub beat: (u64, Instant),
    /// Since when no slot was to be had. A look of a scheduler holds all free ones for a moment: that is nothing to tell.
    pub refused_since: Option<Instant>,
    /// Said once per episode.
    pub said_no_slot: bool,
    /// Why no scheduler can be forked; logged once per episode.
    pub no_fork: Option<String>,
    pub said_refused: bool,
    pub last_death: Option<String>,
    /// What the server lacks and we may not make.
    pub missing: Option<String>,
}

impl QueueEntry {
    pub fn new(wanted: Wanted, origin: Origin, database: Option<u32>, now: Instant) -> QueueEntry {
        let state = wanted.unwanted().map_or_else(QueueState::enabled, QueueState::disabled);
        wanted.tell_refusal(None);
        QueueEntry {
            wanted,
            origin,
            database,
            renamed: None,
            marker: None,
            left: None,
            to_end: Vec::new(),
            state,
            policy: RestartPolicy::default(),
            child: None,
            ticket: None,
            untold: false,
            removed: false,
            beat: (0, now),
            refused_since: None,
            said_no_slot: false,
            kept_waiting: false,
            no_fork: None,
            said_refused: false,
            last_death: None,
            missing: None,
        }
    }

    /// Steps the machine and does what needs no more than the region and the child; returns all effects.
    pub fn step(&mut self, region: &Region, event: QueueEvent) -> Vec<QueueEffect> {
        let state = std::mem::replace(&mut self.state, QueueState::enabled());
        let slot = state.slot();
        let before = state.name();
        let step = queue_state::step(state, event, &mut self.policy);
        self.state = step.next;
        if before != self.state.name() {
            shared::debug!("row changed", queue = self.wanted.label(), from = before, to = self.state.name());
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
                        // Swept by somebody: begin without a slot.
                        self.state = QueueState::enabled();
                    }
                }
                QueueEffect::Tell(rung) => self.tell(region, *rung),
                QueueEffect::Reserve | QueueEffect::Spawn { .. } => {}
            }
        }
        step.effects
    }

    fn tell(&mut self, region: &Region, rung: Urgency) {
        let (Some(child), Some(slot)) = (&self.child, self.state.slot()) else { return };
        match rung {
            Urgency::Finish => child.signal(Signal::SIGTERM),
            Urgency::Cancel | Urgency::Hurry => child.signal(Signal::SIGINT),
            Urgency::EndTasks => self.to_end.extend(workers_backends(region, slot)),
            Urgency::EndSession => {
                let own = region.slots().notes(slot).running().map(|(_, _, backend)| backend);
                self.to_end.extend(workers_backends(region, slot).into_iter().chain(own));
            }
            Urgency::Kill => {
                shared::warning!("scheduler does not end; it is killed", queue = self.wanted.label());
                child.signal(Signal::SIGKILL);
            }
        }
    }

    /// The sessions that this scheduler and its workers have told of.
    pub fn backends(&self, region: &Region) -> Vec<i32> {
        let Some(slot) = self.state.slot() else { return Vec::new() };
        let own = region.slots().notes(slot).running().map(|(_, _, backend)| backend);
        workers_backends(region, slot).into_iter().chain(own).collect()
    }

    /// Its scheduler has a session, or a worker at something here. What runs on a remote goes on, and waits with its result:
    /// whoever leads by then ends it there before anything is done again.
    pub fn serves(&self, region: &Region) -> bool {
        let Some(slot) = self.state.slot() else { return false };
        let slots = region.slots();
        let own = slots.notes(slot).running().is_some();
        own || slots.holders().into_iter().any(|holder| {
            let notes = slots.notes(holder.handle);
            let far = notes.running().is_some_and(|(_, _, backend)| backend < 0);
            notes.kind() == Some(Kind::Worker) && notes.parent() == Some(slot.index()) && !far
        })
    }

    /// One slot always stays for workers: a scheduler that could start no task would be of no use.
    pub fn reserve(&mut self, region: &Region, now: Instant) {
        let slots = region.slots();
        let slot = if slots.used() + 1 < slots.limit() { slots.reserve() } else { None };
        match slot {
            Some(slot) => {
                (self.said_no_slot, self.refused_since) = (false, None);
                self.step(region, QueueEvent::SlotGiven { slot, now });
            }
            None => {
                let since = *self.refused_since.get_or_insert(now);
                let long = now >= since + NO_SLOT_TIMEOUT;
                if long && !self.said_no_slot {
                    // One that most likely has nothing to serve asks for a slot again and again.
                    let level = if self.left.is_some_and(|code| code == ExitCode::NotInstalled) {
                        Level::Debug
                    } else {
                        Level::Warning
                    };
                    shared::log_line!(
                        level,
                        "row waits for a slot; raise max_workers, or stop another row",
                        queue = self.wanted.label()
                    );
                }
                self.said_no_slot |= long;
                self.step(region, QueueEvent::SlotRefused);
            }
        }
    }

    pub fn spawn(&mut self, region: &Region, nursery: &Nursery, wait: WaitFor, now: Instant) {
        let Some(slot) = self.state.slot() else { return };
        // Whatever has led here: it would run as a user that it must not run as.
        if let Some(why) = self.wanted.refusal.clone() {
            let (then, close) = (Then::Stay { why }, Duration::ZERO);
            self.step(region, QueueEvent::EndAsked { rung: Urgency::Hurry, then, now, close });
            return;
        }
        let order = self.wanted.order(self.origin, wait, self.marker.is_some());
        match nursery.try_spawn(slot, Kind::Scheduler, &self.wanted.label(), &order, scheduler::run) {
            Ok((child, ticket)) => {
                self.no_fork = None;
                let pid = child.pid();
                self.child = Some(child);
                self.ticket = Some(ticket);
                self.untold = false;
                self.beat = (0, now);
                self.step(region, QueueEvent::Spawned { pid, now, close: self.wanted.close() });
            }
            Err(error) => {
                if self.no_fork.is_none() {
                    shared::error!("cannot start a scheduler", queue = self.wanted.label(), error = error);
                }
                self.no_fork = Some(format!("cannot start a scheduler: {error}; trying every second"));
                self.step(region, QueueEvent::SpawnFailed { now });
            }
        }
    }

    /// Acknowledgements, untold settings, beats.
    pub fn look(&mut self, region: &Region, now: Instant) {
        if self.ticket.is_some_and(|ticket| region.accepted(ticket)) {
            self.step(region, QueueEvent::Acknowledged);
            // A second letter's acknowledgement: the machine knows only the first.
            if let Some(ticket) = self.ticket.take() {
                region.free(ticket);
            }
        }
        if self.untold && matches!(self.state, QueueState::Started { .. }) && self.ticket.is_none() {
            self.tell_settings(region);
        }
        if let Some(marker) = self.state.slot().and_then(|slot| region.slots().notes(slot).marker()) {
            self.marker = Some(marker);
        }
        let refused = self.login_refused(region);
        if let (Some(why), false) = (&refused, self.said_refused) {
            shared::warning!("queue is not served", queue = self.wanted.label(), why = why);
        }
        // Until it is served: what it says between two tries counts for nothing.
        self.said_refused = refused.is_some() || self.said_refused && self.phase(region) != Some(Phase::Running);
        let beat = self.state.slot().and_then(|slot| region.slots().notes(slot).beat());
        match beat {
            Some(beat) if beat != self.beat.0 => self.beat = (beat, now),
            Some(_) if self.child.is_some() && now >= self.beat.1 + BEAT_TIMEOUT => {
                shared::error!("scheduler stands still; it is ended and started again", queue = self.wanted.label());
                self.beat.1 = now;
                self.step(region, QueueEvent::BeatStopped);
            }
            _ => {}
        }
    }

    /// `probe`: how long after leaving for want of a catalog it is looked for again.
    pub fn gone(&mut self, region: &Region, end: End, probe: Duration, now: Instant) {
        let worked = self.phase(region) >= Some(Phase::Running);
        let why = self.why(region);
        self.left = match end {
            End::Exited(status) => ExitCode::from_status(status),
            End::Killed(_) => None,
        };
        if self.left == Some(ExitCode::NotInstalled) {
            self.marker = None;
        }
        let (death, useless) = verdict(end, worked);
        let useless = useless.then(|| Useless {
            why: why.unwrap_or_else(|| format!("the scheduler gave up ({end})")),
            again_after: match (self.left, self.origin) {
                (Some(ExitCode::NotInstalled | ExitCode::NoQueue), Origin::Found) => Some(probe),
                (Some(ExitCode::SwitchedOff), _) => Some(probe),
                _ => None,
            },
        });
        if !matches!(self.state, QueueState::Ending { .. }) {
            match &useless {
                // A database without a catalog is nothing to tell of; it may be one of many.
                Some(Useless { why, again_after: Some(_) }) => {
                    shared::debug!("scheduler left", queue = self.wanted.label(), why = why);
                }
                Some(Useless { why, .. }) if self.left == Some(ExitCode::NotInstalled) => {
                    shared::info!("row is disabled", queue = self.wanted.label(), why = why);
                }
                Some(Useless { why, .. }) => {
                    shared::error!("row is disabled", queue = self.wanted.label(), why = why);
                    self.last_death = Some(end.to_string());
                }
                None => {
                    shared::warning!("scheduler died", queue = self.wanted.label(), end = end);
                    self.last_death = Some(end.to_string());
                }
            }
        }
        let longest = Duration::from_millis(self.wanted.row.settings.restart_ms);
        self.step(region, QueueEvent::Gone { death, useless, now, longest });
        if let Some(child) = self.child.take() {
            region.sweep(child.pid());
            child.reap();
        }
    }

    /// A row that is in the new config too.
    pub fn change(&mut self, region: &Region, mut new: Wanted, now: Instant) {
        if let Some(name) = &self.renamed {
            new.target.database.clone_from(name);
            if let Some(installer) = &mut new.installer {
                installer.database.clone_from(name);
            }
        }
        let login_changed = self.wanted.target != new.target;
        let enabled = (self.wanted.unwanted().is_none() && !self.removed, new.unwanted().is_none());
        let by_config = self.wanted.row.enabled && !self.removed;
        new.tell_refusal(self.wanted.refusal.as_deref());
        self.wanted = new;
        self.removed = false;
        let close = self.wanted.close();
        let ask = |then| QueueEvent::EndAsked { rung: Urgency::Finish, then, now, close };
        let stopped = matches!(&self.state, QueueState::Disabled { why, .. } if why == STOPPED);
        match enabled {
            (_, false) => {
                let why = self.wanted.unwanted().unwrap_or_default().to_owned();
                if matches!(self.state, QueueState::Disabled { .. }) && !stopped {
                    self.state = QueueState::disabled(&why);
                }
                self.step(region, ask(Then::Stay { why }));
            }
            (_, true) if stopped && by_config => {}
            (_, true) if login_changed || !enabled.0 => {
                drop(self.step(region, ask(Then::StartAgain { wait: WaitFor::default() })));
            }
            // Told even if nothing has changed here: settings of the server count, and are read again on reload.
            (true, true) => {
                self.untold = true;
                self.look(region, now);
            }
            (false, true) => {}
        }
    }

    pub fn tell_settings(&mut self, region: &Region) {
        let (Some(slot), Some(child)) = (self.state.slot(), &self.child) else { return };
        match region.fill(slot, &encode(&self.wanted.order(self.origin, WaitFor::default(), self.marker.is_some()))) {
            Ok(ticket) => {
                self.ticket = Some(ticket);
                self.untold = false;
                child.signal(Signal::SIGHUP);
            }
            Err(error) => shared::error!("cannot tell new settings", queue = self.wanted.label(), error = error),
        }
    }

    pub fn phase(&self, region: &Region) -> Option<Phase> {
        region.slots().notes(self.state.slot()?).phase()
    }

    /// The server does not let a found queue's owner in. Its words may not name him, and no row does.
    fn login_refused(&self, region: &Region) -> Option<String> {
        let waits = self.wanted.as_owner && self.phase(region) == Some(Phase::Waiting);
        let said = self.state.slot().filter(|_| waits).and_then(|slot| region.slots().notes(slot).reason());
        said.filter(|said| refuses_login(said)).map(|said| owner_refused(&self.wanted.target.user, &said))
    }

    /// Why the row does not do its work.
    pub fn why(&self, region: &Region) -> Option<String> {
        if let (Some(missing), true) = (&self.missing, self.phase(region) < Some(Phase::Running)) {
            return Some(missing.clone());
        }
        if let Some(refused) = self.login_refused(region) {
            return Some(refused);
        }
        match &self.state {
            QueueState::Disabled { why, .. } => Some(why.clone()),
            QueueState::Enabled { .. } if self.said_no_slot => Some("no slot is free; raise max_workers".to_owned()),
            QueueState::Allocated { .. } => {
                let died = || self.last_death.as_ref().map(|end| format!("its scheduler died ({end})"));
                self.no_fork.clone().or_else(died)
            }
            QueueState::Enabled { .. } => None,
            QueueState::Starting { slot, .. } | QueueState::Started { slot, .. } | QueueState::Ending { slot, .. } => {
                region.slots().notes(*slot).reason()
            }
        }
    }
}

/// What to do about a server that does not let the owner of a found table in.
pub fn owner_refused(owner: &str, said: &str) -> String {
    format!(
        "not served as {}, the owner of its table: {said}; let that role log in (its password belongs into the password \
         file), or name a \"user\" in the row \"*\"",
        quoted(owner)
    )
}

/// What a scheduler's end says: whether it had been of use, and whether another start can help.
fn verdict(end: End, worked: bool) -> (Death, bool) {
    match end {
        End::Killed(Signal::SIGSEGV | Signal::SIGABRT | Signal::SIGBUS | Signal::SIGILL) => (Death::Failure, false),
        End::Killed(_) | End::Exited(0) => (if worked { Death::AfterWork } else { Death::Failure }, false),
        End::Exited(status) => {
            use ExitCode as C;
            let useless = match ExitCode::from_status(status) {
                Some(C::NotInstalled | C::NoCode | C::NoQueue | C::SwitchedOff | C::Permanent) => true,
                Some(C::Asked | C::BadCell | C::Unsettled | C::Temporary | C::Panic) | None => false,
            };
            (Death::Failure, useless)
        }
    }
}

/// Backends of the workers whose parent is in this slot.
fn workers_backends(region: &Region, parent: SlotHandle) -> Vec<i32> {
    let slots = region.slots();
    let notes = slots.holders().into_iter().map(|holder| slots.notes(holder.handle));
    notes
        .filter(|notes| notes.kind() == Some(Kind::Worker) && notes.parent() == Some(parent.index()))
        .filter_map(|notes| notes.running().map(|(_, _, backend)| backend))
        .collect()
}
