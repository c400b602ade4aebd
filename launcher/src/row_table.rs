//! The rows of the config and what becomes of them.
//!
//! The loop calls it on every pass and gets back nothing but log lines, so a missed event costs one pass, never a stuck
//! row. What one row does is in `row_entry`.

use crate::maker::{Needed, Report};
use crate::row_entry::{Entry, Wanted};
use crate::row_state::{RowEffect, RowEvent, RowState, Rung, Then};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared::conninfo::Place;
use shared::nursery::Nursery;
use shared::region::{Kind, Phase, Region, SlotHandle};
use shared::sys::wait::Child;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct RowTable {
    region: Region,
    entries: Vec<Entry>,
}

impl RowTable {
    pub fn new(region: &Region) -> RowTable {
        RowTable { region: region.clone(), entries: Vec::new() }
    }

    /// Takes over a config: new rows are added, missing ones end, changed ones are told.
    pub fn want(&mut self, wanted: Vec<Wanted>, now: Instant) {
        for entry in &mut self.entries {
            if !wanted.iter().any(|new| new.same_queue(&entry.wanted)) && !entry.removed {
                shared::info!("row removed", queue = entry.wanted.label());
                entry.removed = true;
                let close = entry.wanted.close();
                entry.step(&self.region, RowEvent::EndAsked { rung: Rung::Finish, then: Then::Stay, now, close });
            }
        }
        for new in wanted {
            match self.entries.iter_mut().find(|entry| new.same_queue(&entry.wanted)) {
                Some(entry) => entry.change(&self.region, new, now),
                None => {
                    let state = if new.row.enabled {
                        RowState::Enabled
                    } else {
                        RowState::Disabled { why: "\"enabled\" is false in the config".to_owned() }
                    };
                    self.entries.push(Entry::new(new, state, now));
                }
            }
        }
    }

    /// One pass over all rows: slots first, so that no task takes a scheduler's slot, then starts and the rest.
    pub fn pass(&mut self, nursery: &Nursery, may_start: bool, now: Instant) {
        self.entries.retain(|entry| !(entry.removed && matches!(entry.state, RowState::Disabled { .. })));
        for entry in &mut self.entries {
            entry.look(&self.region, now);
        }
        if may_start {
            for entry in self.entries.iter_mut().filter(|entry| entry.state == RowState::Enabled) {
                let effects = entry.step(&self.region, RowEvent::Passed { now });
                debug_assert!(effects.iter().all(|effect| *effect == RowEffect::Reserve));
                entry.reserve(&self.region, now);
            }
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.state != RowState::Enabled) {
            let waits_for_start = matches!(entry.state, RowState::Allocated { .. });
            if waits_for_start && !may_start {
                continue;
            }
            if entry.step(&self.region, RowEvent::Passed { now }).contains(&RowEffect::Spawn) {
                entry.spawn(&self.region, nursery, now);
            }
        }
    }

    /// Sees the ends of schedulers. The sweep comes before the reaping: the zombie keeps the pid from being reused.
    pub fn reap(&mut self, now: Instant) {
        for entry in &mut self.entries {
            let Some(end) = entry.child.as_ref().and_then(Child::ended) else { continue };
            entry.gone(&self.region, end, now);
        }
    }

    /// Whether a pid is one of the schedulers: those are reaped by `reap` alone.
    pub fn has_child(&self, pid: nix::unistd::Pid) -> bool {
        self.entries.iter().any(|entry| entry.child.as_ref().is_some_and(|child| child.pid() == pid))
    }

    /// Rings the schedulers that wait for a slot, if there is one. They ask no server before they have it.
    pub fn offer_slots(&self) {
        let slots = self.region.slots();
        if slots.used() >= slots.limit() {
            return;
        }
        for entry in &self.entries {
            if let (Some(slot), Some(child)) = (entry.state.slot(), &entry.child)
                && slots.notes(slot).wants_slot()
            {
                child.signal(Signal::SIGUSR2);
            }
        }
    }

