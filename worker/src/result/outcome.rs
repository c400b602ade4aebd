//! PURE. What is to be written about a run, from how it ended.
//!
//! A failed infrastructure is not a failed task: where the server itself went away, or where we were told to stop,
//! the row is planned again; where the task's own SQL, a user or a limit ended it, the row gets its result.

/// Why our own watchdog cancelled the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The scheduler wants the task back.
    Interrupt,
    /// The row was stopped or deleted by its owner.
    Unwanted,
    /// The task's `timeout` is over.
    Timeout,
    /// The max_runtime of its job is over.
    Overrun,
    /// Its job was deleted.
    Deleted,
    /// The output is larger than its limit.
    Overflow,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The session survived; the SQLSTATE of the last error, if there was one.
    Ran { code: Option<Vec<u8>> },
    /// The session was lost, with this SQLSTATE as the server's last word, if it had one.
    Lost { code: Option<Vec<u8>>, server: Server },
}

impl Ending {
    pub fn code(&self) -> Option<&[u8]> {
        match self {
            Ending::Ran { code } | Ending::Lost { code, .. } => code.as_deref(),
        }
    }
}

/// What was found when the server was asked again after a lost session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Same postmaster: somebody ended this one session.
    Same,
    /// Restarted meanwhile, or not to be reached.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    Fail {
        reason: Option<&'static str>,
        text: FailText,
    },
    /// Back to PLAN: nobody's fault. The run of a job is closed with the reason instead, and followed by another.
    PlanAgain {
        reason: &'static str,
    },
    /// The row is its owner's again: nothing is written.
    Nothing,
}

/// Where the error's text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailText {
    /// What the server said about the statement.
    Collected,
    /// As collected, but a cancel of ours is told as the time-out it was.
    Timeout,
    /// The same for the max_runtime of its job.
    Overrun,
    /// The limit of the output.
    Overflow,
    /// The last word of the lost session.
    LastWord,
}

pub const QUERY_CANCELED: &[u8] = b"57014";
const ADMIN_SHUTDOWN: &[u8] = b"57P01";
pub const CRASH_SHUTDOWN: &[u8] = b"57P02";

/// Why the run of a job ended before its time.
pub const INTERRUPTED: &str = "interrupted";
pub const CRASHED: &str = "crashed";

pub fn verdict(ending: &Ending, cancelled: Option<Cancelled>, timed_out_by_server: bool) -> Verdict {
    let fail = |reason, text| Verdict::Fail { reason, text };
    match ending {
        Ending::Ran { code: None } => match cancelled {
            Some(Cancelled::Overflow) => fail(None, FailText::Overflow),
            // Finished before the cancel reached it: it counts.
            None
            | Some(
                Cancelled::Interrupt
                | Cancelled::Unwanted
                | Cancelled::Timeout
                | Cancelled::Overrun
                | Cancelled::Deleted,
            ) => Verdict::Done,
        },
        Ending::Ran { code: Some(code) } if code == QUERY_CANCELED => match cancelled {
            Some(Cancelled::Interrupt) => Verdict::PlanAgain { reason: INTERRUPTED },
            Some(Cancelled::Unwanted) => Verdict::Nothing,
            Some(Cancelled::Timeout) => fail(Some("timeout"), FailText::Timeout),
            Some(Cancelled::Overrun) => fail(Some("timeout"), FailText::Overrun),
            Some(Cancelled::Deleted) => fail(Some("cancelled"), FailText::Collected),
            Some(Cancelled::Overflow) => fail(None, FailText::Overflow),
            None if timed_out_by_server => fail(Some("timeout"), FailText::Collected),
            None => fail(Some("cancelled"), FailText::Collected),
        },
        Ending::Ran { code: Some(_) } => match cancelled {
            Some(Cancelled::Overflow) => fail(None, FailText::Overflow),
            None
            | Some(
                Cancelled::Interrupt
                | Cancelled::Unwanted
                | Cancelled::Timeout
                | Cancelled::Overrun
                | Cancelled::Deleted,
            ) => fail(None, FailText::Collected),
        },
        Ending::Lost { code, server } => match (cancelled, server) {
            // The last resort was to terminate the backend: our doing, whatever the server says.
            (Some(Cancelled::Timeout), Server::Same) => fail(Some("timeout"), FailText::Timeout),
            (Some(Cancelled::Overrun), Server::Same) => fail(Some("timeout"), FailText::Overrun),
            (Some(Cancelled::Deleted), Server::Same) => fail(Some("cancelled"), FailText::LastWord),
            (Some(Cancelled::Overflow), Server::Same) => fail(None, FailText::Overflow),
            (Some(Cancelled::Unwanted), _) => Verdict::Nothing,
            (Some(Cancelled::Interrupt), _) => Verdict::PlanAgain { reason: INTERRUPTED },
            (_, Server::Other) => Verdict::PlanAgain { reason: lost_by(code.as_deref()) },
            // Whoever ends a session by hand lets the server say so; a link that goes without a word was cut.
            (None, Server::Same) if code.is_none() || code.as_deref() == Some(CRASH_SHUTDOWN) => {
                Verdict::PlanAgain { reason: CRASHED }
            }
            (None, Server::Same) => fail(Some("cancelled"), FailText::LastWord),
        },
    }
}

