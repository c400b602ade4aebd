//! One pooled connection: who has it, its reset, and how it is closed.
//!
//! Whatever is not exactly as it should be makes the connection one to close: nothing is written to it, because a request that
//! was half sent would swallow it; its backend is terminated first, and only when that is gone is the socket closed.

use super::reset::{Reset, ResetProgress, is_notice};
use crate::limits::{POOL_LIFETIME, POOL_USES, RESET_SOON, RESET_TIMEOUT};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{MsgFlags, recv, send};
use shared::process::order::PooledConnection;
use shared::region::{ConnectionPermit, SlotHandle};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

/// A Terminate message.
pub(super) const TERMINATE: &[u8] = b"X\0\0\0\x04";

#[derive(Debug)]
pub(super) enum ConnectionState {
    /// The worker in this slot has it.
    CheckedOut(SlotHandle),
    /// `reserved`: a task waits for it.
    Resetting {
        reset: Reset,
        deadline: Instant,
        reserved: bool,
    },
    Idle,
    /// For a task that is just being begun.
    Reserved,
    /// A Terminate message was sent; the server will hang up.
    Closing {
        until: Instant,
    },
    /// Its backend is to be ended; the question is put when it is due.
    Terminating {
        due: Option<Instant>,
    },
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) facts: Rc<PooledConnection>,
    pub(super) _permit: Option<ConnectionPermit>,
    pub(super) made: Instant,
    pub(super) uses: u32,
    /// The settings of new sessions were changed since, by ALTER ROLE or ALTER DATABASE.
    pub(super) outdated: bool,
    pub(super) state: ConnectionState,
}

impl Connection {
    /// Its reset ends in a moment, and no task waits for it.
    pub(super) fn is_reset_soon(&self, now: Instant) -> bool {
        let soon = |deadline: Instant| now + RESET_TIMEOUT < deadline + RESET_SOON && !self.is_worn(now);
        matches!(self.state, ConnectionState::Resetting { deadline, reserved: false, .. } if soon(deadline))
    }

    /// Not to be used again.
    pub(super) fn is_worn(&self, now: Instant) -> bool {
        self.outdated || self.uses >= POOL_USES || now.saturating_duration_since(self.made) >= POOL_LIFETIME
    }

    /// The scheduler reads it.
    pub(super) fn is_polled(&self) -> bool {
        matches!(
            self.state,
            ConnectionState::Idle | ConnectionState::Resetting { .. } | ConnectionState::Closing { .. }
        )
    }

    /// The server has hung up, or has had time enough to.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        let ConnectionState::Closing { until } = self.state else { return false };
        now >= until || self.receive().is_err()
    }

    pub(super) fn turn(&mut self, readable: bool, now: Instant) {
        let state = std::mem::replace(&mut self.state, ConnectionState::Idle);
        self.state = match state {
            ConnectionState::Resetting { reset, deadline, reserved } if readable || now >= deadline => {
                self.listen(reset, deadline, reserved, now)
            }
            ConnectionState::Idle if readable && !self.is_quiet() => match self.receive() {
                Ok(Some(bytes)) if is_notice(&bytes) => ConnectionState::Idle,
                _ => ConnectionState::Terminating { due: Some(now) },
            },
            other => other,
        };
    }

    /// Sends the reset; it fits into any socket that is as empty as this one should be.
    pub(super) fn reset(&self, now: Instant) -> ConnectionState {
        let reset = Reset::new(format!("{:032x}", rand::random::<u128>()));
        let request = reset.request();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.socket.as_raw_fd(), &request, flags) {
            Ok(count) if count == request.len() => {
                ConnectionState::Resetting { reset, deadline: now + RESET_TIMEOUT, reserved: false }
            }
            _ => ConnectionState::Terminating { due: Some(now) },
        }
    }

    pub(super) fn listen(&self, mut reset: Reset, deadline: Instant, reserved: bool, now: Instant) -> ConnectionState {
        let progress = match self.receive() {
            Ok(Some(bytes)) => reset.take(&bytes),
            Ok(None) => ResetProgress::More,
            Err(_) => ResetProgress::Wrong,
        };
        match progress {
            // The flags of the descriptor are shared with the worker, which may have changed them.
            ResetProgress::Done if fcntl(&self.socket, FcntlArg::F_SETFL(OFlag::empty())).is_ok() => {
                if reserved {
                    ConnectionState::Reserved
                } else {
                    ConnectionState::Idle
                }
            }
            ResetProgress::More if now < deadline => ConnectionState::Resetting { reset, deadline, reserved },
            _ => ConnectionState::Terminating { due: Some(now) },
        }
    }

    /// Nothing to be read, and the server has not hung up.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        matches!(recv(self.socket.as_raw_fd(), &mut [0; 1], flags), Err(Errno::EAGAIN))
    }

    /// What has arrived; None: nothing. An end of the stream is an error.
    pub(super) fn receive(&self) -> Result<Option<Vec<u8>>, Errno> {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(Errno::ECONNRESET),
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok((!all.is_empty()).then_some(all)),
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(super) fn send_terminate(&self) {
        let _ = send(self.socket.as_raw_fd(), TERMINATE, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }
}
