//! Provisioning the cluster: `initdb` into `DIR/data.new`, renamed to `DIR/data` when it is whole.
//!
//! A kill at any moment leaves either no `data` or a complete one; what lies in `data.new` is
//! thrown away by the next start. An initdb that outlived its launcher still has the log open,
//! and with it a lock: the next start waits for that instead of deleting under its feet.
//!
//! What can go wrong: initdb fails (the error carries its last lines), or the start is called
//! off; in both cases `data.new` is removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::error::EmbeddedError;
use super::folder::{DataFolder, system};
use super::programs::{Programs, clean_environment};
use super::server_log::ServerLog;
use super::startup::StartLimit;
use super::system_user::SystemUser;

/// The superuser of every embedded server.
pub const SUPERUSER: &str = "postgres";
/// Bytewise order, and letters beyond ASCII are letters.
const LOCALE: &str = "C.UTF-8";
/// For systems that do not know the former.
const LOCALE_EVERYWHERE: &str = "C";

/// Makes `DIR/data`. Called only when there is none, or an empty one.
pub fn make_cluster(
    folder: &DataFolder,
    programs: &Programs,
    user: &SystemUser,
    limit: &mut StartLimit<'_>,
) -> Result<(), EmbeddedError> {
    let log = ServerLog::join(folder, user)?;
    let guard = wait_for_predecessor(log.writer()?, limit)?;
    remove_unfinished(folder)?;
    let mut made = run(folder, programs, user, LOCALE, &guard, limit);
    let failed = made.as_ref().is_ok_and(|status| !status.success());
    if failed && log.tail().contains("invalid locale name") {
        made = run(folder, programs, user, LOCALE_EVERYWHERE, &guard, limit);
    }
    match made {
        Ok(status) if status.success() => {
            fs::rename(folder.unfinished_data(), folder.data()).map_err(system("cannot rename", &folder.data()))?;
            File::open(folder.path()).and_then(|dir| dir.sync_all()).map_err(system("cannot sync", folder.path()))?;
            Ok(())
        }
        Ok(status) => {
            remove_unfinished(folder)?;
            Err(EmbeddedError::Initdb {
                program: programs.initdb.clone(),
                status: status.to_string(),
                log: log.path().to_owned(),
                tail: log.tail(),
            })
        }
        Err(error) => {
            remove_unfinished(folder)?;
            Err(error)
        }
    }
}

fn remove_unfinished(folder: &DataFolder) -> Result<(), EmbeddedError> {
    let path = folder.unfinished_data();
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(system("cannot remove the unfinished", &path)(error).into())
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn wait_for_predecessor(mut file: File, limit: &mut StartLimit<'_>) -> Result<Flock<File>, EmbeddedError> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(guard) => return Ok(guard),
            Err((same, Errno::EWOULDBLOCK)) => file = same,
            Err((_, errno)) => return Err(EmbeddedError::InitdbLock(errno.into())),
        }
        if limit.is_over(Instant::now()) {
            return Err(EmbeddedError::InitdbLate);
        }
        limit.pause()?;
    }
}

fn run(
    folder: &DataFolder,
    programs: &Programs,
    user: &SystemUser,
    locale: &str,
    guard: &Flock<File>,
    limit: &mut StartLimit<'_>,
) -> Result<ExitStatus, EmbeddedError> {
    // The locked descriptor goes to initdb and to all it starts: the lock ends with the last.
    let duplicate = || guard.try_clone().map_err(system("cannot duplicate the descriptor of", &folder.log()));
    let mut command = Command::new(&programs.initdb);
    command
        .arg("--pgdata")
        .arg(folder.unfinished_data())
        .args(["--username", SUPERUSER, "--encoding", "UTF8"])
        .args(["--locale", locale, "--no-instructions"])
        .args(["--auth-local", "trust", "--auth-host", "reject"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(duplicate()?)
        .stderr(duplicate()?)
        .process_group(0);
    clean_environment(&mut command);
    user.assume(&mut command);
    let spawned = command.spawn();
    let mut child = spawned.map_err(|source| EmbeddedError::Spawn { program: programs.initdb.clone(), source })?;
    let ended = wait(&mut child, limit);
    if ended.is_err() {
        end_group(&mut child);
    }
    ended
}

fn wait(child: &mut Child, limit: &mut StartLimit<'_>) -> Result<ExitStatus, EmbeddedError> {
    loop {
        if let Some(status) = child.try_wait().map_err(EmbeddedError::InitdbWait)? {
            return Ok(status);
        }
        if limit.is_over(Instant::now()) {
            return Err(EmbeddedError::InitdbLate);
        }
        limit.pause()?;
    }
}

/// Kills initdb and the bootstrap server it may have started, and reaps it.
fn end_group(child: &mut Child) {
    if let Ok(raw) = i32::try_from(child.id()) {
        // It may have ended by itself.
        let _gone = killpg(Pid::from_raw(raw), Signal::SIGKILL);
        let _status = child.wait();
    }
}