/// A server that stops in order says so first.
fn lost_by(code: Option<&[u8]>) -> &'static str {
    match code {
        Some(ADMIN_SHUTDOWN) => INTERRUPTED,
        Some(_) | None => CRASHED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: Option<&str>) -> Ending {
        Ending::Ran { code: code.map(|code| code.as_bytes().to_vec()) }
    }

    fn lost(code: Option<&str>, server: Server) -> Ending {
        Ending::Lost { code: code.map(|code| code.as_bytes().to_vec()), server }
    }

    #[test]
    fn a_task_without_an_error_is_done_even_if_a_cancel_came_too_late() {
        for cancelled in [None, Some(Cancelled::Interrupt), Some(Cancelled::Timeout)] {
            assert_eq!(verdict(&ran(None), cancelled, false), Verdict::Done);
        }
    }

    #[test]
    fn an_interrupted_task_is_planned_again_and_an_own_error_is_kept() {
        assert_eq!(
            verdict(&ran(Some("57014")), Some(Cancelled::Interrupt), false),
            Verdict::PlanAgain { reason: INTERRUPTED }
        );
        let own = Verdict::Fail { reason: None, text: FailText::Collected };
        assert_eq!(verdict(&ran(Some("22012")), Some(Cancelled::Interrupt), false), own);
    }

    #[test]
    fn a_row_that_its_owner_took_back_gets_nothing_written() {
        assert_eq!(verdict(&ran(Some("57014")), Some(Cancelled::Unwanted), false), Verdict::Nothing);
        assert_eq!(verdict(&lost(None, Server::Same), Some(Cancelled::Unwanted), false), Verdict::Nothing);
    }

    #[test]
    fn a_cancel_that_was_not_ours_was_a_users() {
        let by_user = Verdict::Fail { reason: Some("cancelled"), text: FailText::Collected };
        assert_eq!(verdict(&ran(Some("57014")), None, false), by_user);
        let by_time = Verdict::Fail { reason: Some("timeout"), text: FailText::Collected };
        assert_eq!(verdict(&ran(Some("57014")), None, true), by_time);
    }

    #[test]
    fn a_session_ended_by_a_user_fails_and_one_that_went_with_its_server_is_planned_again() {
        let failed = Verdict::Fail { reason: Some("cancelled"), text: FailText::LastWord };
        assert_eq!(verdict(&lost(Some("57P01"), Server::Same), None, false), failed);
        let interrupted = Verdict::PlanAgain { reason: INTERRUPTED };
        let crashed = Verdict::PlanAgain { reason: CRASHED };
        assert_eq!(verdict(&lost(Some("57P01"), Server::Other), None, false), interrupted);
        assert_eq!(verdict(&lost(None, Server::Other), None, false), crashed);
        assert_eq!(verdict(&lost(Some("57P02"), Server::Other), None, false), crashed);
        assert_eq!(verdict(&lost(Some("57P02"), Server::Same), None, false), crashed);
        assert_eq!(verdict(&lost(None, Server::Same), None, false), crashed);
        assert_eq!(verdict(&lost(Some("57P01"), Server::Same), Some(Cancelled::Interrupt), false), interrupted);
    }

    #[test]
    fn a_run_over_its_time_has_failed_and_one_of_a_deleted_job_is_cancelled_however_its_session_ended() {
        let overrun = Verdict::Fail { reason: Some("timeout"), text: FailText::Overrun };
        assert_eq!(verdict(&ran(Some("57014")), Some(Cancelled::Overrun), false), overrun);
        assert_eq!(verdict(&lost(Some("57P01"), Server::Same), Some(Cancelled::Overrun), false), overrun);
        let cancelled = |text| Verdict::Fail { reason: Some("cancelled"), text };
        assert_eq!(verdict(&ran(Some("57014")), Some(Cancelled::Deleted), false), cancelled(FailText::Collected));
        let lost = lost(Some("57P01"), Server::Same);
        assert_eq!(verdict(&lost, Some(Cancelled::Deleted), false), cancelled(FailText::LastWord));
    }

    #[test]
    fn output_over_its_limit_fails_whatever_else_happened() {
        for ending in [ran(None), ran(Some("57014")), ran(Some("22012")), lost(None, Server::Same)] {
            let failed = Verdict::Fail { reason: None, text: FailText::Overflow };
            assert_eq!(verdict(&ending, Some(Cancelled::Overflow), false), failed);
        }
    }
}
