//! A non-blocking socket that tokio-postgres can drive and our own poll can watch.
//!
//! There is no runtime: when the socket would block it says Pending and remembers what it waits for; the loop polls
//! the descriptor for exactly that and then drives the connection again. The interest is shared with the `Link`,
//! because the connection owns the socket itself. What a server sends is watched on its way up (`frames`), and only so
//! much of it is read in one turn: a server that never stops talking must not hold the loop.

use super::frames::Frames;
use crate::conninfo::{Keepalive, Place};
use crate::limits::{DRIVE_BYTES_MAX, READ_BYTES};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, UnixAddr, connect, setsockopt, socket, sockopt,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the socket waits for besides reading: shared between it and its link.
#[derive(Debug)]
pub struct Wire {
    fd: OwnedFd,
    wants_write: Cell<bool>,
    reached: Cell<bool>,
    /// What may still be read in this turn.
    allowance: Cell<usize>,
    /// From the handshake on, what passes here is TLS's, and its stream watches instead.
    encrypted: Rc<Cell<bool>>,
    frames: RefCell<Frames>,
}

impl Wire {
    pub fn wants_write(&self) -> bool {
        self.wants_write.get()
    }

    /// A turn begins.
    pub fn allow(&self) {
        self.allowance.set(DRIVE_BYTES_MAX);
    }

    /// Set once the connection is encrypted.
    pub fn encrypted(&self) -> Rc<Cell<bool>> {
        self.encrypted.clone()
    }

    /// Somebody is at the other end: a byte could be written.
    pub fn reached(&self) -> bool {
        self.reached.get()
    }
}

/// What the kernel is told about a TCP connection, so that a dead peer does not go unnoticed.
pub fn tend(socket: &impl AsFd, keepalive: &Keepalive) -> nix::Result<()> {
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &keepalive.user_timeout_ms)?;
    setsockopt(socket, sockopt::KeepAlive, &keepalive.on)?;
    if keepalive.on {
        setsockopt(socket, sockopt::TcpKeepIdle, &keepalive.idle_s)?;
        setsockopt(socket, sockopt::TcpKeepInterval, &keepalive.interval_s)?;
        setsockopt(socket, sockopt::TcpKeepCount, &keepalive.count)?;
    }
    Ok(())
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[derive(Debug)]
pub struct Socket {
    wire: Rc<Wire>,
}

impl Socket {
    /// Begins to connect; the first write finds out how it went.
    pub fn dial(
        place: &Place,
        address: Option<SocketAddr>,
        keepalive: &Keepalive,
        asks_for_tls: bool,
    ) -> io::Result<Socket> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let (fd, begun) = match (place, address) {
            (Place::Unix { path }, _) => {
                let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
                // A leading @ means a name in the abstract space, as in libpq.
                let peer = match path.to_str().and_then(|path| path.strip_prefix('@')) {
                    Some(name) => UnixAddr::new_abstract(name.as_bytes())?,
                    None => UnixAddr::new(path)?,
                };
                let begun = connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &peer);
                (fd, begun)
            }
            (Place::Tcp { .. }, Some(address)) => {
                let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
                let fd = socket(family, SockType::Stream, flags, None)?;
                tend(&fd, keepalive)?;
                let begun = connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &SockaddrStorage::from(address));
                (fd, begun)
            }
            (Place::Tcp { .. }, None) => return Err(io::Error::other("the host's name has not been resolved")),
        };
        match begun {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Socket {
            wire: Rc::new(Wire {
                fd,
                wants_write: Cell::new(false),
                reached: Cell::new(false),
                allowance: Cell::new(DRIVE_BYTES_MAX),
                encrypted: Rc::new(Cell::new(false)),
                frames: RefCell::new(Frames::new(asks_for_tls, Instant::now())),
            }),
        })
    }

    pub fn wire(&self) -> Rc<Wire> {
        self.wire.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = buffer.remaining().min(READ_BYTES).min(self.wire.allowance.get());
        if most == 0 && buffer.remaining() > 0 {
            // What is left keeps the descriptor readable: the next turn comes at once.
            return Poll::Pending;
        }
        loop {
            let room = buffer.initialize_unfilled_to(most);
            match nix::unistd::read(&self.wire.fd, room) {
                Ok(count) => {
                    self.wire.allowance.set(self.wire.allowance.get() - count);
                    if !self.wire.encrypted.get() {
                        let mut frames = self.wire.frames.borrow_mut();
                        frames.pass(room.get(..count).unwrap_or_default(), Instant::now())?;
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match nix::unistd::write(&self.wire.fd, bytes) {
                Ok(count) => {
                    self.wire.wants_write.set(false);
                    self.wire.reached.set(true);
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::EINTR) => {}
                // ENOTCONN: the connect is still under way; the descriptor becomes writable when it is not.
                Err(Errno::EAGAIN | Errno::ENOTCONN) => {
                    self.wire.wants_write.set(true);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = nix::sys::socket::shutdown(
            std::os::fd::AsRawFd::as_raw_fd(&self.wire.fd),
            nix::sys::socket::Shutdown::Write,
        );
        Poll::Ready(Ok(()))
    }
}
