//! The databases of the launcher's own server, and which of them "*" covers.
//!
//! The list is read at every poll (`server_watch`). Every database that takes connections and that no queue of the
//! config names is covered by the entries "*" of the config. `queue_probe` reads from the system catalogs of such a
//! database which task tables it has. Nothing is made in it.

use crate::queue::found_queue::FoundQueue;
use crate::queue::wanted::WantedQueue;
use shared::conninfo::{Place, Target};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A database of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDatabase {
    pub oid: u32,
    pub name: String,
    /// It takes connections, is no template and not half dropped.
    pub servable: bool,
}

#[derive(Debug)]
pub struct DatabaseList {
    /// The launcher's own server: the list holds for queues there, and for no others.
    home: Vec<Place>,
    /// The entries "*" of the config.
    every: Vec<WantedQueue>,
    listed: Vec<FoundDatabase>,
    covered: BTreeSet<u32>,
    /// The task tables of covered databases, as far as these have been searched.
    queues: HashMap<u32, Vec<FoundQueue>>,
    /// Covered databases that are to be searched before their time.
    to_search: HashSet<u32>,
}

impl DatabaseList {
    pub fn new(home: Vec<Place>) -> DatabaseList {
        DatabaseList {
            home,
            every: Vec::new(),
            listed: Vec::new(),
            covered: BTreeSet::new(),
            queues: HashMap::new(),
            to_search: HashSet::new(),
        }
    }

    /// The launcher's own server is another one now: nothing is known of it yet. False: it is the same.
    pub fn move_home(&mut self, home: Vec<Place>) -> bool {
        if self.home == home {
            return false;
        }
        self.home = home;
        self.listed.clear();
        self.queues.clear();
        self.covered.clear();
        true
    }

    /// Whether this queue is on the launcher's own server.
    pub fn is_local(&self, wanted: &WantedQueue) -> bool {
        wanted.target.places == self.home
    }

    pub fn set_every(&mut self, every: Vec<WantedQueue>) {
        self.every = every;
    }

    pub fn set_listed(&mut self, listed: Vec<FoundDatabase>) {
        self.listed = listed;
    }

    /// The task tables of a covered database; the former ones if it could not be searched.
    pub fn set_queues(&mut self, database: u32, queues: Option<Vec<FoundQueue>>) {
        self.to_search.remove(&database);
        match queues {
            Some(queues) => drop(self.queues.insert(database, queues)),
            None => drop(self.queues.entry(database).or_default()),
        }
    }

    /// "*" means this database: it can be served, and no queue of the config names it.
    pub fn covers(&self, database: u32) -> bool {
        self.covered.contains(&database)
    }

    pub fn covered(&self) -> impl Iterator<Item = u32> + '_ {
        self.covered.iter().copied()
    }

    /// A START message, or the end of a transaction that asked for a restart: its task tables are searched now.
    pub fn search_again(&mut self, database: u32) {
        if self.covers(database) {
            self.to_search.insert(database);
        }
    }

    pub fn is_to_be_searched(&self, database: u32) -> bool {
        self.to_search.contains(&database)
    }

    /// All covered databases have been searched once.
    pub fn is_searched(&self) -> bool {
        self.covered.iter().all(|database| self.queues.contains_key(database))
    }

    /// The OID of a database by its present name.
    pub fn oid_of(&self, name: &str) -> Option<u32> {
        self.listed.iter().find(|one| one.name == name).map(|one| one.oid)
    }

    pub fn name_of(&self, database: u32) -> Option<&str> {
        self.listed.iter().find(|one| one.oid == database).map(|one| one.name.as_str())
    }

    /// Its name, or else its OID.
    pub fn label(&self, database: u32) -> String {
        self.name_of(database).map_or_else(|| database.to_string(), str::to_owned)
    }

    /// A login of the launcher itself into a covered database.
    pub fn probe_login(&self, database: u32) -> Option<Target> {
        let template = self.every.first()?;
        Some(template.probe_login(self.name_of(database)?))
    }

    /// Which databases "*" covers now, and the queues that were found in them. `named`: a queue of the config is in it.
    pub fn cover(&mut self, named: impl Fn(&FoundDatabase) -> bool) -> Vec<(u32, WantedQueue)> {
        let servable = self.listed.iter().filter(|one| one.servable && !self.every.is_empty());
        self.covered = servable.filter(|one| !named(one)).map(|one| one.oid).collect();
        let mut found = Vec::new();
        for one in self.listed.iter().filter(|one| self.covers(one.oid)) {
            for queue in self.queues.get(&one.oid).into_iter().flatten() {
                found.extend(WantedQueue::found(&self.every, &one.name, queue).map(|new| (one.oid, new)));
            }
        }
        let known: Vec<u32> = self.listed.iter().map(|one| one.oid).collect();
        self.queues.retain(|oid, _| known.contains(oid));
        self.to_search.retain(|oid| known.contains(oid));
        found
    }
}
