//! The queues that are to be served, and what becomes of them.
//!
//! The loop calls it on every pass. It logs what changes, so a missed event costs one pass, never a stuck queue. What
//! one queue does is in `queue_entry`.

use crate::queue::database_list::{DatabaseList, FoundDatabase};
use crate::queue::found_queue::FoundQueue;
use crate::queue::needed::{Needed, Provided};
use crate::queue::queue_entry::QueueEntry;
use crate::queue::queue_state::{DisabledReason, QueueState, Then, Urgency};
use crate::queue::queue_step::{QueueEffect, QueueEvent};
use crate::queue::request::QueueRequest;
use crate::queue::start_conditions::StartConditions;
use crate::queue::wanted::{Origin, WantedQueue};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use shared::conninfo::Place;
use shared::process::order::WaitFor;
use shared::process::spawn::Spawner;
use shared::region::{Phase, Region};
use shared::sys::wait::Child;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct QueueTable {
    pub region: Region,
    pub entries: Vec<QueueEntry>,
    pub databases: DatabaseList,
    /// How long after leaving for want of a catalog a scheduler is tried again.
    probe: Duration,
}

impl QueueTable {
    pub fn new(region: &Region, home: Vec<Place>, probe: Duration) -> QueueTable {
        QueueTable { region: region.clone(), entries: Vec::new(), databases: DatabaseList::new(home), probe }
    }

    /// The launcher's own server is another one now: nothing is known of it yet.
    pub fn move_home(&mut self, home: Vec<Place>) {
        if self.databases.move_home(home) {
            self.entries.iter_mut().for_each(|entry| entry.database = None);
        }
    }

    /// Whether this queue is on the launcher's own server.
    pub fn is_local(&self, entry: &QueueEntry) -> bool {
        self.databases.is_local(&entry.wanted)
    }

