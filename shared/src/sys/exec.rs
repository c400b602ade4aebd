//! Becoming another program: exec with exactly the descriptors that are handed over, and the other side of it.
//!
//! Process id, parent, process group, slot and the parent-death signal stay (the program is not setuid). Signals are
//! blocked over the exec, so that one that comes in between waits for the new program's handler instead of killing it:
//! handlers do not survive an exec, the mask and what is pending do.

use super::{fork, signal};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::execv;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Becomes `program`, with 0, 1, 2 and `keep` open. Comes back only with the reason why not; then all is as before.
pub fn become_program(program: &Path, arguments: &[String], keep: &[BorrowedFd<'_>]) -> io::Error {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::other("a NUL in the arguments"));
    let path = match text(program.as_os_str().as_bytes()) {
        Ok(path) => path,
        Err(error) => return error,
    };
    let arguments: Vec<CString> = match arguments.iter().map(|argument| text(argument.as_bytes())).collect() {
        Ok(arguments) => arguments,
        Err(error) => return error,
    };
    let flag = |flag| {
        for fd in keep {
            let _ = fcntl(fd, FcntlArg::F_SETFD(flag));
        }
    };
    flag(FdFlag::empty());
    let blocked = signal::block_all();
    let error = match execv(&path, &arguments) {
        Ok(never) => match never {},
        Err(error) => io::Error::from(error),
    };
    drop(blocked);
    flag(FdFlag::FD_CLOEXEC);
    error
}

/// In the new program, first thing in `main` and once: takes the named descriptors over, and closes all others above 2.
pub fn inherited(numbers: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) || fork::thread_count()? != 1 {
        return Err(io::Error::other("descriptors are taken over once, at the very start"));
    }
    let mut kept = numbers.to_vec();
    kept.sort_unstable();
    kept.dedup();
    if kept.len() != numbers.len() || kept.first().is_none_or(|least| *least < 3) {
        return Err(io::Error::other("the descriptors handed over are not what they should be"));
    }
    fork::close_all_but(&kept);
    let take = |number: &RawFd| {
        // SAFETY: this runs once, before this program has opened anything, so nobody else owns the descriptor; that it is
        // open at all is checked by the next call before anything is done with it.
        let fd = unsafe { OwnedFd::from_raw_fd(*number) };
        match fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
            Ok(_) => Ok(fd),
            Err(error) => {
                let number = fd.as_raw_fd();
                // Not open: there is nothing to close, and closing would be taken for a bug.
                std::mem::forget(fd);
                Err(io::Error::other(format!("descriptor {number} was not handed over: {error}")))
            }
        }
    };
    numbers.iter().map(take).collect()
}
