//! A queue to serve: a row of the config, or a queue that a row "*" has found, with its login resolved.

use crate::queue::found_queue::{FoundQueue, is_news};
use crate::queue::queue_entry::Origin;
use shared::config::Row;
use shared::conninfo::Target;
use shared::conninfo::untrusted::Entries;
use shared::process::order::{SchedulerOrder, WaitFor};
use shared::process::reexec::HANDSHAKE;
use std::path::PathBuf;
use std::time::Duration;

const CONFIG_SAYS_NO: &str = "\"enabled\" is false in the config";

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
    /// This launcher's name.
    pub launcher: String,
    /// Why this queue, which was found, is not served.
    pub refusal: Option<String>,
    /// It was found, and its user is the owner of its table.
    pub as_owner: bool,
}

impl Wanted {
    pub fn same_queue(&self, other: &Wanted) -> bool {
        self.row.identity() == other.row.identity()
    }

    pub fn label(&self) -> String {
        format!("{} {}.{}", self.target.database, self.row.schema, self.row.table)
    }

    pub fn order(&self, origin: Origin, wait: WaitFor, installed: bool) -> SchedulerOrder {
        SchedulerOrder {
            target: self.target.clone(),
            schema: self.row.schema.clone(),
            table: self.row.table.clone(),
            settings: self.row.settings.clone(),
            defaults: self.row.defaults.clone(),
            wait,
            found: origin == Origin::Found,
            installed,
            installer: self.installer.clone().map(|login| Target { database: self.target.database.clone(), ..login }),
            versions: self.versions.clone(),
            upgrade: self.row.upgrade,
            handshake: HANDSHAKE,
            name: self.launcher.clone(),
            remotes: self.remotes.clone(),
        }
        .fitting()
    }

    pub fn close(&self) -> Duration {
        Duration::from_millis(self.row.settings.close_ms)
    }

    /// Why no scheduler is to run, whatever the server says.
    pub fn unwanted(&self) -> Option<&str> {
        if self.row.enabled { self.refusal.as_deref() } else { Some(CONFIG_SAYS_NO) }
    }

    /// In the log, once.
    pub fn tell_refusal(&self, told: Option<&str>) {
        if let Some(why) = self.refusal.as_deref().filter(|why| is_news(why) && told != Some(why)) {
            shared::warning!("queue is not served", queue = self.label(), why = why);
        }
    }

    /// A login of the launcher itself into a database that this row "*" covers.
    pub fn probe_login(&self, database: &str) -> Target {
        let login = self.installer.as_ref().unwrap_or(&self.target);
        Target { database: database.to_owned(), ..login.clone() }
    }

    pub fn same_table(&self, other: &Wanted) -> bool {
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
        wanted.refusal.clone_from(&queue.refused);
        if wanted.row.user.is_empty() {
            wanted.refusal.clone_from(&queue.refused_as_owner);
            wanted.as_owner = true;
            wanted.row.user.clone_from(&queue.owner);
            wanted.target.user.clone_from(&queue.owner);
        }
        Some(wanted)
    }
}
