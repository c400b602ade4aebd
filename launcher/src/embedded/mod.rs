//! A private PostgreSQL for `launcher --embedded DIR`: made if it is missing, started or adopted,
//! watched, and stopped last.
//!
//! The launcher calls `start` once, before its loop; `check` from its loop, which never waits;
//! and at the end `stop`, then `stopped` until that is true. Dropping an `Embedded` does nothing
//! to the server: it outlives a launcher that is killed, and the next `start` adopts it.
//!
//! Modules: `own_server` (as the event loop sees it), `folder` (DIR and its lock), `programs` (which PostgreSQL),
//! `system_user` (as whom), `initdb` (the cluster), `server` (the process), `server_log`, `startup` (until it is
//! ready), `supervision` (when to restart).
//!
//! What can go wrong: every failure on the way to a ready server is an `EmbeddedError` that says
//! what to do; later ones are a `ServerEvent` and a back-off.

mod error;
mod folder;
mod initdb;
pub mod own_server;
mod programs;
mod server;
mod server_log;
mod startup;
mod supervision;
mod system_user;
#[cfg(test)]
mod tests;

use crate::limits::{INITDB_TIMEOUT, SERVER_START_TIMEOUT};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

pub use error::EmbeddedError;
use folder::{Data, DataFolder, PORT};
use initdb::SUPERUSER;
use programs::{ProgramSearch, Programs};
use server::PostgresServer;
use startup::{StartLimit, ended, launch, start_server};
use supervision::{Condition, Effect, ServerState};
use system_user::SystemUser;

/// What `check` saw; the caller logs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    Died { pid: Pid, status: String },
    Restarted { pid: Pid },
    StartFailed { why: String },
}

/// How to stop the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Sessions are ended, everything is written.
    Fast,
    /// At once; the next start recovers.
    Immediate,
}

/// A private server and all that is needed to start it again.
#[derive(Debug)]
pub struct Embedded {
    folder: DataFolder,
    programs: Programs,
    user: SystemUser,
    server: Option<PostgresServer>,
    phase: ServerState,
    /// Held as long as this launcher supervises the server.
    _lock: File,
}

impl Embedded {
    /// Makes what is missing and returns when the server accepts connections.
    #[cfg(test)]
    pub fn start(dir: &Path) -> Result<Embedded, EmbeddedError> {
        Embedded::start_unless(dir, &mut || false)
    }

    /// As `start`; asks `called_off` all the while, and a yes ends it: an unfinished cluster is
    /// removed, a server that is starting is asked to stop.
    pub fn start_unless(dir: &Path, called_off: &mut dyn FnMut() -> bool) -> Result<Embedded, EmbeddedError> {
        Embedded::start_in(dir, &ProgramSearch::of_this_process(), called_off)
    }

    fn start_in(
        dir: &Path,
        environment: &ProgramSearch,
        called_off: &mut dyn FnMut() -> bool,
    ) -> Result<Embedded, EmbeddedError> {
        let folder = DataFolder::resolve(dir)?;
        let user = SystemUser::choose(folder.path(), folder.owner()?)?;
        let needed = match folder.inspect_data()? {
            Data::Missing => None,
            Data::Made { major } => Some(major),
        };
        let programs = Programs::find(environment, needed)?;
        user.try_reach(folder.parent(), &programs.postgres)?;
        folder.prepare(&user)?;
        let lock = folder.lock(&user)?;
        // Once more, now that nobody else can be making it.
        if folder.inspect_data()? == Data::Missing {
            let mut limit = StartLimit::new(INITDB_TIMEOUT, called_off);
            initdb::make_cluster(&folder, &programs, &user, &mut limit)?;
        }
        let mut limit = StartLimit::new(SERVER_START_TIMEOUT, called_off);
        let server = start_server(&folder, &programs, &user, &mut limit)?;
        Ok(Embedded {
            folder,
            programs,
            user,
            server: Some(server),
            phase: ServerState::Ready { since: Instant::now(), restarts: 0 },
            _lock: lock,
        })
    }

