//! The catalog's version, read before anything is touched: go on, upgrade the catalog, or become the program of that
//! version. What comes before it, the wait, is in `waiting`.
//!
//! A catalog is only ever run by code of its own version. What can go wrong: there is no such program, it is another
//! version's, or it speaks another handshake. Then the process leaves, its row is disabled with the reason, and nothing
//! is tried again before somebody has mended it.

use crate::event_loop::Scheduler;
use crate::session::catalog::Installed;
use crate::session::session_state::SessionEvent;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shared::db::link::Link;
use shared::db::migrate::{self, Upgraded};
use shared::db::trouble::Trouble;
use shared::process::exit_code::ExitCode;
use shared::process::reexec::{self, ASK, HANDSHAKE};
use shared::process::stopping::StopEvent;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(2);

impl Scheduler {
    /// The catalog is of another version than this code.
    pub(crate) fn other_version(&mut self, found: &Installed) {
        let version = found.version.as_str();
        if self.base.handed_down || self.session.state.held_before {
            // Changed under our hands: the next process decides afresh.
            shared::info!("the catalog has another version now", queue = self.base.label, version = version);
            self.stop.parting = Some(ExitCode::Asked);
            self.stop(StopEvent::Cancel { now: Instant::now() });
            return;
        }
        if self.base.order.upgrade && migrate::path(version).is_some() {
            return self.upgrade_catalog(found);
        }
        let why = match program_of(&self.base.order.versions, version) {
            Ok(program) => self.become_version(&program, version),
            Err(why) => why,
        };
        self.base.notes().set_reason(&format!("no code for version {version} of the catalog: {why}"));
        self.stop.leave = Some(ExitCode::NoCode);
    }

    /// The row says that it may: in a session of its own, as the launcher's login if the catalog is not our user's.
    fn upgrade_catalog(&mut self, found: &Installed) {
        shared::info!("upgrading the catalog", queue = self.base.label, from = found.version, to = shared::VERSION);
        let login = self.base.order.installer.as_ref().filter(|_| !found.ours).unwrap_or(&self.base.order.target);
        self.installer.upgrading = true;
        self.links.installer =
            Some(Link::dial(login, &self.base.application_name(), Some(&self.base.start.region), false));
    }

    pub(crate) fn upgraded(&mut self, upgraded: &Upgraded) {
        self.installer.upgrading = false;
        if let Upgraded::From(version) = upgraded {
            shared::info!("catalog upgraded", queue = self.base.label, from = version, to = shared::VERSION);
        }
        self.prepare();
    }

    /// The session begins anew, and with it the next try.
    pub(crate) fn not_upgraded(&mut self, trouble: Trouble) {
        self.links.queue = None;
        let text = format!("the catalog cannot be upgraded: {trouble}");
        self.session_event(SessionEvent::Lost { now: Instant::now(), trouble: Trouble { text, ..trouble } });
    }

    /// Comes back only if it cannot be done, with the reason.
    fn become_version(&mut self, program: &Path, version: &str) -> String {
        shared::info!("scheduler becomes another version", queue = self.base.label, version = version);
        // Their seats in the budget of connections stand under our process id, which stays.
        (self.links.queue, self.links.probe, self.links.repair, self.links.installer) = (None, None, None, None);
        self.release_reserved();
        let error = reexec::hand_down(program, &self.base.start, &self.base.order);
        format!("{} cannot be run: {error}", program.display())
    }
}

/// The program of a version, once it has said that it is.
fn program_of(folder: &Path, version: &str) -> Result<PathBuf, String> {
    if !reexec::is_version(version) {
        return Err("that is no version".to_owned());
    }
    let program = folder.join(version).join("scheduler");
    if !program.is_file() {
        return Err(format!("there is no {}", program.display()));
    }
    let said = introduction(&program).map_err(|why| format!("{}: {why}", program.display()))?;
    match reexec::introduced(&said) {
        Some((own, HANDSHAKE)) if own == version => Ok(program),
        Some((own, HANDSHAKE)) => Err(format!("{} is of version {own}", program.display())),
        Some((_, handshake)) => {
            Err(format!("{} speaks handshake {handshake}, this launcher {HANDSHAKE}", program.display()))
        }
        None => Err(format!("{} does not say who it is", program.display())),
    }
}

/// Nothing is served yet, so this may wait for a moment.
fn introduction(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg(ASK).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let until = Instant::now() + INTRODUCTION;
    let mut said = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        let mut bytes = [0; 256];
        while said.len() < 4096 {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::ZERO);
            let ready = poll(&mut fds, wait).is_ok_and(|ready| ready > 0);
            if !ready && Instant::now() >= until {
                break;
            }
            match ready.then(|| pipe.read(&mut bytes)) {
                Some(Ok(0) | Err(_)) => break,
                Some(Ok(count)) => said.extend(bytes.iter().take(count)),
                None => {}
            }
        }
    }
    // It has said its word, or never will.
    let _ = child.kill();
    let _ = child.wait();
    Ok(String::from_utf8_lossy(&said).into_owned())
}