    pub fn end_all(&mut self, rung: Rung, now: Instant) {
        for entry in &mut self.entries {
            let close = entry.wanted.close();
            entry.step(&self.region, RowEvent::EndAsked { rung, then: Then::Stay, now, close });
        }
    }

    /// What the rows that do not work yet need on the server at these places.
    pub fn needed(&self, places: &[Place]) -> Vec<Needed> {
        let mut needed = Vec::new();
        for entry in &self.entries {
            let works = entry.phase(&self.region) >= Some(Phase::Running);
            let one = Needed { role: entry.wanted.row.user.clone(), database: entry.wanted.row.data.clone() };
            if entry.wanted.row.enabled && !works && entry.wanted.target.places == places && !needed.contains(&one) {
                needed.push(one);
            }
        }
        needed
    }

    /// What the maker found; a reason is said once.
    pub fn made(&mut self, reports: Vec<Report>) {
        for Report { needed, missing } in reports {
            let rows = self
                .entries
                .iter_mut()
                .filter(|entry| entry.wanted.row.user == needed.role && entry.wanted.row.data == needed.database);
            for entry in rows {
                if let Some(why) = missing.as_ref().filter(|why| entry.missing.as_ref() != Some(why)) {
                    shared::warning!("row cannot be served yet", queue = entry.wanted.label(), reason = why);
                }
                entry.missing = missing.clone();
            }
        }
    }

    /// Ends everything for now; rows start again once they may.
    pub fn suspend_all(&mut self, now: Instant) {
        for entry in self.entries.iter_mut().filter(|entry| entry.child.is_some()) {
            let close = entry.wanted.close();
            entry.step(&self.region, RowEvent::EndAsked { rung: Rung::Cancel, then: Then::StartAgain, now, close });
        }
    }

    pub fn has_schedulers(&self) -> bool {
        self.entries.iter().any(|entry| entry.child.is_some())
    }

    pub fn longest_close(&self) -> Duration {
        self.entries.iter().map(|entry| entry.wanted.close()).max().unwrap_or_default()
    }

    /// Every wanted row does its work, or has its reason.
    pub fn ready(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| entry.phase(&self.region) == Some(Phase::Running) || entry.why(&self.region).is_some())
    }

    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.entries
            .iter()
            .filter_map(|entry| entry.child.as_ref().map(|child| PollFd::new(child.as_fd(), PollFlags::POLLIN)))
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.entries.iter().filter_map(|entry| entry.state.deadline()).min()
    }

    /// `launcher_why`: why the launcher itself waits, which is then the reason of every row that has no process.
    pub fn report(&self, launcher_why: Option<&str>) -> Value {
        let slots = self.region.slots();
        let parents: Vec<(u32, Option<Kind>)> = slots
            .holders()
            .iter()
            .filter_map(|holder| Some((slots.notes(holder.handle).parent()?, slots.notes(holder.handle).kind())))
            .collect();
        self.entries
            .iter()
            .map(|entry| {
                let index = entry.state.slot().map(SlotHandle::index);
                let running =
                    parents.iter().filter(|(parent, kind)| Some(*parent) == index && *kind == Some(Kind::Worker));
                let size = entry.state.slot().and_then(|slot| slots.notes(slot).size());
                json!({
                    "data": entry.wanted.row.data,
                    "user": entry.wanted.row.user,
                    "schema": entry.wanted.row.schema,
                    "table": entry.wanted.row.table,
                    "state": entry.state.name(),
                    "phase": entry.phase(&self.region).map(Phase::name),
                    "pid": entry.state.pid().map(|pid| pid.as_raw()),
                    "slot": index,
                    "running": running.count(),
                    "why": entry.why(&self.region).or_else(|| {
                        let idle = matches!(entry.state, RowState::Enabled | RowState::Allocated { .. });
                        launcher_why.filter(|_| idle).map(str::to_owned)
                    }),
                    "rows": size.map(|(rows, _)| rows),
                    "bytes": size.map(|(_, bytes)| bytes),
                    "last_death": entry.last_death,
                })
            })
            .collect()
    }
}
