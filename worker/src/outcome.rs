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
    /// Back to PLAN: nobody's fault.
    PlanAgain,
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
    /// The limit of the output.
    Overflow,
    /// The last word of the lost session.
    LastWord,
}

const QUERY_CANCELED: &[u8] = b"57014";
const CRASH_SHUTDOWN: &[u8] = b"57P02";

pub fn verdict(ending: &Ending, cancelled: Option<Cancelled>, timed_out_by_server: bool) -> Verdict {
    let fail = |reason, text| Verdict::Fail { reason, text };
    match ending {
        Ending::Ran { code: None } => match cancelled {
            Some(Cancelled::Overflow) => fail(None, FailText::Overflow),
            // Finished before the cancel reached it: it counts.
            None | Some(Cancelled::Interrupt | Cancelled::Unwanted | Cancelled::Timeout) => Verdict::Done,
        },
        Ending::Ran { code: Some(code) } if code == QUERY_CANCELED => match cancelled {
            Some(Cancelled::Interrupt) => Verdict::PlanAgain,
            Some(Cancelled::Unwanted) => Verdict::Nothing,
            Some(Cancelled::Timeout) => fail(Some("timeout"), FailText::Timeout),
            Some(Cancelled::Overflow) => fail(None, FailText::Overflow),
            None if timed_out_by_server => fail(Some("timeout"), FailText::Collected),
            None => fail(Some("cancelled"), FailText::Collected),
        },
        Ending::Ran { code: Some(_) } => match cancelled {
            Some(Cancelled::Overflow) => fail(None, FailText::Overflow),
            None | Some(Cancelled::Interrupt | Cancelled::Unwanted | Cancelled::Timeout) => {
                fail(None, FailText::Collected)
            }
        },
        Ending::Lost { code, server } => match (cancelled, server) {
            // The watchdog's last resort was to terminate the backend: our doing, whatever the server says.
            (Some(Cancelled::Timeout), Server::Same) => fail(Some("timeout"), FailText::Timeout),
            (Some(Cancelled::Overflow), Server::Same) => fail(None, FailText::Overflow),
            (Some(Cancelled::Unwanted), _) => Verdict::Nothing,
            (Some(Cancelled::Interrupt), _) | (_, Server::Other) => Verdict::PlanAgain,
            // Whoever ends a session by hand lets the server say so; a link that goes without a word was cut.
            (None, Server::Same) if code.is_none() || code.as_deref() == Some(CRASH_SHUTDOWN) => Verdict::PlanAgain,
            (None, Server::Same) => fail(Some("cancelled"), FailText::LastWord),
        },
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
        assert_eq!(verdict(&ran(Some("57014")), Some(Cancelled::Interrupt), false), Verdict::PlanAgain);
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
        assert_eq!(verdict(&lost(Some("57P01"), Server::Other), None, false), Verdict::PlanAgain);
        assert_eq!(verdict(&lost(None, Server::Other), None, false), Verdict::PlanAgain);
        assert_eq!(verdict(&lost(Some("57P02"), Server::Same), None, false), Verdict::PlanAgain);
        assert_eq!(verdict(&lost(None, Server::Same), None, false), Verdict::PlanAgain);
    }

    #[test]
    fn output_over_its_limit_fails_whatever_else_happened() {
        for ending in [ran(None), ran(Some("57014")), ran(Some("22012")), lost(None, Server::Same)] {
            let failed = Verdict::Fail { reason: None, text: FailText::Overflow };
            assert_eq!(verdict(&ending, Some(Cancelled::Overflow), false), failed);
        }
    }
}
