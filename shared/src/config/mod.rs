//! The config file: which queues to serve, as whom, and how.
//!
//! The launcher reads it at start and at every SIGHUP, `launcher check` reads it to judge it. The file is plain
//! JSON: a bare array of queues as in `pg_task.json`, or an object with general keys and the queues under `json`.
//! `json.rs` reads the text into a tree, `read.rs` walks it by the lists of `key.rs` and `settings.rs`, `value.rs` reads single
//! values, `file.rs` opens the file and finds the socket's place. What can go wrong: everything a person can mistype. All
//! mistakes are told at once, each with its place (`line 3 column 5` for syntax, `json[2].sleeep` otherwise; queues of
//! a bare array are called `json[..]` too), and no message ever shows a password.

pub mod duration;
mod file;
mod json;
mod key;
pub mod nearest;
mod read;
mod settings;
mod value;

pub use key::fixed_keys;
pub use settings::{ColumnDefaults, Settings};

use crate::conninfo::untrusted::Entries;
use crate::conninfo::{Conninfo, ConninfoError, Target};
use std::fmt;
use std::path::{Path, PathBuf};

/// Looks up an environment variable; tests bring their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where the launcher itself sits, unless `connect` or PGDATABASE says otherwise.
const MAINTENANCE_DATABASE: &str = "postgres";
/// Every database; one that is really called so cannot be served.
const EVERY: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The launcher's own login, and the base of every queue's.
    pub connect: Conninfo,
    /// Slots for launcher, schedulers and workers together. 0 is legal: nothing is to run.
    pub max_workers: u32,
    /// Sessions on servers at once, of all processes together, if the file says so.
    pub connections: Option<u32>,
    pub poll_ms: u64,
    /// The path of the control socket.
    pub control: PathBuf,
    /// One launcher per server and name is active.
    pub name: String,
    /// The role whose members may send messages to every database.
    pub operators: Option<String>,
    /// How often found databases are looked at for a catalog and its queues.
    pub probe_ms: u64,
    /// The folder with the programs of other versions, if the file says so.
    pub versions: Option<PathBuf>,
    /// Names and conninfos that a task's `remote` may name.
    pub remotes: Entries,
    pub queues: Vec<QueueConfig>,
    /// What is legal but worth a line in the log.
    pub warnings: Vec<String>,
}

/// One queue: a task table in a database, and the user it is served as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Where it stands in the file, `json[2]`.
    pub place: String,
    pub data: String,
    pub user: String,
    pub schema: String,
    pub table: String,
    /// Laid over the general `connect`.
    pub connect: Option<Conninfo>,
    pub enabled: bool,
    /// A catalog of an older version is upgraded by the scheduler that finds it.
    pub upgrade: bool,
    pub settings: Settings,
    pub defaults: ColumnDefaults,
}

/// Something that the file's author has to repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub place: String,
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.text)
    }
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path, environment: Environment) -> Result<Config, Vec<Mistake>> {
        file::read(path, environment)
    }

    /// Reads a text that stands in `folder`.
    pub fn parse(text: &str, folder: &Path, environment: Environment) -> Result<Config, Vec<Mistake>> {
        read::read(text, folder, environment)
    }

    /// What is served without any file: the table public.task in database postgres, as PGUSER, else as
    /// user postgres.
    pub fn without_file(environment: Environment) -> Result<Config, Vec<Mistake>> {
        read::without_file(environment)
    }

    /// The budget of connections: unless told, one for each process and a little for what comes and goes.
    pub fn connections(&self) -> u32 {
        let named = self.queues.iter().filter(|queue| !queue.is_every()).count();
        // Found databases can be as many as there are slots.
        let found = if named < self.queues.len() { self.max_workers } else { 0 };
        let queues = u32::try_from(named).unwrap_or(u32::MAX).saturating_add(found);
        self.connections.unwrap_or_else(|| self.max_workers.saturating_add(queues.saturating_mul(2)).saturating_add(2))
    }

    /// The launcher's own login.
    pub fn target(&self, environment: Environment) -> Result<Target, ConninfoError> {
        self.connect.resolve_or(environment, Some(MAINTENANCE_DATABASE))
    }

    /// The launcher's own login in another database of its server.
    pub fn target_in(&self, database: &str, environment: Environment) -> Result<Target, ConninfoError> {
        self.connect.with("dbname", database).resolve(environment)
    }

    /// Who may do in a queue's database what the queue's user may not: the launcher's login, where it is another one on the
    /// same server.
    pub fn installer(&self, queue: &QueueConfig, target: &Target, environment: Environment) -> Option<Target> {
        let own = self.target_in(&queue.data, environment).ok()?;
        (own.places == target.places && own.user != target.user).then_some(own)
    }

    /// The login of a queue's scheduler and workers. Where the queue means every database, the launcher's own, in no
    /// database yet.
    pub fn queue_target(&self, queue: &QueueConfig, environment: Environment) -> Result<Target, ConninfoError> {
        if queue.is_every() {
            let own = queue.connect.clone().unwrap_or_default();
            let login = own.over(&self.connect);
            let login = if queue.user.is_empty() { login } else { login.with("user", &queue.user) };
            return login.resolve_or(environment, Some(MAINTENANCE_DATABASE));
        }
        queue.conninfo(&self.connect).resolve(environment)
    }

    /// Whether any `connect` or remote carries a secret.
    pub fn has_password(&self) -> bool {
        let own = |queue: &QueueConfig| queue.connect.as_ref().is_some_and(Conninfo::has_password);
        self.connect.has_password() || self.remotes.has_password() || self.queues.iter().any(own)
    }
}

impl QueueConfig {
    /// The queue's `connect` over the general one, as the queue's user in the queue's database.
    pub fn conninfo(&self, general: &Conninfo) -> Conninfo {
        let own = self.connect.clone().unwrap_or_default();
        own.over(general).with("user", &self.user).with("dbname", &self.data)
    }

    /// Every database of the server, as far as it has a catalog.
    pub fn is_every(&self) -> bool {
        self.data == EVERY
    }

    /// Two queues with one identity are one queue.
    pub fn identity(&self) -> (&str, &str, &str) {
        (&self.data, &self.schema, &self.table)
    }

    /// The same but for the place.
    fn is_same_as(&self, other: &QueueConfig) -> bool {
        QueueConfig { place: other.place.clone(), ..self.clone() } == *other
    }
}

#[cfg(test)]
mod tests;
