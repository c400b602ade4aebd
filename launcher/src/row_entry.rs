//! One row of the config: its machine, its scheduler process, its slot and cell.
//!
//! Policy is `row_state`; this room carries its effects out and keeps what a row must remember: its settings, its
//! child, the last beat, what has been said. `row_table` calls it for every row on every pass.

use crate::restart_policy::{Death, RestartPolicy};
use crate::row_state::{self, RowEffect, RowEvent, RowState, Rung, Then};
use nix::sys::signal::Signal;
use shared::config::Row;
use shared::conninfo::Target;
use shared::conninfo::untrusted::Entries;
use shared::exit_code::ExitCode;
use shared::hand_down::HANDSHAKE;
use shared::hand_over::{SchedulerOrder, encode};
use shared::nursery::Nursery;
use shared::region::{Kind, Phase, Region, Ticket};
use shared::sys::wait::{Child, End};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A scheduler whose loop has not turned for so long is ended.
const BEAT_PATIENCE: Duration = Duration::from_secs(30);

/// A row as the config wants it, with its login resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub row: Row,
    pub target: Target,
    /// The launcher's own login in the row's database, if that is on the launcher's server.
    pub installer: Option<Target>,
    /// Where the programs of other versions are.
    pub versions: PathBuf,
    /// What a task's `remote` may name, the same for all rows.
    pub remotes: Entries,
}

impl Wanted {
    pub fn same_queue(&self, other: &Wanted) -> bool {
        self.row.identity() == other.row.identity()
    }

    pub fn label(&self) -> String {
        format!("{} {}.{}", self.row.data, self.row.schema, self.row.table)
    }

    pub fn order(&self) -> SchedulerOrder {
        SchedulerOrder {
            target: self.target.clone(),
            schema: self.row.schema.clone(),
            table: self.row.table.clone(),
            settings: self.row.settings.clone(),
            defaults: self.row.defaults.clone(),
            installer: self.installer.clone(),
            versions: self.versions.clone(),
            upgrade: self.row.upgrade,
            handshake: HANDSHAKE,
            remotes: self.remotes.clone(),
        }
        .fitting()
    }

    pub fn close(&self) -> Duration {
        Duration::from_millis(self.row.settings.close_ms)
    }
}

#[derive(Debug)]
pub struct Entry {
    pub wanted: Wanted,
    pub state: RowState,
    pub policy: RestartPolicy,
    pub child: Option<Child>,
    pub ticket: Option<Ticket>,
    /// New settings that the scheduler has not been told yet.
    pub untold: bool,
    /// The config no longer has this row: it goes once its scheduler has ended.
    pub removed: bool,
    pub beat: (u64, Instant),
    /// Said once per episode.
    pub said_no_slot: bool,
    pub last_death: Option<String>,
    /// What the server lacks and we may not make.
    pub missing: Option<String>,
}

impl Entry {
    pub fn new(wanted: Wanted, state: RowState, now: Instant) -> Entry {
        Entry {
            wanted,
            state,
            policy: RestartPolicy::default(),
            child: None,
            ticket: None,
            untold: false,
            removed: false,
            beat: (0, now),
            said_no_slot: false,
            last_death: None,
            missing: None,
        }
    }

    /// Steps the machine and does what needs no more than the region and the child; returns all effects.
    pub fn step(&mut self, region: &Region, event: RowEvent) -> Vec<RowEffect> {
        let state = std::mem::replace(&mut self.state, RowState::Enabled);
        let slot = state.slot();
        let before = state.name();
        let step = row_state::step(state, event, &mut self.policy);
        self.state = step.next;
        if before != self.state.name() {
            shared::debug!("row changed", queue = self.wanted.label(), from = before, to = self.state.name());
        }
        for effect in &step.effects {
            match effect {
                RowEffect::FreeCell => {
                    if let Some(ticket) = self.ticket.take() {
                        region.free(ticket);
                    }
                }
                RowEffect::Release => {
                    if let Some(slot) = slot {
                        region.slots().release(slot);
                    }
                }
                RowEffect::KeepSlot => {
                    if let (Some(slot), Some(child)) = (slot, &self.child)
                        && region.slots().take_back(slot, child.pid()).is_err()
                    {
                        // Swept by somebody: begin without a slot.
                        self.state = RowState::Enabled;
                    }
                }
                RowEffect::Tell(rung) => {
                    if let Some(child) = &self.child {
                        child.signal(match rung {
                            Rung::Finish => Signal::SIGTERM,
                            Rung::Cancel => Signal::SIGINT,
                            Rung::Kill => Signal::SIGKILL,
                        });
                    }
                }
                RowEffect::Reserve | RowEffect::Spawn => {}
            }
        }
        step.effects
    }

    /// One slot always stays for workers: a scheduler that could start no task would be of no use.
    pub fn reserve(&mut self, region: &Region, now: Instant) {
        let slots = region.slots();
        let slot = if slots.used() + 1 < slots.limit() { slots.reserve() } else { None };
        match slot {
            Some(slot) => {
                self.said_no_slot = false;
                self.step(region, RowEvent::SlotGiven { slot, now });
            }
            None => {
                if !self.said_no_slot {
                    shared::warning!(
                        "row waits for a slot; raise max_workers, or stop another row",
                        queue = self.wanted.label()
                    );
                }
                self.said_no_slot = true;
                self.step(region, RowEvent::SlotRefused);
            }
        }
    }

