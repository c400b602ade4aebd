//! The catalog's version, read before anything is touched: go on, upgrade the catalog, or become the program of that
//! version. The wait before it is in `start_gate`.
//!
//! A catalog is only ever run by code of its own version. What can go wrong: there is no such program, it is another
//! version's, or it speaks another handshake. Then the process leaves, its queue is disabled with the reason, and nothing
//! is tried again before somebody has repaired it.

use super::catalog::Installed;
use crate::base::Base;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shared::db::migrate;
use shared::process::reexec::{self, ASK, HANDSHAKE};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(2);

/// What is done about a catalog of another version.
#[derive(Debug)]
pub enum OtherVersion {
    /// It was changed under our hands: the next process decides afresh.
    BeginAnew,
    /// The config says that it may be upgraded.
    Upgrade,
    /// The program of that version takes this process over.
    Become(PathBuf),
    /// There is no such program, or it cannot be used.
    Leave { why: String },
}

/// `held_before`: this process has served the queue.
pub fn decide(found: &Installed, base: &Base, held_before: bool) -> OtherVersion {
    let version = found.version.as_str();
    if base.reexecuted || held_before {
        shared::info!(
            "catalog has another version now; restarting the scheduler",
            queue = base.label,
            version = version
        );
        return OtherVersion::BeginAnew;
    }
    if base.order.upgrade && migrate::path(version).is_some() {
        return OtherVersion::Upgrade;
    }
    match program_of(&base.order.versions, version) {
        Ok(program) => OtherVersion::Become(program),
        Err(why) => OtherVersion::Leave { why },
    }
}

/// Returns only if it cannot be done, with the reason. The process has no session any more: their permits in the budget of
/// connections are under its process id, which stays.
pub fn become_version(program: &Path, base: &Base) -> String {
    let error = reexec::exec_program(program, &base.start, &base.order);
    format!("cannot execute {}: {error}", program.display())
}

/// The program of a version, once it has said that it is.
fn program_of(folder: &Path, version: &str) -> Result<PathBuf, String> {
    if !reexec::is_version(version) {
        return Err("it is not a valid version".to_owned());
    }
    let program = folder.join(version).join("scheduler");
    if !program.is_file() {
        return Err(format!("{} does not exist", program.display()));
    }
    let said = introduction(&program).map_err(|why| format!("{}: {why}", program.display()))?;
    match reexec::introduced(&said) {
        Some((own, HANDSHAKE)) if own == version => Ok(program),
        Some((own, HANDSHAKE)) => Err(format!("{} has version {own}", program.display())),
        Some((_, handshake)) => {
            Err(format!("{} has handshake number {handshake}, this launcher {HANDSHAKE}", program.display()))
        }
        None => Err(format!("{} does not print its version", program.display())),
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
