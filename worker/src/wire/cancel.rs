//! Requests to a server to stop what a session is doing, over a connection of its own.
//!
//! The watchdog holds a `Canceller` while the task's thread sits in `Session::run`. A cancel is a request: the
//! server does not say whether it came in time, and one that comes late hits whatever that session does next.
//! So after a cancel was sent the session must run nothing that it may not hit.

use std::fmt;
use std::io;
use std::time::Instant;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use shared::conninfo::Keepalive;
use shared::db::tls::PreparedTls;

use super::dial::{Peer, dial};
use super::error::ConnectError;
use super::link::WireLink;
use super::outgoing::Outgoing;

/// What is needed to cancel one session; may go to another thread.
#[derive(Clone)]
pub struct Canceller {
    pub(super) peer: Peer,
    pub(super) keepalive: Keepalive,
    /// What the session is encrypted by: the secret of its cancel is not sent in the clear either.
    pub(super) tls: Option<PreparedTls>,
    /// As the server, or a pooler before it, calls the session.
    pub(super) key: (i32, i32),
    /// The server's process.
    pub(super) backend: i32,
}

impl Canceller {
    /// Sends the request and waits until the server has closed that connection: by then it has passed it on.
    pub fn cancel(&self, deadline: Instant) -> Result<(), ConnectError> {
        let mut link = WireLink::new(dial(&self.peer, &self.keepalive, deadline)?, Some(deadline));
        if let Some(tls) = &self.tls {
            link.encrypt(tls, true, &self.peer.to_string())?;
        }
        let mut message = BytesMut::new();
        frontend::cancel_request(self.key.0, self.key.1, &mut message);
        let mut outgoing = Outgoing::default();
        outgoing.own(&message);
        let connect_error =
            |source| ConnectError::Io { attempted: "send a cancel request to", place: self.peer.to_string(), source };
        link.send_all(&mut outgoing).map_err(connect_error)?;
        // A server answers nothing; the end of the stream, however it comes, is the sign.
        match link.peek(1, &mut outgoing) {
            Ok(_) => Err(connect_error(io::Error::new(io::ErrorKind::InvalidData, "server answered it"))),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(connect_error(error)),
            Err(_) => Ok(()),
        }
    }

    pub fn backend_pid(&self) -> i32 {
        self.backend
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Canceller({} at {})", self.backend, self.peer)
    }
}
