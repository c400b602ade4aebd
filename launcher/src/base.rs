//! What every component may read: the region, the launcher's own login, the settings that are not of one queue.

use crate::queue::wanted::WantedQueue;
use shared::conninfo::Target;
use shared::region::Region;
use std::time::Duration;

/// What a config read again may change.
pub struct Reloaded {
    pub target: Target,
    pub queues: Vec<WantedQueue>,
    pub operators: Option<String>,
}

/// Reads the config again; mistakes have been logged.
pub type Reload = Box<dyn FnMut() -> Option<Reloaded>>;

pub struct LauncherBase {
    pub region: Region,
    /// The launcher's name, of which one launcher is active.
    pub name: String,
    /// The launcher's own login.
    pub target: Target,
    /// How often the databases are listed, and the longest wait of the loop.
    pub poll: Duration,
    /// How often a disabled queue and the task tables of a database are looked at again.
    pub probe: Duration,
    /// The role whose members may send messages to every database.
    pub operators: Option<String>,
    pub reload: Reload,
}
