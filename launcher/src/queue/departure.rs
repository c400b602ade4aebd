//! How a scheduler has left, and what that means for its queue. PURE.

use crate::queue::restart_policy::SchedulerDeath;
use crate::queue::wanted::Origin;
use nix::sys::signal::Signal;
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::sys::wait::ProcessEnd;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// As it is logged and shown.
    pub end: String,
    /// If it left by itself.
    pub left: Option<ExitCode>,
    pub death: SchedulerDeath,
    pub useless: Option<Useless>,
}

/// Why a scheduler is not to be started again, and when that is checked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Useless {
    pub why: String,
    pub again_after: Option<Duration>,
}

impl Departure {
    /// `worked`: it had claimed tasks. `why`: what it had reported. `probe`: how long after it left for want of a
    /// catalog that is looked for again.
    pub fn of(end: ProcessEnd, worked: bool, why: Option<String>, origin: Origin, probe: Duration) -> Departure {
        let left = match end {
            ProcessEnd::Exited(status) => ExitCode::from_status(status),
            ProcessEnd::Killed(_) => None,
        };
        let (death, useless) = verdict(end, worked);
        let useless = useless.then(|| Useless {
            why: why.unwrap_or_else(|| format!("the scheduler exited ({end})")),
            again_after: match (left, origin) {
                (Some(ExitCode::NotInstalled | ExitCode::NoQueue), Origin::Found) => Some(probe),
                (Some(ExitCode::SwitchedOff), _) => Some(probe),
                _ => None,
            },
        });
        Departure { end: end.to_string(), left, death, useless }
    }

    /// It is not how a scheduler leaves a database that has nothing to serve.
    pub fn is_death(&self) -> bool {
        match &self.useless {
            None => true,
            Some(useless) => useless.again_after.is_none() && self.left != Some(ExitCode::NotInstalled),
        }
    }

    pub fn log(&self, queue: &str) {
        match &self.useless {
            None => shared::warning!("scheduler died", queue = queue, end = self.end),
            // A database without a catalog is not worth a line; it may be one of many.
            Some(Useless { why, again_after: Some(_) }) => shared::debug!("scheduler exited", queue = queue, why = why),
            Some(Useless { why, again_after: None }) => {
                let level = if self.is_death() { Level::Error } else { Level::Info };
                shared::log_line!(level, "queue disabled", queue = queue, why = why);
            }
        }
    }
}

/// Whether it had been of use, and whether another start cannot help.
fn verdict(end: ProcessEnd, worked: bool) -> (SchedulerDeath, bool) {
    match end {
        ProcessEnd::Killed(Signal::SIGSEGV | Signal::SIGABRT | Signal::SIGBUS | Signal::SIGILL) => {
            (SchedulerDeath::Failure, false)
        }
        ProcessEnd::Killed(_) | ProcessEnd::Exited(0) => {
            (if worked { SchedulerDeath::AfterWork } else { SchedulerDeath::Failure }, false)
        }
        ProcessEnd::Exited(status) => {
            use ExitCode as C;
            let useless = match ExitCode::from_status(status) {
                Some(C::NotInstalled | C::NoCode | C::NoQueue | C::SwitchedOff | C::Permanent) => true,
                Some(C::Asked | C::BadCell | C::Unsettled | C::Temporary | C::Panic) | None => false,
            };
            (SchedulerDeath::Failure, useless)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Duration = Duration::from_secs(60);

    fn left(code: ExitCode, origin: Origin) -> Departure {
        Departure::of(ProcessEnd::Exited(code.status()), true, Some("why".to_owned()), origin, PROBE)
    }

    #[test]
    fn a_found_database_without_a_catalog_is_looked_at_again_and_a_named_one_is_not() {
        let again = |departure: &Departure| departure.useless.as_ref().and_then(|useless| useless.again_after);
        let (found, named) = (left(ExitCode::NotInstalled, Origin::Found), left(ExitCode::NotInstalled, Origin::Named));
        assert_eq!((again(&found), again(&named)), (Some(PROBE), None));
        assert!(!found.is_death() && !named.is_death());
        assert_eq!(again(&left(ExitCode::SwitchedOff, Origin::Named)), Some(PROBE));
        assert!(left(ExitCode::Permanent, Origin::Found).is_death());
    }

    #[test]
    fn a_killed_scheduler_is_started_again_and_a_crash_counts_as_a_failure() {
        let of = |end, worked| Departure::of(end, worked, None, Origin::Named, PROBE);
        assert_eq!(of(ProcessEnd::Killed(Signal::SIGKILL), true).death, SchedulerDeath::AfterWork);
        assert_eq!(of(ProcessEnd::Killed(Signal::SIGKILL), false).death, SchedulerDeath::Failure);
        assert_eq!(of(ProcessEnd::Killed(Signal::SIGSEGV), true).death, SchedulerDeath::Failure);
        assert_eq!(of(ProcessEnd::Exited(ExitCode::Temporary.status()), true).useless, None);
    }
}
