//! What a parent tells its child: the orders that travel in a cell, and the start of every child process.
//!
//! A child's entry is a plain function. It gets a `Start` (where its slot and its cell are) and takes everything else
//! from the cell, so that a forked and an exec'd child begin alike. Orders are JSON: readable by another version.

use crate::config::{ColumnDefaults, Settings};
use crate::conninfo::Target;
use crate::conninfo::untrusted::Entries;
use crate::db::server::HomeServer;
use crate::region::{CELL_PAYLOAD_BYTES, CellError, Region, SlotHandle, Ticket};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Launcher → scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerOrder {
    pub target: Target,
    pub schema: String,
    pub table: String,
    pub settings: Settings,
    pub defaults: ColumnDefaults,
    /// What it waits for before it looks at anything.
    #[serde(default)]
    pub wait: WaitFor,
    /// Found, not named: it serves what is installed and makes nothing.
    #[serde(default)]
    pub found: bool,
    /// There was a catalog. If it is gone, it was uninstalled, and is not made again.
    #[serde(default)]
    pub installed: bool,
    /// The launcher's own login on the same server, for what the queue's user may not do at its first start.
    #[serde(default)]
    pub installer: Option<Target>,
    /// Where the programs of other versions are.
    #[serde(default)]
    pub versions: PathBuf,
    /// A catalog of an older version is upgraded.
    #[serde(default)]
    pub upgrade: bool,
    /// What both sides must agree on, see `exec_program`.
    #[serde(default)]
    pub handshake: u64,
    /// The launcher's, by which a session that an earlier leader has left is known.
    #[serde(default)]
    pub name: String,
    #[serde(default, skip_serializing_if = "Entries::is_empty")]
    pub remotes: Entries,
}

/// Transactions that must have ended before a scheduler looks at its database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitFor {
    /// The sender's of a message: key and database of its lock. It is asked for in shared mode, so the wait is seen.
    pub message: Option<(i32, u32)>,
    /// That of whoever works on the catalog.
    pub marker: bool,
}

impl WaitFor {
    /// A later message takes the place of an earlier one.
    pub fn then(self, later: WaitFor) -> WaitFor {
        WaitFor { message: later.message.or(self.message), marker: self.marker || later.marker }
    }
}

impl SchedulerOrder {
    /// What it cannot do without comes first: a login that leaves no room for a second one goes alone.
    pub fn fitting(self) -> SchedulerOrder {
        if encode(&self).len() > CELL_PAYLOAD_BYTES { SchedulerOrder { installer: None, ..self } } else { self }
    }
}

/// Scheduler → worker. What a user can make long (input, group, remote) is read from the row instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOrder {
    pub target: Target,
    pub schema: String,
    pub table: String,
    pub task: i64,
    pub attempt: i32,
    pub output_limit: u64,
    #[serde(default, skip_serializing_if = "Entries::is_empty")]
    pub remotes: Entries,
    /// It may take several short tasks at once.
    #[serde(default)]
    pub batch: bool,
    /// The group whose tasks it will run, where its login can say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The ends that it writes need not wait for the disk.
    #[serde(default)]
    pub lazy_commit: bool,
    /// Where the scheduler's session is: the task runs there or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeServer>,
}

/// What must be known of a connection to go on with it: it travels beside its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PooledConnection {
    /// The server's process, when it began (as the server writes it), and how it is cancelled.
    pub backend: i32,
    pub began: String,
    pub key: (i32, i32),
    /// Which of the target's places it leads to, and the address of that.
    pub place: usize,
    pub address: Option<SocketAddr>,
    /// What the server has reported of its settings.
    pub parameters: Vec<(String, String)>,
}

/// Worker → scheduler, with the socket: a connection that the worker has made and will leave behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    pub slot: u32,
    pub pid: i32,
    pub connection_permit: Option<u64>,
    pub pooled: PooledConnection,
}

/// What a child begins with that is handed everything else by the fork itself.
#[derive(Debug)]
pub struct ForkStart {
    pub region: Region,
    pub slot: SlotHandle,
    /// As in `Start`.
    pub life: OwnedFd,
}

/// What a forked child begins with.
#[derive(Debug)]
pub struct Start {
    pub region: Region,
    pub slot: SlotHandle,
    pub ticket: Ticket,
    pub parent: Pid,
    /// Readable (end of file) once the parent is gone, whatever happened to the parent-death signal.
    pub life: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    Cell(#[from] CellError),
    #[error("cannot read the order in the cell: {0}")]
    Unreadable(serde_json::Error),
}

pub fn encode<T: Serialize>(order: &T) -> Vec<u8> {
    // Orders are structs of texts and numbers: there is nothing in them that JSON cannot say.
    serde_json::to_vec(order).unwrap_or_default()
}

impl Start {
    /// Takes the order out of the cell and signals the parent.
    pub fn accept<T: DeserializeOwned>(&self) -> Result<T, OrderError> {
        let mut payload = self.region.accept(self.ticket)?;
        self.signal_parent();
        let order = serde_json::from_slice(&payload).map_err(OrderError::Unreadable);
        payload.fill(0);
        order
    }

    /// Wakes it to read its cells and slot statuses. Never at a stranger: the parent may have died and its pid been reused.
    pub fn signal_parent(&self) {
        signal_parent(self.parent);
    }
}

/// The same for a part of the process that has not the whole start.
pub fn signal_parent(parent: Pid) {
    if getppid() == parent {
        crate::sys::signal::send(parent, Signal::SIGUSR2);
    }
}

#[cfg(test)]
mod tests {
    use super::{SchedulerOrder, encode};
    use crate::config::{ColumnDefaults, Settings};
    use crate::conninfo::Conninfo;
    use crate::region::CELL_PAYLOAD_BYTES;

    #[test]
    fn a_login_with_many_hosts_and_long_paths_fits_a_cell() {
        let (name, path) = ("n".repeat(63), format!("/{}", "p".repeat(127)));
        let hosts = vec![format!("{name}.example"); 8].join(",");
        let text = format!(
            "host={hosts} user={name} dbname={name} password={name} sslmode=verify-full sslrootcert={path} \
             sslcert={path} sslkey={path} options='-c search_path={name}'"
        );
        let target = Conninfo::parse(&text).unwrap().resolve(&|_| None).unwrap();
        let (settings, defaults) = (Settings::default(), ColumnDefaults::default());
        let wait = super::WaitFor { message: Some((i32::MAX, u32::MAX)), marker: true };
        let installer = Some(target.clone());
        let order = SchedulerOrder {
            target,
            schema: name.clone(),
            table: name,
            settings,
            defaults,
            wait,
            found: true,
            installed: true,
            installer,
            versions: path.into(),
            upgrade: true,
            handshake: crate::process::reexec::HANDSHAKE,
            name: "n".repeat(63),
            remotes: Default::default(),
        };
        let length = encode(&order.fitting()).len();
        assert!(length <= CELL_PAYLOAD_BYTES, "{length} bytes");
    }
}
