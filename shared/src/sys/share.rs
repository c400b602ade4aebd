//! How a thread shares the processors with the others of its host.

/// By a thread that has much to do and no hurry with any of it: when it is woken it waits for its turn, and does not interrupt
/// whoever runs. A session that is in the middle of a task then goes on with the next one that stands on the wire, instead of
/// changing places with its worker after each. Where somebody has chosen another policy for this process, that one stays.
pub fn give_way() {
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
    fn only_the_thread_that_asks_gives_way() {
        let policy = || {
            // SAFETY: asks about the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        let before = policy();
        let after = std::thread::spawn(move || {
            give_way();
            policy()
        });
        let expected = if before == libc::SCHED_OTHER { libc::SCHED_BATCH } else { before };
        assert_eq!((after.join().unwrap(), policy()), (expected, before));
    }
}
