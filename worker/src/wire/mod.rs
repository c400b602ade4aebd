//! The worker's own client: blocking, bounded in memory, over `postgres-protocol` and one socket.
//!
//! A task's SQL needs what the common clients hide: command tags, column types, COPY, the transaction status, and
//! an answer to COPY FROM STDIN that does not hang. From the wire upwards: `pipe` (bytes both ways at once),
//! `link` (frames), `incoming` and `outgoing` (messages), `startup` (login), `simple` (a task's input),
//! `extended` (our statements), `cancel`. Text is bytes everywhere, because a server may hold any.
//!
//! The worker's session room calls it, one thread per session; a `Canceller` serves another thread. No call
//! after `connect` has a time limit of its own: the watchdog cancels, then ends. Not spoken: TLS, GSSAPI.

mod cancel;
mod dial;
mod error;
mod extended;
mod incoming;
mod link;
mod outgoing;
mod pipe;
mod server_error;
mod simple;
mod sink;
mod startup;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use shared::conninfo::Target;

pub use cancel::Canceller;
pub use error::{ConnectError, LinkError, QueryError};
pub use extended::{Row, Statement};
pub use incoming::TransactionStatus;
pub use server_error::ServerError;
pub use sink::{Column, Sink};

use dial::{Peer, dial};
use incoming::Parameters;
use link::Link;
use outgoing::Outgoing;

/// A farewell is not worth a longer wait.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// One logged-in connection. Dropping it closes the socket without a farewell.
pub struct Session {
    link: Link,
    peer: Peer,
    pid: i32,
    secret: i32,
    parameters: Parameters,
    status: TransactionStatus,
}

impl Session {
    /// Dials and logs in, all of it before the deadline. The parameters (application_name and the like) go into
    /// the startup message; an `options` among them is added to the target's, a `client_encoding` takes the place of
    /// UTF8 (a database in SQL_ASCII may hold bytes that UTF8 refuses).
    pub fn connect(target: &Target, parameters: &[(&str, &str)], deadline: Instant) -> Result<Session, ConnectError> {
        let (socket, peer) = dial(&target.place, deadline)?;
        Session::log_in(Link::new(socket, Some(deadline)), peer, target, parameters)
    }

    fn log_in(
        mut link: Link,
        peer: Peer,
        target: &Target,
        parameters: &[(&str, &str)],
    ) -> Result<Session, ConnectError> {
        let greeting = startup::log_in(&mut link, target, parameters, &peer.to_string())?;
        link.set_deadline(None);
        link.forget_long();
        Ok(Session {
            link,
            peer,
            pid: greeting.pid,
            secret: greeting.secret,
            parameters: greeting.parameters,
            status: greeting.status,
        })
    }

    /// Where the session stood when its last request ended.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// The server's process, as in pg_stat_activity.
    pub fn backend_pid(&self) -> i32 {
        self.pid
    }

    /// A setting that the server reports (server_version, client_encoding, ..), as last told.
    pub fn parameter(&self, name: &str) -> Option<&[u8]> {
        self.parameters.get(name.as_bytes()).map(Vec::as_slice)
    }

    /// The means to cancel this session from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller { peer: self.peer.clone(), pid: self.pid, secret: self.secret }
    }

    /// Was something received that no request has read yet (a farewell, a changed parameter)? Polling the
    /// descriptor does not see it.
    pub fn has_unread(&self) -> bool {
        self.link.has_unread()
    }

    /// Says farewell and closes. A server that no longer listens is closed all the same.
    pub fn close(mut self) {
        self.link.set_deadline(Some(Instant::now() + CLOSE_WAIT));
        let mut farewell = Outgoing::default();
        farewell.own(b"X\0\0\0\x04");
        let _ = self.link.send_all(&mut farewell);
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} at {}, {:?})", self.pid, self.peer, self.status)
    }
}
