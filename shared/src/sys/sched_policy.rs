//! The scheduling policy of a thread: how it shares the processors with the others of its host.

/// For a thread with much work and no deadline. On its wake-up it waits for a processor instead of interrupting the running
/// process. A server session that ran a task then goes on with the next one that it has already received, instead of
/// changing places with its worker after each. A policy that was chosen for this process from outside stays.
pub fn set_batch() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: both ask about the calling thread alone, and the parameter outlives the call. Refused: nothing has changed.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_changes_its_policy() {
        let policy = || {
            // SAFETY: asks about the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        let before = policy();
        let after = std::thread::spawn(move || {
            set_batch();
            policy()
        });
        let expected = if before == libc::SCHED_OTHER { libc::SCHED_BATCH } else { before };
        assert_eq!((after.join().unwrap(), policy()), (expected, before));
    }
}