    pub fn spawn(&mut self, region: &Region, nursery: &Nursery, now: Instant) {
        let Some(slot) = self.state.slot() else { return };
        match nursery.spawn(slot, Kind::Scheduler, &self.wanted.label(), &self.wanted.order(), scheduler::run) {
            Ok((child, ticket)) => {
                let pid = child.pid();
                self.child = Some(child);
                self.ticket = Some(ticket);
                self.untold = false;
                self.beat = (0, now);
                self.step(region, RowEvent::Spawned { pid, now, close: self.wanted.close() });
            }
            Err(error) => {
                shared::error!("cannot start a scheduler", queue = self.wanted.label(), error = error);
                self.step(region, RowEvent::SpawnFailed { now });
            }
        }
    }

    /// Acknowledgements, untold settings, beats.
    pub fn look(&mut self, region: &Region, now: Instant) {
        if self.ticket.is_some_and(|ticket| region.accepted(ticket)) {
            self.step(region, RowEvent::Acknowledged);
            // A second letter's acknowledgement: the machine knows only the first.
            if let Some(ticket) = self.ticket.take() {
                region.free(ticket);
            }
        }
        if self.untold && matches!(self.state, RowState::Started { .. }) && self.ticket.is_none() {
            self.tell_settings(region);
        }
        let beat = self.state.slot().and_then(|slot| region.slots().notes(slot).beat());
        match beat {
            Some(beat) if beat != self.beat.0 => self.beat = (beat, now),
            Some(_) if self.child.is_some() && now >= self.beat.1 + BEAT_PATIENCE => {
                shared::error!("scheduler stands still; it is ended and started again", queue = self.wanted.label());
                self.beat.1 = now;
                self.step(region, RowEvent::BeatStopped);
            }
            _ => {}
        }
    }

    pub fn gone(&mut self, region: &Region, end: End, now: Instant) {
        let worked = self.phase(region) >= Some(Phase::Running);
        let why = self.why(region);
        let (death, permanent) = verdict(end, worked);
        let permanent = permanent.then(|| why.unwrap_or_else(|| format!("the scheduler gave up ({end})")));
        if !matches!(self.state, RowState::Ending { .. }) {
            match &permanent {
                Some(why) => shared::error!("row is disabled", queue = self.wanted.label(), why = why),
                None => shared::warning!("scheduler died", queue = self.wanted.label(), end = end),
            }
            self.last_death = Some(end.to_string());
        }
        let longest = Duration::from_millis(self.wanted.row.settings.restart_ms);
        self.step(region, RowEvent::Gone { death, permanent, now, longest });
        if let Some(child) = self.child.take() {
            region.sweep(child.pid());
            child.reap();
        }
    }

    /// A row that is in the new config too.
    pub fn change(&mut self, region: &Region, new: Wanted, now: Instant) {
        let login_changed = self.wanted.target != new.target;
        let enabled = (self.wanted.row.enabled && !self.removed, new.row.enabled);
        self.wanted = new;
        self.removed = false;
        let close = self.wanted.close();
        let ask = |then| RowEvent::EndAsked { rung: Rung::Finish, then, now, close };
        match enabled {
            (true, false) => drop(self.step(region, ask(Then::Stay))),
            (_, true) if login_changed || !enabled.0 => drop(self.step(region, ask(Then::StartAgain))),
            // Told even if nothing has changed here: settings of the server count, and are read again on reload.
            (true, true) => {
                self.untold = true;
                self.look(region, now);
            }
            _ => {}
        }
    }

    pub fn tell_settings(&mut self, region: &Region) {
        let (Some(slot), Some(child)) = (self.state.slot(), &self.child) else { return };
        match region.fill(slot, &encode(&self.wanted.order())) {
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

    /// Why the row does not do its work.
    pub fn why(&self, region: &Region) -> Option<String> {
        if let (Some(missing), true) = (&self.missing, self.phase(region) < Some(Phase::Running)) {
            return Some(missing.clone());
        }
        match &self.state {
            RowState::Disabled { why } => Some(why.clone()),
            RowState::Enabled if self.said_no_slot => Some("no slot is free; raise max_workers".to_owned()),
            RowState::Allocated { .. } => self.last_death.as_ref().map(|end| format!("its scheduler died ({end})")),
            RowState::Enabled => None,
            RowState::Starting { slot, .. } | RowState::Started { slot, .. } | RowState::Ending { slot, .. } => {
                region.slots().notes(*slot).reason()
            }
        }
    }
}

/// What a scheduler's end says: whether it had been of use, and whether another start can help.
fn verdict(end: End, worked: bool) -> (Death, bool) {
    match end {
        End::Killed(Signal::SIGSEGV | Signal::SIGABRT | Signal::SIGBUS | Signal::SIGILL) => (Death::Failure, false),
        End::Killed(_) | End::Exited(0) => (if worked { Death::AfterWork } else { Death::Failure }, false),
        End::Exited(status) => {
            (Death::Failure, { matches!(ExitCode::from_status(status), Some(ExitCode::Permanent | ExitCode::NoCode)) })
        }
    }
}
