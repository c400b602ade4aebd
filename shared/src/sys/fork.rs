//! Starting a child by fork without exec: cheap (a connected worker costs about 100 KB), and safe only under
//! conditions that this room checks itself.
//!
//! `start` refuses in a process with more than one thread: another thread could hold a lock (the allocator's, for
//! one) that nobody would ever release in the child. That check is what makes a safe function of it. The child never
//! returns into its parent's frames: it runs `entry` inside `catch_unwind` and leaves by `_exit`, so that no
//! destructor of the parent runs in it. A database client dropped in the child would end the parent's connection.
//!
//! In the child, in this order: parent-death signal and parent check, own process group, descriptors closed but for what
//! is kept, random numbers. Signals stay blocked until `signal::SignalPipe::open` or
//! `signal::open_to_defaults` has been called by the entry: a signal that arrives early is kept, not lost.

use super::signal;
use super::wait::Child;
use crate::process::exit_code::ExitCode;
use nix::unistd::{ForkResult, Pid, getpid, getppid, setpgid};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error("refusing to fork a process with {0} threads")]
    Threads(usize),
    #[error("cannot count the threads of this process: {0}")]
    Uncounted(std::io::Error),
    #[error("cannot fork: {0}")]
    Fork(nix::Error),
    #[error("cannot watch child {pid}: {source}")]
    Watch { pid: Pid, source: std::io::Error },
}

/// Forks. In the child `entry(argument)` runs with only the descriptors 0, 1, 2 and `keep` open, and its answer is
/// the exit status. In the parent the child comes back as a `Child`, which owns a pidfd.
pub fn start<A>(entry: fn(A) -> ExitCode, argument: A, keep: &[RawFd]) -> Result<Child, ForkError> {
    let threads = thread_count().map_err(ForkError::Uncounted)?;
    if threads != 1 {
        return Err(ForkError::Threads(threads));
    }
    let kept = keep.to_vec();
    let parent = getpid();
    let blocked = signal::block_all();
    // SAFETY: this process has exactly one thread (checked above), so no lock is held by anybody else, and the child
    // may go on allocating and calling libc like any process.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => {
            std::mem::forget(blocked);
            let code = catch_unwind(AssertUnwindSafe(|| {
                settle_in(parent, kept);
                entry(argument)
            }))
            .unwrap_or(ExitCode::Panic);
            leave(code)
        }
        Ok(ForkResult::Parent { child }) => {
            // The child has its own copy of the argument, and must not lose what it refers to by our dropping ours:
            // arguments are plain data or reference-counted, so dropping them here touches only this process.
            drop(blocked);
            Child::adopt(child).map_err(|source| ForkError::Watch { pid: child, source })
        }
        Err(error) => Err(ForkError::Fork(error)),
    }
}

/// Ends this process at once: no destructors, no exit handlers.
pub fn leave(code: ExitCode) -> ! {
    // SAFETY: _exit is async-signal-safe and takes any status.
    unsafe { libc::_exit(code.status()) }
}

/// What every child does before anything else.
fn settle_in(parent: Pid, mut kept: Vec<RawFd>) {
    if nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).is_err() || getppid() != parent {
        // The parent died between the fork and the request: nobody would ever tell us.
        leave(ExitCode::Asked);
    }
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    // The parent's signal actions own theirs, and close them when they are forgotten.
    kept.extend(signal::inherit());
    kept.sort_unstable();
    close_all_but(&kept);
    // postgres-protocol draws SCRAM nonces from this generator; its state was copied by the fork, and siblings would
    // share their nonces.
    let _ = rand::rng().reseed();
}

/// Closes every descriptor above 2 that is not in `kept` (sorted).
pub(super) fn close_all_but(kept: &[RawFd]) {
    let mut first: u32 = 3;
    for fd in kept.iter().filter(|fd| **fd >= 3) {
        let fd = *fd as u32;
        if fd > first {
            close_range(first, fd - 1);
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: called only in a fresh child or a fresh program, before any object that owns a descriptor of its own exists
    // in it; a child's copies of its parent's objects are never used or dropped.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
}

/// The number of threads of this process, as the kernel counts them: each has a folder, and each folder a link.
pub fn thread_count() -> std::io::Result<usize> {
    let links = std::fs::metadata("/proc/self/task")?.nlink() as usize;
    links.checked_sub(2).ok_or_else(|| std::io::Error::other("/proc/self/task does not count its links"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_never_forked() {
        // The test runner itself has several threads.
        let refused = start(|(): ()| ExitCode::Asked, (), &[]);
        assert!(matches!(refused, Err(ForkError::Threads(count)) if count > 1));
    }
}
