//! How an attempt ended that killed the worker or the server process that it ran in. PURE.
//!
//! Not every attempt without a result is one: a worker that we have told to stop, or have killed ourselves, was
//! interrupted, and so was one whose server stopped or whose launcher died. Several deaths in a row make the task wait, and
//! then fail; the count is in its row (`plan_again.sql`).

use nix::sys::signal::Signal;
use shared::process::exit_code::ExitCode;
use shared::sys::wait::ProcessEnd;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    Killed(Signal),
    Panicked,
    /// The connection was closed, and the server has said nothing. It counts if that server has gone on, which began at
    /// this time; None: it is known that it has.
    Severed {
        server_began_us: Option<i64>,
    },
}

impl Death {
    /// Of a worker that was at a task and was not told to end.
    pub fn of(end: ProcessEnd, severed: Option<i64>) -> Option<Death> {
        match end {
            ProcessEnd::Killed(signal) => Some(Death::Killed(signal)),
            ProcessEnd::Exited(status) if status == ExitCode::Panic.status() => Some(Death::Panicked),
            ProcessEnd::Exited(_) => severed.map(|began| Death::Severed { server_began_us: Some(began) }),
        }
    }

    /// The server that must still be the same.
    pub fn server_began_us(self) -> Option<i64> {
        match self {
            Death::Severed { server_began_us } => server_began_us,
            Death::Killed(_) | Death::Panicked => None,
        }
    }

    /// The server has been asked already, and is the same.
    pub fn proven(self) -> Death {
        match self {
            Death::Severed { .. } => Death::Severed { server_began_us: None },
            other => other,
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Death::Killed(signal) => write!(out, "worker killed by signal {} ({signal})", *signal as i32),
            Death::Panicked => write!(out, "worker panicked; the launcher's log has the panic"),
            Death::Severed { .. } => {
                write!(out, "connection closed without an error, as by a crash of its server process")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_and_a_panic_are_deaths_and_an_orderly_exit_is_one_only_without_its_connection() {
        let killed = Death::of(ProcessEnd::Killed(Signal::SIGKILL), None);
        assert_eq!(killed.map(|death| death.to_string()).as_deref(), Some("worker killed by signal 9 (SIGKILL)"));
        assert_eq!(Death::of(ProcessEnd::Exited(101), Some(7)), Some(Death::Panicked));
        assert_eq!(Death::of(ProcessEnd::Exited(111), None), None);
        assert_eq!(Death::of(ProcessEnd::Exited(111), Some(7)), Some(Death::Severed { server_began_us: Some(7) }));
        assert_eq!(Death::of(ProcessEnd::Exited(111), Some(7)).and_then(Death::server_began_us), Some(7));
    }
}
