//! The queues that are to be served, and what becomes of them.
//!
//! The loop calls it on every pass and gets back nothing but log lines, so a missed event costs one pass, never a stuck
//! row. What one row does is in `queue_entry`.

use crate::message::message_table::Command;
use crate::queue::database_list::FoundDatabase;
use crate::queue::found_queue::FoundQueue;
use crate::queue::queue_entry::{Origin, QueueEntry};
use crate::queue::queue_state::{QueueEffect, QueueEvent, QueueState, Then, Urgency};
use crate::queue::wanted::Wanted;
use crate::server::provision::{Needed, Report};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared::conninfo::Place;
use shared::process::order::WaitFor;
use shared::process::spawn::Nursery;
use shared::region::{Kind, Phase, Region, SlotHandle};
use shared::sys::wait::Child;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct QueueTable {
    pub region: Region,
    pub entries: Vec<QueueEntry>,
    /// The launcher's own server: what its session sees holds for queues there, and for no others.
    home: Vec<Place>,
    /// The rows "*".
    pub every: Vec<Wanted>,
    pub listed: Vec<FoundDatabase>,
    /// The databases that the rows "*" mean.
    pub covered: BTreeSet<u32>,
    /// The task tables of covered databases, as far as these have been looked at.
    pub queues: HashMap<u32, Vec<FoundQueue>>,
    /// Covered databases that are to be looked at before their time.
    pub to_look: HashSet<u32>,
    /// How long after leaving for want of a catalog a scheduler is tried again.
    probe: Duration,
}

/// What the loop knows about databases that concerns the start of schedulers.
pub trait Surroundings {
    /// Nothing of ours may be in this database now.
    fn held(&self, database: u32) -> bool;
    /// No scheduler may start there yet.
    fn held_back(&self, database: u32) -> bool;
    /// What a scheduler that starts there now has to wait for.
    fn waits_for(&self, database: u32, marker: Option<u32>) -> WaitFor;
}

impl QueueTable {
    pub fn new(region: &Region, home: Vec<Place>, probe: Duration) -> QueueTable {
        QueueTable {
            region: region.clone(),
            entries: Vec::new(),
            home,
            every: Vec::new(),
            listed: Vec::new(),
            covered: BTreeSet::new(),
            queues: HashMap::new(),
            to_look: HashSet::new(),
            probe,
        }
    }

    /// The launcher's own server is another one now: nothing is known of it yet.
    pub fn move_home(&mut self, home: Vec<Place>) {
        if self.home != home {
            self.home = home;
            self.listed.clear();
            self.queues.clear();
            self.covered.clear();
            self.entries.iter_mut().for_each(|entry| entry.database = None);
        }
    }

    pub fn is_local(&self, entry: &QueueEntry) -> bool {
        entry.wanted.target.places == self.home
    }

