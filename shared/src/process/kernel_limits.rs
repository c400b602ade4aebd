//! What the kernel lets this user have: file descriptors and processes. Limits are raised as far as they may be, and what
//! still does not fit is known before it fails.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;

/// Descriptors that a scheduler needs besides those of its workers.
const SCHEDULER_FILES: u64 = 17;
/// At the moment of its fork a worker costs its scheduler a pidfd, a copy of the life pipe and a copy of a connection.
pub const WORKER_FILES: u64 = 3;
/// A worker has a thread that watches the time, and one that hears signals; the kernel counts threads.
const WORKER_THREADS: u64 = 3;

/// How many workers fit, and into which limit they do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    pub limit: u64,
    pub workers: u64,
}

/// The soft limits become the hard ones, for this process and its children.
pub fn raise() {
    for resource in [Resource::RLIMIT_NOFILE, Resource::RLIMIT_NPROC] {
        if let Ok((soft, hard)) = getrlimit(resource)
            && soft < hard
            && let Err(error) = setrlimit(resource, hard, hard)
        {
            crate::warning!("cannot raise a limit", limit = format!("{resource:?}"), error = error);
        }
    }
}

/// How many descriptors a process may have open.
pub fn files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// How many this process has open; None: not even that can be looked at.
pub fn open_files() -> Option<u64> {
    // One of them is the folder itself, while it is read.
    let count = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(count.saturating_sub(1))
}

/// What fits into the limit of descriptors of one scheduler.
pub fn fit_files() -> Fit {
    let limit = files();
    Fit { limit, workers: limit.saturating_sub(SCHEDULER_FILES) / WORKER_FILES }
}

/// What fits into the limit of processes, beside what this user has already and so many schedulers. None: there is no limit.
pub fn fit_processes(schedulers: u64) -> Option<Fit> {
    // The kernel does not count root.
    let uid = nix::unistd::getuid().as_raw();
    let (limit, _) = getrlimit(Resource::RLIMIT_NPROC).ok().filter(|_| uid != 0)?;
    // No limit at all, or one that no host reaches.
    if limit > 1 << 22 {
        return None;
    }
    let left = limit.saturating_sub(threads_of(uid) + schedulers);
    Some(Fit { limit, workers: left / WORKER_THREADS })
}

fn threads_of(uid: u32) -> u64 {
    let numbered =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| numbered(&entry.file_name()));
    processes.filter_map(|process| threads(&fs::read_to_string(process.path().join("status")).ok()?, uid)).sum()
}

/// The threads of a process, from its /proc/PID/status, if it is this user's.
fn threads(status: &str, uid: u32) -> Option<u64> {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next();
    (value("Uid:")? == uid.to_string()).then(|| value("Threads:")?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_for_their_real_user() {
        let status = "Name:\tx\nUid:\t7\t0\t0\t0\nThreads:\t3\n";
        assert_eq!((threads(status, 7), threads(status, 0), threads("", 7)), (Some(3), None, None));
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_files().unwrap();
        let held: Vec<fs::File> = (0..5).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(open_files().unwrap() >= before.saturating_sub(1) && open_files().unwrap() >= held.len() as u64 + 3);
        assert!(threads_of(nix::unistd::getuid().as_raw()) >= 1);
    }
}
