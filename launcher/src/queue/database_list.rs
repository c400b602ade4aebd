//! Which databases there are, and what "*" makes of them.
//!
//! The list of databases is read at every poll. A database that the config names is known by its OID from then on: it may
//! be renamed under us (we go on under the new name), or be dropped (its rows stay away until there is one of that
//! name again). Every other database that takes connections is covered by the rows "*": `queue_probe` reads from its
//! system catalogs which task tables it has, and each gets an entry. Nothing is made in such a database.

use crate::queue::found_queue::FoundQueue;
use crate::queue::queue_entry::{Origin, QueueEntry};
use crate::queue::queue_state::{QueueEvent, QueueState, Then, Urgency};
use crate::queue::queue_table::QueueTable;
use crate::queue::wanted::Wanted;
use shared::conninfo::Target;
use shared::region::Region;
use std::time::{Duration, Instant};

const DROPPED: &str = "its database was dropped; it is served again once there is one of that name";

/// A database of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDatabase {
    pub oid: u32,
    pub name: String,
    /// It takes connections, is no template and not half dropped.
    pub servable: bool,
}

impl QueueTable {
    /// The databases as they are now.
    pub fn databases_listed(&mut self, found: Vec<FoundDatabase>, now: Instant) {
        let region = self.region.clone();
        for index in 0..self.entries.len() {
            let local = self.entries.get(index).is_some_and(|entry| self.is_local(entry));
            if let (true, Some(entry)) = (local, self.entries.get_mut(index)) {
                match entry.database.and_then(|oid| found.iter().find(|one| one.oid == oid)) {
                    Some(one) => entry.called(&region, &one.name, now),
                    None => entry.missed(&region, &found, now),
                }
            }
        }
        self.listed = found;
        self.reconcile_found(now);
    }

    /// Which task tables a covered database has; nothing new if it could not be looked at.
    pub fn queues_listed(&mut self, database: u32, queues: Option<Vec<FoundQueue>>, now: Instant) {
        self.to_look.remove(&database);
        match queues {
            Some(queues) => drop(self.queues.insert(database, queues)),
            None => drop(self.queues.entry(database).or_default()),
        }
        self.reconcile_found(now);
    }

    /// A START message, or the end of a transaction that asked for a restart: its task tables are searched now.
    pub fn look_again(&mut self, database: u32) {
        if self.covers(database) {
            self.to_look.insert(database);
        }
    }

    /// The rows "*" mean this database: it can be served, and no other row names it.
    pub fn covers(&self, database: u32) -> bool {
        self.covered.contains(&database)
    }

    fn names(&self, one: &FoundDatabase) -> bool {
        self.entries.iter().any(|entry| {
            let same = entry.database == Some(one.oid) || entry.wanted.target.database == one.name;
            entry.origin == Origin::Named && !entry.removed && self.is_local(entry) && same
        })
    }

    /// A login of the launcher itself into a covered database.
    pub fn probe_login(&self, database: u32) -> Option<Target> {
        let template = self.every.first()?;
        Some(template.probe_login(self.database_name(database)?))
    }

    /// What "*" means for the databases as they are, against what there is.
    pub fn reconcile_found(&mut self, now: Instant) {
        let servable = self.listed.iter().filter(|one| one.servable && !self.every.is_empty());
        self.covered = servable.filter(|one| !self.names(one)).map(|one| one.oid).collect();
        let mut wanted: Vec<(u32, Wanted)> = Vec::new();
        for one in self.listed.iter().filter(|one| self.covers(one.oid)) {
            for queue in self.queues.get(&one.oid).into_iter().flatten() {
                wanted.extend(Wanted::found(&self.every, &one.name, queue).map(|new| (one.oid, new)));
            }
        }
        let known: Vec<u32> = self.listed.iter().map(|one| one.oid).collect();
        self.queues.retain(|oid, _| known.contains(oid));
        self.to_look.retain(|oid| known.contains(oid));
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == Origin::Found) {
            let same = |(oid, new): &(u32, Wanted)| Some(*oid) == entry.database && new.same_table(&entry.wanted);
            match wanted.iter().position(same).map(|at| wanted.swap_remove(at)) {
                Some((_, new)) if entry.wanted != new || entry.removed => entry.change(&self.region, new, now),
                Some(_) => {}
                None if entry.removed => {}
                None => {
                    shared::info!("queue forgotten", queue = entry.wanted.label());
                    entry.removed = true;
                    let then = Then::Stay { why: "its database or its table is gone".to_owned() };
                    let close = Duration::ZERO;
                    entry.step(&self.region, QueueEvent::EndAsked { rung: Urgency::Hurry, then, now, close });
                }
            }
        }
        wanted.sort_by_key(|(oid, _)| *oid);
        for (oid, new) in wanted {
            shared::debug!("queue found", queue = new.label());
            self.entries.push(QueueEntry::new(new, Origin::Found, Some(oid), now));
        }
    }
}

impl QueueEntry {
    /// Its database is there, under this name.
    fn called(&mut self, region: &Region, name: &str, now: Instant) {
        if self.wanted.target.database == name {
            return;
        }
        let old = std::mem::replace(&mut self.wanted.target.database, name.to_owned());
        if let Some(installer) = &mut self.wanted.installer {
            installer.database = name.to_owned();
        }
        if self.origin == Origin::Found {
            self.wanted.row.data = name.to_owned();
            shared::info!("database renamed", from = old, to = name);
        } else {
            self.renamed = (self.wanted.row.data != name).then(|| name.to_owned());
            shared::warning!("database renamed; change the config before the next start", from = old, to = name);
        }
        if self.child.is_some() {
            self.step(region, QueueEvent::RestartAsked { wait: Default::default(), now });
        }
    }

    /// Its database is not there, or was never seen: one of its name will do.
    fn missed(&mut self, region: &Region, found: &[FoundDatabase], now: Instant) {
        if self.origin == Origin::Found {
            return; // forgotten by the reconciliation
        }
        let name = self.wanted.row.data.clone();
        let same = found.iter().find(|one| one.name == name).map(|one| one.oid);
        let was = std::mem::replace(&mut self.database, same);
        if was.is_some() {
            (self.marker, self.renamed) = (None, None);
            self.wanted.target.database.clone_from(&name);
        }
        match (was, same) {
            (Some(_), None) => {
                shared::warning!("database dropped", queue = self.wanted.label());
                let then = Then::Stay { why: DROPPED.to_owned() };
                let close = Duration::ZERO;
                self.step(region, QueueEvent::EndAsked { rung: Urgency::Hurry, then, now, close });
            }
            (Some(_), Some(_)) if self.child.is_some() => {
                self.step(region, QueueEvent::RestartAsked { wait: Default::default(), now });
            }
            (_, Some(_)) if matches!(&self.state, QueueState::Disabled { why, .. } if why == DROPPED) => {
                self.step(region, QueueEvent::StartAsked { now });
            }
            (None | Some(_), None | Some(_)) => {}
        }
    }
}
