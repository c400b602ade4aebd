//! Which databases there are, and what "*" makes of them.
//!
//! The list of databases is read at every poll. A database that the config names is known by its OID from then on: it may
//! be renamed under us (we go on under the new name), or be dropped (its rows stay away until there is one of that
//! name again). Every other database that takes connections is covered by the rows "*": `queue_probe` reads from its
//! system catalogs which task tables it has, and each gets an entry. Nothing is made in such a database.
//!
//! A found queue runs as its table's owner, or as the user that the row "*" names. The launcher's own login can become
//! every queue's user, so it runs none: a table of its own is not served, nor one of a superuser that no row names.

use crate::row_entry::{Entry, Origin, Wanted};
use crate::row_state::{RowEvent, RowState, Rung, Then};
use crate::row_table::RowTable;
use shared::conninfo::Target;
use shared::db::identifier::{qualified, quoted};
use shared::db::statement::{LIST_QUEUES, bare};
use shared::db::trouble::Trouble;
use shared::region::Region;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Of one database by "*".
const MOST_QUEUES: i64 = 256;
const DROPPED: &str = "its database was dropped; it is served again once there is one of that name";

/// A database of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDatabase {
    pub oid: u32,
    pub name: String,
    /// It takes connections, is no template and not half dropped.
    pub servable: bool,
}

/// A task table that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundQueue {
    pub schema: String,
    pub table: String,
    pub owner: String,
    /// The owner is the login that has looked: the launcher's own.
    own: bool,
    logs_in: bool,
    superuser: bool,
}

/// The task tables of the database that this session is in.
pub async fn list_queues(client: &Client) -> Result<Vec<FoundQueue>, Trouble> {
    let rows = client.query(&bare(LIST_QUEUES), &[&MOST_QUEUES]).await.map_err(|error| Trouble::of(&error))?;
    let found = rows.iter().map(|row| FoundQueue {
        schema: row.get("schema"),
        table: row.get("name"),
        owner: row.get("owner"),
        own: row.get("own"),
        logs_in: row.get("logs_in"),
        superuser: row.get("superuser"),
    });
    Ok(found.collect())
}

impl FoundQueue {
    /// Why it is not served as its owner, and what to do.
    fn refusal(&self) -> Option<String> {
        let (table, owner) = (qualified(&self.schema, &self.table), quoted(&self.owner));
        let elsewhere =
            format!("run: ALTER TABLE {table} OWNER TO a role of its own, or name a \"user\" in the row \"*\"");
        let why = if self.own {
            format!("the owner of table {table} is the launcher's own login {owner}, which runs no tasks; {elsewhere}")
        } else if self.superuser {
            format!("the owner of table {table} is the superuser {owner}, whom no row names; {elsewhere}")
        } else if !self.logs_in {
            format!(
                "role {owner}, the owner of table {table}, cannot log in; run: ALTER ROLE {owner} LOGIN, or {elsewhere}"
            )
        } else {
            return None;
        };
        Some(format!("not served: {why}"))
    }
}

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

    /// Which task tables a covered database has; nothing new if it could not be looked at.
    pub fn queues_listed(&mut self, database: u32, queues: Option<Vec<FoundQueue>>, now: Instant) {
        self.to_look.remove(&database);
        match queues {
            Some(queues) => drop(self.queues.insert(database, queues)),
            None => drop(self.queues.entry(database).or_default()),
        }
        self.reconcile_found(now);
    }

    /// Its task tables are to be looked for now: somebody has said that there is something to serve.
    pub fn look_again(&mut self, database: u32) {
        if self.covers(database) {
            self.to_look.insert(database);
        }
    }

    /// The rows "*" mean this database: it can be served, and no other row names it.
    pub fn covers(&self, database: u32) -> bool {
        let found = self.listed.iter().find(|one| one.oid == database && one.servable);
        !self.every.is_empty() && found.is_some_and(|one| !self.names(one))
    }

    fn names(&self, one: &FoundDatabase) -> bool {
        self.entries.iter().any(|entry| {
            let same = entry.database == Some(one.oid) || entry.wanted.target.database == one.name;
            entry.origin == Origin::Named && !entry.removed && self.is_local(entry) && same
        })
    }

    /// All databases that the rows "*" mean.
    pub fn covered(&self) -> Vec<u32> {
        self.listed.iter().map(|one| one.oid).filter(|database| self.covers(*database)).collect()
    }

    /// A login of the launcher itself into a covered database.
    pub fn probe_login(&self, database: u32) -> Option<Target> {
        let template = self.every.first()?;
        Some(template.probe_login(self.database_name(database)?))
    }

    /// What "*" means for the databases as they are, against what there is.
    pub fn reconcile_found(&mut self, now: Instant) {
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
}

impl Wanted {
    /// A login of the launcher itself into a database that this row "*" covers.
    pub fn probe_login(&self, database: &str) -> Target {
        let login = self.installer.as_ref().unwrap_or(&self.target);
        Target { database: database.to_owned(), ..login.clone() }
    }

    fn same_table(&self, other: &Wanted) -> bool {
        (&self.row.schema, &self.row.table) == (&other.row.schema, &other.row.table)
    }

    /// What the rows "*" mean for one queue: the row that names its table, else the first one.
    pub fn found(every: &[Wanted], database: &str, queue: &FoundQueue) -> Option<Wanted> {
        let same = |row: &&Wanted| row.row.schema == queue.schema && row.row.table == queue.table;
        let mut wanted = every.iter().find(same).or(every.first())?.clone();
        database.clone_into(&mut wanted.row.data);
        database.clone_into(&mut wanted.target.database);
        (wanted.row.schema, wanted.row.table) = (queue.schema.clone(), queue.table.clone());
        // The launcher's login has no business in a database of others.
        wanted.installer = None;
        if wanted.row.user.is_empty() {
            wanted.refusal = queue.refusal();
            wanted.as_owner = true;
            wanted.row.user.clone_from(&queue.owner);
            wanted.target.user.clone_from(&queue.owner);
        }
        Some(wanted)
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
