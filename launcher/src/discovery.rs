//! Which databases there are, and what "*" makes of them.
//!
//! The list of databases is read at every poll. A database that the config names is known by its OID from then on: it may
//! be renamed under us (we go on under the new name), or be dropped (its rows stay away until there is one of that
//! name again). Every other database that takes connections is served by the rows "*": first one scheduler for the
//! row's own table, which leaves if there is no catalog; where there is one, a short session of the launcher itself
//! reads which task tables the catalog knows, and each gets its scheduler. Nothing is made in such a database.

use crate::row_entry::{Entry, Origin, Wanted};
use crate::row_state::{RowEvent, RowState, Rung, Then};
use crate::row_table::RowTable;
use shared::db::link::{Link, LinkEvent};
use shared::db::statement::{LIST_QUEUES, bare};
use shared::db::trouble::Trouble;
use shared::exit_code::ExitCode;
use shared::region::{Phase, Region};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// Of one database by "*".
const MOST_QUEUES: usize = 256;
const DROPPED: &str = "its database was dropped; it is served again once there is one of that name";

/// A database of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDatabase {
    pub oid: u32,
    pub name: String,
    /// It takes connections, is no template and not half dropped.
    pub servable: bool,
}

/// Schema and name of a task table.
pub type QueueName = (String, String);

impl RowTable {
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

    /// Which task tables a found database's catalog knows.
    pub fn queues_listed(&mut self, database: u32, queues: Vec<QueueName>, now: Instant) {
        self.queues.insert(database, queues);
        self.reconcile_found(now);
    }

    /// What "*" means for the databases as they are, against what there is.
    pub fn reconcile_found(&mut self, now: Instant) {
        let mut wanted: Vec<(u32, Wanted)> = Vec::new();
        for one in self.listed.iter().filter(|one| one.servable) {
            let named = |entry: &Entry| {
                let same = entry.database == Some(one.oid) || entry.wanted.target.database == one.name;
                entry.origin == Origin::Named && !entry.removed && self.is_local(entry) && same
            };
            if self.entries.iter().any(named) {
                continue;
            }
            for template in &self.every {
                wanted.push((one.oid, template.in_database(&one.name, None)));
            }
            let queues = self.queues.get(&one.oid).into_iter().flatten();
            for (queue, template) in queues.filter_map(|queue| Some((queue, self.every.first()?))) {
                let new = template.in_database(&one.name, Some(queue));
                if !wanted.iter().any(|(oid, known)| *oid == one.oid && known.same_table(&new)) {
                    wanted.push((one.oid, new));
                }
            }
        }
        let known: Vec<u32> = self.listed.iter().map(|one| one.oid).collect();
        self.queues.retain(|oid, _| known.contains(oid));
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
                    entry.step(&self.region, RowEvent::EndAsked { rung: Rung::Hurry, then, now, close });
                }
            }
        }
        wanted.sort_by_key(|(oid, _)| *oid);
        for (oid, new) in wanted {
            shared::debug!("queue found", queue = new.label());
            self.entries.push(Entry::new(new, Origin::Found, Some(oid), now));
        }
    }

    /// Found databases that have a catalog.
    fn installed(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().filter(|entry| entry.origin == Origin::Found && !entry.removed).filter_map(|entry| {
            let serves = entry.phase(&self.region) == Some(Phase::Running);
            (serves || entry.left == Some(ExitCode::NoQueue)).then_some(entry.database).flatten()
        })
    }
}

impl Wanted {
    fn same_table(&self, other: &Wanted) -> bool {
        (&self.row.schema, &self.row.table) == (&other.row.schema, &other.row.table)
    }

    /// What a row "*" means for one database, for its own table or for another one.
    fn in_database(&self, name: &str, queue: Option<&QueueName>) -> Wanted {
        let mut wanted = self.clone();
        wanted.row.data = name.to_owned();
        wanted.row.user.clone_from(&wanted.target.user);
        wanted.target.database = name.to_owned();
        if let Some(installer) = &mut wanted.installer {
            installer.database = name.to_owned();
        }
        if let Some((schema, table)) = queue {
            (wanted.row.schema, wanted.row.table) = (schema.clone(), table.clone());
        }
        wanted
    }
}

impl Entry {
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
            self.step(region, RowEvent::RestartAsked { wait: Default::default(), now });
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
                self.step(region, RowEvent::EndAsked { rung: Rung::Hurry, then, now, close });
            }
            (Some(_), Some(_)) if self.child.is_some() => {
                self.step(region, RowEvent::RestartAsked { wait: Default::default(), now });
            }
            (_, Some(_)) if matches!(&self.state, RowState::Disabled { why, .. } if why == DROPPED) => {
                self.step(region, RowEvent::StartAsked { now });
            }
            (None | Some(_), None | Some(_)) => {}
        }
    }
}

/// The short sessions that read which queues found databases have: one at a time.
#[derive(Debug)]
pub struct QueueProbe {
    period: Duration,
    probed: HashMap<u32, Instant>,
    at: Option<(u32, Link<Vec<QueueName>>)>,
}

impl QueueProbe {
    pub fn new(period: Duration) -> QueueProbe {
        QueueProbe { period, probed: HashMap::new(), at: None }
    }

    pub fn link(&self) -> Option<&Link<Vec<QueueName>>> {
        self.at.as_ref().map(|(_, link)| link)
    }

    /// Begins with the next database that is due. `held`: databases that nothing of ours may be in.
    pub fn pass(&mut self, rows: &RowTable, region: &Region, held: impl Fn(u32) -> bool, now: Instant) {
        if self.at.as_ref().is_some_and(|(database, _)| held(*database)) {
            self.at = None;
        }
        if self.at.is_some() {
            return;
        }
        let due =
            |database: &u32| !held(*database) && self.probed.get(database).is_none_or(|at| now >= *at + self.period);
        let Some(database) = rows.installed().find(due) else { return };
        let Some(target) = rows.target_of(database) else { return };
        self.probed.insert(database, now);
        self.at = Some((database, Link::dial(&target, "pg_conf", Some(region), false)));
    }

    /// Drives the session; gives what it has read.
    pub fn turn(&mut self, now: Instant) -> Option<(u32, Vec<QueueName>)> {
        let (database, link) = self.at.as_mut()?;
        let database = *database;
        for event in link.turn(now) {
            match event {
                LinkEvent::Up => link.ask("listing queues", PATIENCE, |client| async move {
                    let text = bare(LIST_QUEUES);
                    let rows = client.query(&text, &[]).await.map_err(|error| Trouble::of(&error))?;
                    Ok(rows.iter().take(MOST_QUEUES).map(|row| (row.get(0), row.get(1))).collect())
                }),
                LinkEvent::Answered(queues) => {
                    self.at = None;
                    return Some((database, queues));
                }
                LinkEvent::Notified | LinkEvent::CatalogRang => {}
                LinkEvent::Lost(trouble) => {
                    shared::debug!("queues of a database are not to be seen", database = database, why = trouble);
                    self.at = None;
                    return None;
                }
            }
        }
        None
    }
}
