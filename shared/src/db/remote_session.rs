//! PURE. How a row remembers the session that runs it on a remote, so that it can be found again when its worker,
//! its scheduler and the launcher have died.
//!
//! A pid alone is soon another's, and the two servers' clocks cannot be compared. So the row keeps what the remote
//! itself says: when the session began and when its server did, in microseconds of the remote's own clock, and which
//! place of the conninfo it was. Kept in the column `remote_session`; written by the worker before it sends the
//! input, read by the scheduler. The text comes back from a table that users may write into: whatever does not
//! read well means that nothing is known.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSession {
    /// Counted from 0 in the places of the conninfo.
    pub place: usize,
    pub began_us: i64,
    pub server_began_us: i64,
}

/// What was found when the remote was asked for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundSession {
    /// It is there.
    Alive,
    /// It is not there any more, nor can it come back.
    Gone,
    /// Another server has answered than the one that the session was on.
    Elsewhere,
}

impl RemoteSession {
    /// `server_began_us`: what the server that answered says of itself; `there`: whether it has that very session.
    /// A server that began after the session is the one that was restarted, or what has taken its place; one that
    /// began before, and is not the same, is a neighbour behind the same name.
    pub fn judge(&self, server_began_us: i64, there: bool) -> FoundSession {
        if server_began_us == self.server_began_us {
            if there { FoundSession::Alive } else { FoundSession::Gone }
        } else if server_began_us > self.began_us {
            FoundSession::Gone
        } else {
            FoundSession::Elsewhere
        }
    }
}

impl fmt::Display for RemoteSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.place, self.began_us, self.server_began_us)
    }
}

impl FromStr for RemoteSession {
    type Err = ();

    fn from_str(text: &str) -> Result<RemoteSession, ()> {
        let mut parts = text.split(' ');
        let mut next = || parts.next().ok_or(());
        let session = RemoteSession {
            place: next()?.parse().map_err(|_| ())?,
            began_us: next()?.parse().map_err(|_| ())?,
            server_began_us: next()?.parse().map_err(|_| ())?,
        };
        if parts.next().is_some() { Err(()) } else { Ok(session) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: RemoteSession = RemoteSession { place: 1, began_us: 2_000, server_began_us: 1_000 };

    #[test]
    fn what_is_written_reads_back_and_nothing_else_reads() {
        assert_eq!(SESSION.to_string().parse(), Ok(SESSION));
        for bad in ["", "1", "1 2", "1 2 3 4", "-1 2 3", "a b c", "1 2 99999999999999999999"] {
            assert_eq!(bad.parse::<RemoteSession>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn only_its_own_server_or_that_ones_restart_can_say_that_a_session_is_gone() {
        assert_eq!(SESSION.judge(1_000, true), FoundSession::Alive);
        assert_eq!(SESSION.judge(1_000, false), FoundSession::Gone);
        assert_eq!(SESSION.judge(2_001, false), FoundSession::Gone);
        assert_eq!(SESSION.judge(1_500, false), FoundSession::Elsewhere);
        assert_eq!(SESSION.judge(500, true), FoundSession::Elsewhere);
    }
}
