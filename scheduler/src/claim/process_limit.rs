//! Too few descriptors or processes: fewer workers at once, and a reason that everybody can see.
//!
//! Where descriptors are few they are counted before rows are claimed, so that no fork fails for them. A fork that fails all
//! the same lowers the number of workers to what runs just then; it rises again by one every ten seconds. Of failures
//! one a minute is logged, with the number of those before it, and `status` shows the reason meanwhile.

use crate::base::Base;
use crate::limits::{ENOUGH_FILES, ENOUGH_FILES_PER_WORKER, FORK_LOG_PAUSE, RAISE_PAUSE, SPARE_FILES};
use crate::pool::connection_pool::ConnectionPool;
use crate::turn::Turn;
use shared::process::kernel_limits;
use shared::region::{ProcessKind, SlotHandle};
use std::time::Instant;

#[derive(Debug)]
pub struct ProcessLimit {
    /// The limit of descriptors, if it is so low that they are to be counted.
    files: Option<u64>,
    /// So many workers at once, since a fork has failed.
    ceiling: Option<usize>,
    raise_at: Instant,
    failed_at: Option<Instant>,
    logged_at: Option<Instant>,
    /// Failures that were not logged.
    unlogged: u64,
    reason: Option<String>,
    changed: bool,
}

impl ProcessLimit {
    pub(super) fn new(max_workers: u32, now: Instant) -> ProcessLimit {
        let limit = kernel_limits::files();
        let files = (limit < ENOUGH_FILES + ENOUGH_FILES_PER_WORKER * u64::from(max_workers)).then_some(limit);
        let (ceiling, reason) = (None, None);
        ProcessLimit {
            files,
            ceiling,
            raise_at: now,
            failed_at: None,
            logged_at: None,
            unlogged: 0,
            reason,
            changed: false,
        }
    }

    /// A fork has failed while so many ran. True: the first one of this moment.
    fn fail(&mut self, running: usize, now: Instant) -> bool {
        self.ceiling = Some(running.max(1));
        self.raise_at = now + RAISE_PAUSE;
        self.failed_at.replace(now) != Some(now)
    }