    /// Takes over a config: new rows are added, missing ones end, changed ones are told.
    pub fn want(&mut self, wanted: Vec<Wanted>, now: Instant) {
        let (every, wanted): (Vec<Wanted>, Vec<Wanted>) = wanted.into_iter().partition(|one| one.row.is_every());
        self.every = every;
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == Origin::Named) {
            if !wanted.iter().any(|new| new.same_queue(&entry.wanted)) && !entry.removed {
                shared::info!("row removed", queue = entry.wanted.label());
                entry.removed = true;
                let close = entry.wanted.close();
                let then = Then::Stay { why: "the config no longer has this row".to_owned() };
                entry.step(&self.region, QueueEvent::EndAsked { rung: Urgency::Finish, then, now, close });
            }
        }
        for new in wanted {
            let named = |entry: &&mut QueueEntry| entry.origin == Origin::Named && new.same_queue(&entry.wanted);
            match self.entries.iter_mut().find(named) {
                Some(entry) => entry.change(&self.region, new, now),
                None => {
                    // Its OID comes with the next list: one that was made since the last must not be taken for another.
                    self.entries.push(QueueEntry::new(new, Origin::Named, None, now));
                }
            }
        }
        self.reconcile_found(now);
    }

    /// One pass over all rows: slots first, so that no task takes a scheduler's slot, then starts and the rest.
    pub fn pass(&mut self, nursery: &Nursery, may_start: bool, around: &impl Surroundings, now: Instant) {
        self.entries.retain(|entry| !(entry.removed && matches!(entry.state, QueueState::Disabled { .. })));
        for entry in &mut self.entries {
            entry.look(&self.region, now);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.child.is_some()) {
            let local = entry.wanted.target.places == self.home;
            let held = local && entry.database.is_some_and(|database| around.held(database));
            if held && !matches!(entry.state, QueueState::Ending { .. }) {
                shared::info!("somebody works on the database; its scheduler makes room", queue = entry.wanted.label());
                let then = Then::StartAgain { wait: WaitFor::default() };
                let close = Duration::ZERO;
                entry.step(&self.region, QueueEvent::EndAsked { rung: Urgency::Hurry, then, now, close });
            }
        }
        for entry in self.entries.iter_mut().filter(|entry| matches!(entry.state, QueueState::Disabled { .. })) {
            entry.step(&self.region, QueueEvent::Passed { now });
        }
        if may_start {
            for entry in self.entries.iter_mut().filter(|entry| matches!(entry.state, QueueState::Enabled { .. })) {
                let effects = entry.step(&self.region, QueueEvent::Passed { now });
                debug_assert!(effects.iter().all(|effect| *effect == QueueEffect::Reserve));
                entry.reserve(&self.region, now);
            }
            self.want_slots();
        }
        for entry in self.entries.iter_mut().filter(|entry| !matches!(entry.state, QueueState::Enabled { .. })) {
            let local = entry.wanted.target.places == self.home;
            let database = entry.database.filter(|_| local);
            let held = database.is_some_and(|database| around.held(database) || around.held_back(database));
            let waits_for_start = matches!(entry.state, QueueState::Allocated { .. });
            entry.kept_waiting = waits_for_start && (!may_start || held);
            if entry.kept_waiting {
                continue;
            }
            for effect in entry.step(&self.region, QueueEvent::Passed { now }) {
                if let QueueEffect::Spawn { wait } = effect {
                    let open = database.map(|database| around.waits_for(database, entry.marker));
                    entry.spawn(&self.region, nursery, wait.then(open.unwrap_or_default()), now);
                }
            }
        }
    }

    /// Under load every slot that comes free is a worker's at once: those who wait for one, and can have one, are left
    /// theirs. One is always a worker's.
    fn want_slots(&self) {
        let slots = self.region.slots();
        let waiting = self.entries.iter().filter(|entry| matches!(entry.state, QueueState::Enabled { .. })).count();
        let ours = 1 + self.entries.iter().filter(|entry| entry.state.slot().is_some()).count();
        let room = (slots.limit() as usize).saturating_sub(ours + 1);
        slots.set_wanted(u32::try_from(waiting.min(room)).unwrap_or(u32::MAX));
    }

    /// A message, or a word of the operator. False: nothing here serves that database.
    #[must_use]
    pub fn command(&mut self, database: u32, command: Command, wait: WaitFor, now: Instant) -> bool {
        let region = self.region.clone();
        let mut any = false;
        for entry in self.local_in(database) {
            any = true;
            if entry.wanted.refusal.is_some() {
                continue;
            }
            entry.step(
                &region,
                match command {
                    Command::Start => QueueEvent::StartAsked { now },
                    Command::Stop => QueueEvent::StopAsked { now },
                    Command::Restart => QueueEvent::RestartAsked { wait, now },
                },
            );
        }
        any
    }

    /// Somebody works on the catalog of this database.
    pub fn marker_locked(&mut self, database: u32, marker: u32, now: Instant) {
        let region = self.region.clone();
        let wait = WaitFor { message: None, marker: true };
        for entry in self.local_in(database).filter(|entry| entry.marker == Some(marker)) {
            if entry.wanted.refusal.is_none() && !matches!(entry.state, QueueState::Disabled { .. }) {
                shared::info!("somebody works on the catalog; a new scheduler waits", queue = entry.wanted.label());
                entry.step(&region, QueueEvent::RestartAsked { wait, now });
            }
        }
    }

    /// Whether this database is ours to serve.
    pub fn serves(&self, database: u32) -> bool {
        self.covers(database) || self.has_queue(database)
    }

    /// Whether any queue here is of this database.
    pub fn has_queue(&self, database: u32) -> bool {
        self.entries.iter().any(|entry| self.is_local(entry) && entry.database == Some(database) && !entry.removed)
    }

    /// The users of a database's rows: they may send it messages.
    pub fn users_of(&self, database: u32) -> Vec<String> {
        let rows = self
            .entries
            .iter()
            .filter(|entry| self.is_local(entry) && entry.origin == Origin::Named && entry.database == Some(database));
        rows.map(|entry| entry.wanted.row.user.clone()).collect()
    }

    /// The OID of a database by its present name.
    pub fn database_named(&self, name: &str) -> Option<u32> {
        self.listed.iter().find(|one| one.name == name).map(|one| one.oid)
    }

    pub fn database_name(&self, database: u32) -> Option<&str> {
        self.listed.iter().find(|one| one.oid == database).map(|one| one.name.as_str())
    }

    /// The marker tables that are known, and the sessions of ours whose locks do not count.
    pub fn watched(&self) -> (Vec<u32>, Vec<i32>) {
        let local: Vec<&QueueEntry> = self.entries.iter().filter(|entry| self.is_local(entry)).collect();
        let mut markers: Vec<u32> = local.iter().filter_map(|entry| entry.marker).collect();
        markers.sort_unstable();
        markers.dedup();
        (markers, local.iter().flat_map(|entry| entry.backends(&self.region)).collect())
    }

    /// Sessions on our server that are to be ended, and whose they are.
    pub fn take_to_end(&mut self) -> Vec<(Vec<i32>, String)> {
        let home = self.home.clone();
        let with = self.entries.iter_mut().filter(|entry| !entry.to_end.is_empty());
        let taken = with.map(|entry| {
            let local = entry.wanted.target.places == home;
            let backends = std::mem::take(&mut entry.to_end);
            (if local { backends } else { Vec::new() }, entry.wanted.target.user.clone())
        });
        taken.filter(|(backends, _)| !backends.is_empty()).collect()
    }

    fn local_in(&mut self, database: u32) -> impl Iterator<Item = &mut QueueEntry> {
        let home = self.home.clone();
        self.entries.iter_mut().filter(move |entry| {
            entry.wanted.target.places == home && entry.database == Some(database) && !entry.removed
        })
    }

    /// Sees the ends of schedulers. The sweep comes before the reaping: the zombie keeps the pid from being reused.
    pub fn reap(&mut self, now: Instant) {
        for entry in &mut self.entries {
            let Some(end) = entry.child.as_ref().and_then(Child::ended) else { continue };
            entry.gone(&self.region, end, self.probe, now);
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

    pub fn end_all(&mut self, rung: Urgency, now: Instant) {
        for entry in &mut self.entries {
            let close = entry.wanted.close();
            let then = Then::Stay { why: "the launcher ends".to_owned() };
            entry.step(&self.region, QueueEvent::EndAsked { rung, then, now, close });
        }
    }

    /// What the rows that do not work yet need on the server at these places.
    pub fn needed(&self, places: &[Place]) -> Vec<Needed> {
        let mut needed = Vec::new();
        for entry in &self.entries {
            let works = entry.phase(&self.region) >= Some(Phase::Running)
                || entry.origin == Origin::Found
                || matches!(entry.state, QueueState::Disabled { .. });
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

    /// Ends all schedulers for now, or those that serve; rows start again once they may. How many it told.
    pub fn suspend(&mut self, all: bool, now: Instant) -> usize {
        let mut told = 0;
        for entry in self.entries.iter_mut().filter(|entry| entry.child.is_some()) {
            if !all && !entry.serves(&self.region) {
                continue;
            }
            told += usize::from(!matches!(entry.state, QueueState::Ending { .. }));
            let close = entry.wanted.close();
            let then = Then::StartAgain { wait: WaitFor::default() };
            entry.step(&self.region, QueueEvent::EndAsked { rung: Urgency::Cancel, then, now, close });
        }
        told
    }

    /// Rings every scheduler: it looks at everything.
    pub fn ring_all(&self) {
        self.entries.iter().filter_map(|entry| entry.child.as_ref()).for_each(|child| child.signal(Signal::SIGUSR2));
    }

    pub fn has_schedulers(&self) -> bool {
        self.entries.iter().any(|entry| entry.child.is_some())
    }

    pub fn longest_close(&self) -> Duration {
        self.entries.iter().map(|entry| entry.wanted.close()).max().unwrap_or_default()
    }

    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.entries
            .iter()
            .filter_map(|entry| entry.child.as_ref().map(|child| PollFd::new(child.as_fd(), PollFlags::POLLIN)))
    }

    pub fn deadline(&self) -> Option<Instant> {
        // Who is kept waiting is looked at again with every news of locks and leadership, and not before.
        let waited_for = self.entries.iter().filter(|entry| !entry.kept_waiting);
        waited_for.filter_map(|entry| entry.state.deadline()).min()
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
                    "data": entry.wanted.target.database,
                    "user": entry.wanted.row.user,
                    "schema": entry.wanted.row.schema,
                    "table": entry.wanted.row.table,
                    "state": entry.state.name(),
                    "phase": entry.phase(&self.region).map(Phase::name),
                    "pid": entry.state.pid().map(|pid| pid.as_raw()),
                    "slot": index,
                    "running": running.count(),
                    "served": entry.is_served(&self.region),
                    "why": entry.why(&self.region).or_else(|| {
                        let idle = matches!(entry.state, QueueState::Enabled { .. } | QueueState::Allocated { .. });
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