    /// Takes over a config: new queues are added, missing ones end, changed ones get their new settings.
    pub fn want(&mut self, wanted: Vec<WantedQueue>, now: Instant) {
        let (every, wanted): (Vec<WantedQueue>, Vec<WantedQueue>) =
            wanted.into_iter().partition(|one| one.config.is_every());
        self.databases.set_every(every);
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == Origin::Named) {
            if !wanted.iter().any(|new| new.same_queue(&entry.wanted)) && !entry.state.is_removed() {
                shared::info!("queue removed from the config", queue = entry.wanted.label());
                let close = entry.wanted.close();
                let then =
                    Then::Stay { why: DisabledReason::Removed("the config does not contain this queue any more") };
                entry.step(&self.region, QueueEvent::EndAsked { urgency: Urgency::Finish, then, now, close });
            }
        }
        for new in wanted {
            let named = |entry: &&mut QueueEntry| entry.origin == Origin::Named && new.same_queue(&entry.wanted);
            match self.entries.iter_mut().find(named) {
                Some(entry) => entry.change(&self.region, new, now),
                None => {
                    // Its OID comes with the next list: one that was made since the last must not be taken for another.
                    self.entries.push(QueueEntry::new(new, Origin::Named, None));
                }
            }
        }
        self.reconcile_found(now);
    }

    /// One pass over all queues: slots first, so that no task takes a scheduler's slot, then starts and the rest.
    pub fn pass(&mut self, spawner: &Spawner, may_start: bool, open: &impl StartConditions, now: Instant) {
        self.entries.retain(|entry| !(entry.state.is_removed() && entry.state.is_disabled()));
        for entry in &mut self.entries {
            entry.observe(&self.region, now);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.child.is_some()) {
            let local = self.databases.is_local(&entry.wanted);
            let held = local && entry.database.is_some_and(|database| open.held(database));
            if held && !matches!(entry.state, QueueState::Ending { .. }) {
                shared::info!(
                    "scheduler disconnects: another session locks the database",
                    queue = entry.wanted.label()
                );
                let then = Then::StartAgain { wait: WaitFor::default() };
                let close = Duration::ZERO;
                entry.step(&self.region, QueueEvent::EndAsked { urgency: Urgency::Hurry, then, now, close });
            }
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.state.is_disabled()) {
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
            let local = self.databases.is_local(&entry.wanted);
            let database = entry.database.filter(|_| local);
            let held = database.is_some_and(|database| open.held(database) || open.held_back(database));
            if matches!(entry.state, QueueState::Allocated(_)) && (!may_start || held) {
                entry.step(&self.region, QueueEvent::HeldBack);
                continue;
            }
            for effect in entry.step(&self.region, QueueEvent::Passed { now }) {
                if let QueueEffect::Spawn { wait } = effect {
                    let also = database.map(|database| open.waits_for(database, entry.marker));
                    entry.spawn(&self.region, spawner, wait.then(also.unwrap_or_default()), now);
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

    /// A message, or an order of the operator. False: no queue here is of that database.
    #[must_use]
    pub fn request(&mut self, database: u32, request: QueueRequest, wait: WaitFor, now: Instant) -> bool {
        let region = self.region.clone();
        let mut any = false;
        for entry in self.local_in(database) {
            any = true;
            if entry.wanted.refusal.is_some() {
                continue;
            }
            entry.step(
                &region,
                match request {
                    QueueRequest::Start => QueueEvent::StartAsked { now },
                    QueueRequest::Stop => QueueEvent::StopAsked { now },
                    QueueRequest::Restart => QueueEvent::RestartAsked { wait, now },
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
            if entry.wanted.refusal.is_none() && !entry.state.is_disabled() {
                shared::info!("scheduler restarts: another session locks the catalog", queue = entry.wanted.label());
                entry.step(&region, QueueEvent::RestartAsked { wait, now });
            }
        }
    }

    /// Whether this database is ours to serve.
    pub fn serves(&self, database: u32) -> bool {
        self.databases.covers(database) || self.has_queue(database)
    }

    /// Whether any queue here is of this database.
    pub fn has_queue(&self, database: u32) -> bool {
        self.entries
            .iter()
            .any(|entry| self.is_local(entry) && entry.database == Some(database) && !entry.state.is_removed())
    }

    /// The users of a database's queues: they may send it messages.
    pub fn users_of(&self, database: u32) -> Vec<String> {
        let rows = self
            .entries
            .iter()
            .filter(|entry| self.is_local(entry) && entry.origin == Origin::Named && entry.database == Some(database));
        rows.map(|entry| entry.wanted.config.user.clone()).collect()
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
    pub fn take_sessions_to_end(&mut self) -> Vec<(Vec<i32>, String)> {
        let mut taken = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| !entry.sessions_to_end.is_empty()) {
            let backends = std::mem::take(&mut entry.sessions_to_end);
            if self.databases.is_local(&entry.wanted) {
                taken.push((backends, entry.wanted.target.user.clone()));
            }
        }
        taken
    }

    fn local_in(&mut self, database: u32) -> impl Iterator<Item = &mut QueueEntry> {
        let databases = &self.databases;
        self.entries.iter_mut().filter(move |entry| {
            databases.is_local(&entry.wanted) && entry.database == Some(database) && !entry.state.is_removed()
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
        self.entries.iter().any(|entry| entry.has_child(pid))
    }

    /// Signals the schedulers that wait for a slot, if there is one. They ask no server before they have it.
    pub fn offer_slots(&self) {
        let slots = self.region.slots();
        if slots.used() >= slots.limit() {
            return;
        }
        for entry in &self.entries {
            if let (Some(slot), Some(child)) = (entry.state.slot(), &entry.child)
                && slots.slot_status(slot).wants_slot()
            {
                child.signal(Signal::SIGUSR2);
            }
        }
    }

    pub fn end_all(&mut self, urgency: Urgency, now: Instant) {
        for entry in &mut self.entries {
            let close = entry.wanted.close();
            let then = Then::Stay { why: DisabledReason::LauncherEnds };
            entry.step(&self.region, QueueEvent::EndAsked { urgency, then, now, close });
        }
    }

    /// What the queues that do not work yet need on the launcher's own server.
    pub fn needed(&self) -> Vec<Needed> {
        let mut needed = Vec::new();
        for entry in &self.entries {
            let works = entry.phase(&self.region) >= Some(Phase::Running)
                || entry.origin == Origin::Found
                || entry.state.is_disabled();
            let one = Needed { role: entry.wanted.config.user.clone(), database: entry.wanted.config.data.clone() };
            if entry.wanted.config.enabled && !works && self.is_local(entry) && !needed.contains(&one) {
                needed.push(one);
            }
        }
        needed
    }

    /// What exists now, or why not; a reason is logged once.
    pub fn provided(&mut self, provided: Vec<Provided>) {
        for Provided { needed, missing } in provided {
            let rows = self
                .entries
                .iter_mut()
                .filter(|entry| entry.wanted.config.user == needed.role && entry.wanted.config.data == needed.database);
            for entry in rows {
                entry.provided(missing.clone());
            }
        }
    }

    /// Ends all schedulers for now, or those that serve; they start again once this launcher leads.
    pub fn suspend(&mut self, all: bool, now: Instant) {
        let mut told = 0;
        for entry in self.entries.iter_mut().filter(|entry| entry.child.is_some()) {
            if !all && !entry.serves(&self.region) {
                continue;
            }
            told += usize::from(!matches!(entry.state, QueueState::Ending { .. }));
            let close = entry.wanted.close();
            let then = Then::StartAgain { wait: WaitFor::default() };
            entry.step(&self.region, QueueEvent::EndAsked { urgency: Urgency::Cancel, then, now, close });
        }
        if told > 0 && all {
            shared::warning!("launcher does not lead any more; stopping schedulers", schedulers = told);
        } else if told > 0 {
            shared::warning!("launcher lost the leader lock; stopping schedulers", schedulers = told);
        }
    }

    /// Signals every scheduler: it runs a full pass.
    pub fn wake_all(&self) {
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
        self.entries.iter().filter_map(|entry| entry.state.deadline()).min()
    }

    /// The databases as they are now.
    pub fn databases_listed(&mut self, found: Vec<FoundDatabase>, now: Instant) {
        for entry in self.entries.iter_mut().filter(|entry| self.databases.is_local(&entry.wanted)) {
            match entry.database.and_then(|oid| found.iter().find(|one| one.oid == oid)) {
                Some(one) => entry.database_named(&self.region, &one.name, now),
                None => entry.database_missing(&self.region, &found, now),
            }
        }
        self.databases.set_listed(found);
        self.reconcile_found(now);
    }

    /// Which task tables a covered database has; nothing new if it could not be searched.
    pub fn queues_listed(&mut self, database: u32, queues: Option<Vec<FoundQueue>>, now: Instant) {
        self.databases.set_queues(database, queues);
        self.reconcile_found(now);
    }

    /// What "*" means for the databases as they are, against what there is.
    fn reconcile_found(&mut self, now: Instant) {
        let entries = &self.entries;
        let named_in = |entry: &QueueEntry, one: &FoundDatabase| {
            let same = entry.database == Some(one.oid) || entry.wanted.target.database == one.name;
            entry.origin == Origin::Named && !entry.state.is_removed() && same
        };
        let local: Vec<&QueueEntry> = entries.iter().filter(|entry| self.databases.is_local(&entry.wanted)).collect();
        let mut wanted = self.databases.cover(|one| local.iter().any(|entry| named_in(entry, one)));
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == Origin::Found) {
            let same = |(oid, new): &(u32, WantedQueue)| Some(*oid) == entry.database && new.same_table(&entry.wanted);
            match wanted.iter().position(same).map(|at| wanted.swap_remove(at)) {
                Some((_, new)) if entry.wanted != new || entry.state.is_removed() => {
                    entry.change(&self.region, new, now)
                }
                Some(_) => {}
                None if entry.state.is_removed() => {}
                None => {
                    shared::info!("queue not found any more", queue = entry.wanted.label());
                    let then = Then::Stay {
                        why: DisabledReason::Removed("its database or its table does not exist any more"),
                    };
                    let close = Duration::ZERO;
                    entry.step(&self.region, QueueEvent::EndAsked { urgency: Urgency::Hurry, then, now, close });
                }
            }
        }
        wanted.sort_by_key(|(oid, _)| *oid);
        for (oid, new) in wanted {
            shared::debug!("queue found", queue = new.label());
            self.entries.push(QueueEntry::new(new, Origin::Found, Some(oid)));
        }
    }
}
