//! A queue to serve: one that the config names, or one that "*" has found, with its login resolved. `order` makes of it
//! the parameters of a scheduler.

use crate::queue::found_queue::{FoundQueue, is_news};
use shared::config::QueueConfig;
use shared::conninfo::Target;
use shared::conninfo::untrusted::Entries;
use shared::process::order::{SchedulerOrder, WaitFor};
use shared::process::reexec::HANDSHAKE;
use std::path::PathBuf;
use std::time::Duration;

const CONFIG_SAYS_NO: &str = "disabled: \"enabled\" is false in the config";

/// How a queue came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The config names its database.
    Named,
    /// The config says "*", and it was found.
    Found,
}

/// A queue as the config wants it, with its login resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedQueue {
    pub config: QueueConfig,
    pub target: Target,
    /// The launcher's own login in the queue's database, if that is on the launcher's server.
    pub installer: Option<Target>,
    /// Where the programs of other versions are.
    pub versions: PathBuf,
    /// What a task's `remote` may name, the same for all queues.
    pub remotes: Entries,
    /// This launcher's name.
    pub launcher: String,
    /// Why this queue, which was found, is not served.
    pub refusal: Option<String>,
    /// It was found, and its user is the owner of its table.
    pub as_owner: bool,
}

impl WantedQueue {
    pub fn same_queue(&self, other: &WantedQueue) -> bool {
        self.config.identity() == other.config.identity()
    }

    pub fn label(&self) -> String {
        format!("{} {}.{}", self.target.database, self.config.schema, self.config.table)
    }

    pub fn order(&self, origin: Origin, wait: WaitFor, installed: bool) -> SchedulerOrder {
        SchedulerOrder {
            target: self.target.clone(),
            schema: self.config.schema.clone(),
            table: self.config.table.clone(),
            settings: self.config.settings.clone(),
            defaults: self.config.defaults.clone(),
            wait,
            found: origin == Origin::Found,
            installed,
            installer: self.installer.clone().map(|login| Target { database: self.target.database.clone(), ..login }),
            versions: self.versions.clone(),
            upgrade: self.config.upgrade,
            handshake: HANDSHAKE,
            name: self.launcher.clone(),
            remotes: self.remotes.clone(),
        }
        .fitting()
    }

    pub fn close(&self) -> Duration {
        Duration::from_millis(self.config.settings.close_ms)
    }

    /// Why no scheduler may run, no matter what is on the server.
    pub fn unwanted(&self) -> Option<&str> {
        if self.config.enabled { self.refusal.as_deref() } else { Some(CONFIG_SAYS_NO) }
    }

    /// Why it is not served, unless that is logged already.
    pub fn log_refusal(&self, logged: Option<&str>) {
        if let Some(why) = self.refusal.as_deref().filter(|why| is_news(why) && logged != Some(why)) {
            shared::warning!("queue is not served", queue = self.label(), why = why);
        }
    }

    /// A login of the launcher itself into a database that this entry "*" covers.
    pub fn probe_login(&self, database: &str) -> Target {
        let login = self.installer.as_ref().unwrap_or(&self.target);
        Target { database: database.to_owned(), ..login.clone() }
    }

    pub fn same_table(&self, other: &WantedQueue) -> bool {
        (&self.config.schema, &self.config.table) == (&other.config.schema, &other.config.table)
    }

    /// What the entries "*" mean for one queue: the entry that names its table, else the first one.
    pub fn found(every: &[WantedQueue], database: &str, queue: &FoundQueue) -> Option<WantedQueue> {
        let same = |other: &&WantedQueue| other.config.schema == queue.schema && other.config.table == queue.table;
        let mut wanted = every.iter().find(same).or(every.first())?.clone();
        database.clone_into(&mut wanted.config.data);
        database.clone_into(&mut wanted.target.database);
        (wanted.config.schema, wanted.config.table) = (queue.schema.clone(), queue.table.clone());
        // The launcher's login has no business in a database of others.
        wanted.installer = None;
        wanted.refusal.clone_from(&queue.refused);
        if wanted.config.user.is_empty() {
            wanted.refusal.clone_from(&queue.refused_as_owner);
            wanted.as_owner = true;
            wanted.config.user.clone_from(&queue.owner);
            wanted.target.user.clone_from(&queue.owner);
        }
        Some(wanted)
    }
}