    /// Whether this failure is logged, and how many were not since the last one.
    fn log(&mut self, now: Instant) -> Option<u64> {
        if self.logged_at.is_some_and(|at| now < at + FORK_LOG_PAUSE) {
            self.unlogged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }

    /// Some time without failures: one more may run; None: as many as before.
    fn relax(&mut self, most: usize, now: Instant) {
        if let Some(ceiling) = self.ceiling.filter(|_| now >= self.raise_at) {
            self.ceiling = Some(ceiling + 1).filter(|ceiling| *ceiling < most);
            self.raise_at = now + RAISE_PAUSE;
        }
    }

    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

impl ProcessLimit {
    /// How many more workers may start now.
    pub(super) fn room(&mut self, pool: &mut ConnectionPool, turn: &Turn<'_>) -> usize {
        let most = turn.base.start.region.slots().limit() as usize;
        self.relax(most, turn.now);
        if self.files.is_none() && self.ceiling.is_none() {
            self.set(None, turn);
            return usize::MAX;
        }
        let running = workers(turn.base);
        let by_ceiling = self.ceiling.map_or(usize::MAX, |ceiling| ceiling.saturating_sub(running));
        let Some(limit) = self.files else { return by_ceiling };
        let free = kernel_limits::open_files().map_or(0, |open| limit.saturating_sub(open));
        // A worker that is just connecting will hand its connection over.
        let all = usize::try_from(kernel_limits::fit_files().workers).unwrap_or(usize::MAX);
        let by_files =
            usize::try_from(free.saturating_sub(SPARE_FILES) / kernel_limits::WORKER_FILES).unwrap_or(usize::MAX);
        let by_files = by_files.min(all.saturating_sub(running));
        // The last ones are not spared: nothing would ever run.
        let by_files = if running == 0 && free >= kernel_limits::WORKER_FILES { by_files.max(1) } else { by_files };
        if by_files == 0 && running == 0 {
            // Idle connections may hold the descriptors that are missing.
            pool.close_idle(turn.now, usize::MAX);
            let reason = format!(
                "no worker can start: {free} of {limit} file descriptors are free, and one needs {}; raise the limit of open \
                 files (LimitNOFILE=)",
                kernel_limits::WORKER_FILES
            );
            self.set(Some(reason), turn);
        } else if self.ceiling.is_none() {
            self.set(None, turn);
        }
        by_files.min(by_ceiling)
    }

    /// A worker could not be forked. True: the first one of this moment.
    pub(super) fn worker_failed(&mut self, task: i64, error: &str, turn: &Turn<'_>) -> bool {
        let running = workers(turn.base);
        let first = self.fail(running, turn.now);
        let queue = turn.label();
        match self.log(turn.now) {
            Some(before) => shared::error!(
                "cannot start a worker; the task is planned again",
                queue = queue,
                task = task,
                error = error,
                running = running,
                not_logged = before,
            ),
            None => shared::debug!("cannot start a worker", queue = queue, task = task, error = error),
        }
        let remedy = remedy(error);
        let reason = format!("fewer tasks run at once ({running} now): cannot start a worker: {error}; {remedy}");
        self.set(Some(reason), turn);
        first
    }

    /// A worker of ours could not start what it needs beside the task.
    pub(super) fn worker_lacked(&mut self, reason: &str, turn: &Turn<'_>) {
        let running = workers(turn.base);
        self.fail(running, turn.now);
        let text = format!("fewer tasks run at once ({running} now): {reason}; {}", remedy(reason));
        if self.log(turn.now).is_some() {
            shared::error!("worker returned its task; it is planned again", queue = turn.label(), reason = text);
        }
        self.set(Some(text), turn);
    }

    fn set(&mut self, reason: Option<String>, turn: &Turn<'_>) {
        if self.reason == reason {
            return;
        }
        if self.reason.is_some() && reason.is_none() {
            shared::info!("workers start again without a limit", queue = turn.label());
        }
        self.reason = reason;
        self.changed = true;
    }

    /// The reason has changed since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Living workers of ours.
fn workers(base: &Base) -> usize {
    let slots = base.start.region.slots();
    let own = base.start.slot.index();
    let ours = |slot: SlotHandle| {
        let slot_status = slots.slot_status(slot);
        slot_status.kind() == Some(ProcessKind::Worker) && slot_status.parent() == Some(own)
    };
    slots.holders().iter().filter(|holder| !holder.reserved && ours(holder.handle)).count()
}

/// What to do about it, by what the kernel said.
fn remedy(error: &str) -> &'static str {
    if error.contains("os error 24") || error.contains("os error 23") || error.contains("FILE") {
        "raise the limit of open files (LimitNOFILE=), or lower max_workers"
    } else if is_shortage(error) {
        "raise the limit of processes (LimitNPROC=, TasksMax=) or the memory, or lower max_workers"
    } else {
        "see the log"
    }
}

/// The words of EAGAIN, ENOMEM, EMFILE and ENFILE.
pub(super) fn is_shortage(error: &str) -> bool {
    ["EAGAIN", "ENOMEM", "EMFILE", "ENFILE", "os error 11)", "os error 12)", "os error 24)", "os error 23)"]
        .iter()
        .any(|word| error.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_lowers_the_number_of_workers_and_time_raises_it_again() {
        let now = Instant::now();
        let mut limit = ProcessLimit::new(4, now);
        assert!(limit.fail(2, now) && !limit.fail(2, now));
        assert_eq!(limit.ceiling, Some(2));
        limit.relax(4, now + RAISE_PAUSE / 2);
        assert_eq!(limit.ceiling, Some(2));
        limit.relax(4, now + RAISE_PAUSE);
        assert_eq!(limit.ceiling, Some(3));
        limit.relax(4, now + RAISE_PAUSE * 2);
        assert_eq!(limit.ceiling, None);
    }

    #[test]
    fn of_a_thousand_failures_in_a_minute_one_is_logged_and_the_rest_is_counted() {
        let now = Instant::now();
        let mut limit = ProcessLimit::new(4, now);
        let logged: Vec<u64> = (0..1000).filter_map(|_| limit.log(now)).collect();
        assert_eq!(logged, [0]);
        assert_eq!(limit.log(now + FORK_LOG_PAUSE), Some(999));
    }

    #[test]
    fn nothing_at_all_still_lets_one_worker_try() {
        let now = Instant::now();
        let mut limit = ProcessLimit::new(4, now);
        let _ = limit.fail(0, now);
        assert_eq!(limit.ceiling, Some(1));
    }
}