    /// Looks after the server, without waiting: one event at most per call.
    pub fn check(&mut self, now: Instant) -> Option<ServerEvent> {
        let step = self.phase.seen(self.observe(), now);
        self.phase = step.next;
        match step.effect {
            Effect::Nothing => None,
            Effect::Launch => match launch(&self.folder, &self.programs, &self.user) {
                Ok(server) => {
                    self.server = Some(server);
                    self.phase = self.phase.launched(now);
                    None
                }
                Err(error) => {
                    self.phase = self.phase.launch_failed(now);
                    Some(ServerEvent::StartFailed { why: error.in_full() })
                }
            },
            Effect::ReportDied => self
                .server
                .take()
                .map(|server| ServerEvent::Died { pid: server.pid(), status: server.status().to_owned() }),
            Effect::ReportStartFailed => {
                self.server.take().map(|server| ServerEvent::StartFailed { why: ended(&server).in_full() })
            }
            Effect::ReportLate => self.server.as_ref().map(|server| ServerEvent::StartFailed {
                why: format!(
                    "pid {} is not ready after {} s; still waiting: {}",
                    server.pid(),
                    SERVER_START_TIMEOUT.as_secs(),
                    server.strange_address(&self.folder).unwrap_or_else(|| server.log().tail())
                ),
            }),
            Effect::ReportRestarted => self.server.as_ref().map(|server| ServerEvent::Restarted { pid: server.pid() }),
        }
    }

    /// How long the caller may wait until the next `check`, if no signal comes earlier.
    pub fn check_again_in(&self, now: Instant) -> Duration {
        self.phase.observe_again_in(now)
    }

    /// Asks the server to stop, and never starts it again. A second call may ask more strongly.
    pub fn stop(&mut self, how: StopMode) {
        let signal = match how {
            StopMode::Fast => Signal::SIGINT,
            StopMode::Immediate => Signal::SIGQUIT,
        };
        if let Some(server) = &mut self.server {
            server.signal(&self.folder, signal);
        }
        self.phase = ServerState::Stopping;
    }

    /// Has the server ended after `stop`? Does not wait.
    pub fn stopped(&mut self) -> bool {
        let step = self.phase.seen(self.observe(), Instant::now());
        match step.next {
            ServerState::Stopped => {
                self.phase = ServerState::Stopped;
                true
            }
            // Not asked to stop: what was seen belongs to `check`.
            ServerState::Starting { .. }
            | ServerState::Late { .. }
            | ServerState::Ready { .. }
            | ServerState::Pausing { .. }
            | ServerState::Stopping => false,
        }
    }

    /// How to connect, as a connection string.
    pub fn conninfo(&self) -> String {
        conninfo_at(self.folder.text())
    }

    /// The server's pid; `None` while it is down.
    pub fn pid(&self) -> Option<Pid> {
        self.server.as_ref().map(PostgresServer::pid)
    }

    /// Was the server found alive instead of started?
    pub fn adopted(&self) -> bool {
        self.server.as_ref().is_some_and(PostgresServer::is_adopted)
    }

    /// The system user who runs the server.
    pub fn user(&self) -> &str {
        &self.user.name
    }

    /// The server's major version.
    pub fn major(&self) -> u32 {
        self.programs.major
    }

    fn observe(&mut self) -> Condition {
        match &mut self.server {
            Some(server) => server.observe(&self.folder),
            None => Condition::Gone,
        }
    }
}

/// How to connect to the server of a folder, no matter which process has started it.
pub fn conninfo_of(dir: &Path) -> String {
    let folder = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    conninfo_at(&folder.to_string_lossy())
}

fn conninfo_at(folder: &str) -> String {
    format!("host={} port={PORT} user={SUPERUSER} dbname=postgres", quoted(folder))
}

/// A value of a connection string, quoted where it must be.
fn quoted(value: &str) -> String {
    if !value.contains([' ', '\'', '\\']) {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{escaped}'")
}
