//! Exit codes: the whole contract between a child and its parent.
//!
//! A signal is a crash and has no code here. The launcher's own codes towards its caller are `launcher_status`.

/// How one of our processes leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCode {
    /// Ended because it was asked to, or because its work was done.
    Asked,
    /// The catalog is not installed in this database.
    NotInstalled,
    /// The catalog is installed, but has other queues than this one.
    NoQueue,
    /// The catalog says that nothing is to run here.
    SwitchedOff,
    /// The catalog has a version that there is no program for.
    NoCode,
    /// The cell was stale or damaged: nothing was run.
    BadCell,
    /// Trying again cannot help before somebody changes something.
    Permanent,
    /// An error that passes: the server is down, a connection was refused.
    Temporary,
    /// A worker: what became of its task must be found out on the remote it ran on; nothing is wrong here.
    Unsettled,
    /// A bug: the panic's message is in the log.
    Panic,
}

impl ExitCode {
    const ALL: [ExitCode; 10] = [
        ExitCode::Asked,
        ExitCode::NotInstalled,
        ExitCode::NoCode,
        ExitCode::BadCell,
        ExitCode::NoQueue,
        ExitCode::SwitchedOff,
        ExitCode::Permanent,
        ExitCode::Temporary,
        ExitCode::Unsettled,
        ExitCode::Panic,
    ];

    pub const fn status(self) -> i32 {
        match self {
            ExitCode::Asked => 0,
            ExitCode::NotInstalled => 10,
            ExitCode::NoCode => 11,
            ExitCode::BadCell => 12,
            ExitCode::NoQueue => 13,
            ExitCode::SwitchedOff => 14,
            ExitCode::Unsettled => 75,
            ExitCode::Permanent => 100,
            ExitCode::Panic => 101,
            ExitCode::Temporary => 111,
        }
    }

    pub fn from_status(status: i32) -> Option<ExitCode> {
        ExitCode::ALL.into_iter().find(|code| code.status() == status)
    }
}

/// What the launcher tells its caller.
pub mod launcher_status {
    /// An orderly end.
    pub const ORDERLY: u8 = 0;
    /// Anything that is not one of the others.
    pub const FAILED: u8 = 1;
    /// `status`: there is no launcher to ask.
    pub const NO_LAUNCHER: u8 = 3;
    /// `status`: the launcher answers, and neither serves a queue nor stands by for a leader that it sees.
    pub const NOT_SERVING: u8 = 4;
    /// The config is wrong (EX_CONFIG); a service manager should not try again.
    pub const BAD_CONFIG: u8 = 78;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_again_by_its_status() {
        for code in ExitCode::ALL {
            assert_eq!(ExitCode::from_status(code.status()), Some(code));
        }
        assert_eq!(ExitCode::from_status(7), None);
    }
}
