//! Children and their ends: a pid that cannot be reused behind our back, and looking without reaping.
//!
//! A `Child` owns a pidfd that `poll` reports when the process has ended. `ended` looks at the end without reaping
//! it, so that the caller can first sweep whatever the region holds under that pid; only then does it `reap`. The
//! zombie keeps the pid from being given to another process in between.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    Exited(i32),
    Killed(Signal),
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProcessEnd::Exited(status) => write!(f, "exit status {status}"),
            ProcessEnd::Killed(signal) => write!(f, "{signal}"),
        }
    }
}

/// A child of this process that has not been reaped.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Child {
    /// Takes charge of a process that this process has just forked. If it cannot be watched it is killed and reaped.
    pub(super) fn adopt(pid: Pid) -> io::Result<Child> {
        match open_pidfd(pid) {
            Ok(pidfd) => Ok(Child { pid, pidfd }),
            Err(error) => {
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
                Err(error)
            }
        }
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The end of this child, if it has ended; the zombie stays.
    pub fn ended(&self) -> Option<ProcessEnd> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::PIDFd(self.pidfd.as_fd()), flags) {
            Ok(status) => end_of(status).map(|(_, end)| end),
            // Somebody reaped it: it is gone, and how it went is lost.
            Err(Errno::ECHILD) => Some(ProcessEnd::Exited(crate::process::exit_code::ExitCode::Temporary.status())),
            Err(_) => None,
        }
    }

    /// Lets the ended child go for good. Call after the sweep.
    pub fn reap(self) {
        let _ = waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED);
    }

    pub fn signal(&self, signal: Signal) {
        // The zombie still holds the pid, so it cannot be another process's.
        let _ = kill(self.pid, signal);
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Any ended child of this process, unreaped: also the orphans that a subreaper inherits.
pub fn any_ended() -> Option<(Pid, ProcessEnd)> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags).ok().and_then(end_of)
}

/// Reaps a child known only by its pid.
pub fn reap(pid: Pid) {
    let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
}

/// A descriptor that becomes readable when the process ends; the process need not be a child.
pub fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0u32) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn end_of(status: WaitStatus) -> Option<(Pid, ProcessEnd)> {
    match status {
        WaitStatus::Exited(pid, code) => Some((pid, ProcessEnd::Exited(code))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, ProcessEnd::Killed(signal))),
        _ => None,
    }
}
