//! From a place to a connected socket, within a deadline.
//!
//! `Session::connect` dials by a `Target`, `Canceller` dials the same peer again. A name is looked up by the
//! system's resolver, which keeps its own time: give an address where that matters. Every socket is closed on
//! exec. What can go wrong is a `ConnectError::Io` that names the place.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use shared::conninfo::Place;

use super::error::ConnectError;

/// A dead host is known after idle + interval × count = 110 s, not after the two hours of the system's default.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_COUNT: u32 = 5;

/// Where a socket in fact leads: dialling it again reaches the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Unix(PathBuf),
    Tcp { host: String, address: SocketAddr },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Unix(path) => write!(f, "{}", path.display()),
            Peer::Tcp { host, address } if *host == address.ip().to_string() => write!(f, "{address}"),
            Peer::Tcp { host, address } => write!(f, "{host} ({address})"),
        }
    }
}

/// Opens a socket to a place; of several addresses the first that answers.
pub(super) fn dial(place: &Place, deadline: Instant) -> Result<(OwnedFd, Peer), ConnectError> {
    let (host, addresses) = match place {
        Place::Unix { path } => {
            let peer = Peer::Unix(path.clone());
            return Ok((redial(&peer, deadline)?, peer));
        }
        Place::Tcp { host, address: Some(address), port } => (host, vec![SocketAddr::new(*address, *port)]),
        Place::Tcp { host, address: None, port } => {
            let trouble = |source| ConnectError::Io { attempted: "look up", place: host.clone(), source };
            (host, (host.as_str(), *port).to_socket_addrs().map_err(trouble)?.collect())
        }
    };
    let mut last = ConnectError::Io {
        attempted: "look up",
        place: host.clone(),
        source: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
    };
    for address in addresses {
        let peer = Peer::Tcp { host: host.clone(), address };
        match redial(&peer, deadline) {
            Ok(socket) => return Ok((socket, peer)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens a socket to a peer known by its address.
pub(super) fn redial(peer: &Peer, deadline: Instant) -> Result<OwnedFd, ConnectError> {
    let opened = match time_left(deadline) {
        Err(late) => Err(late),
        Ok(left) => match peer {
            Peer::Unix(path) => open_unix(path, left),
            Peer::Tcp { address, .. } => open_tcp(address, left),
        },
    };
    opened.map_err(|source| ConnectError::Io { attempted: "connect to", place: peer.to_string(), source })
}

fn open_tcp(address: &SocketAddr, left: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(address, left)?;
    stream.set_nodelay(true)?;
    setsockopt(&stream, sockopt::KeepAlive, &true)?;
    setsockopt(&stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(&stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(&stream, sockopt::TcpKeepCount, &KEEPALIVE_COUNT)?;
    Ok(stream.into())
}

/// The send timeout also bounds a connect that waits for room in the server's backlog.
fn open_unix(path: &PathBuf, left: Duration) -> io::Result<OwnedFd> {
    let address = UnixAddr::new(path)?;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let timeout = TimeVal::microseconds(i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1));
    setsockopt(&socket, sockopt::SendTimeout, &timeout)?;
    loop {
        match connect(socket.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Err(time_is_up()),
            Err(errno) => return Err(errno.into()),
        }
    }
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::microseconds(0))?;
    Ok(socket)
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(time_is_up()) } else { Ok(left) }
}

fn time_is_up() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "time is up")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn a_missing_socket_file_is_named() {
        let place = Place::Unix { path: "/nowhere/.s.PGSQL.5432".into() };
        let text = dial(&place, soon()).unwrap_err().to_string();
        assert!(text.starts_with("could not connect to /nowhere/.s.PGSQL.5432: "), "{text}");
    }

    #[test]
    fn a_deadline_in_the_past_is_time_up() {
        let place = Place::Tcp { host: "db".into(), address: Some([127, 0, 0, 1].into()), port: 1 };
        let text = dial(&place, Instant::now()).unwrap_err().to_string();
        assert_eq!(text, "could not connect to db (127.0.0.1:1): time is up");
    }

    #[test]
    fn a_host_name_is_looked_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let place = Place::Tcp { host: "localhost".into(), address: None, port };
        let (socket, peer) = dial(&place, soon()).unwrap();
        assert_eq!(peer.to_string(), format!("localhost (127.0.0.1:{port})"));
        assert!(nix::sys::socket::getsockopt(&socket, sockopt::KeepAlive).unwrap());
    }

    #[test]
    fn a_full_backlog_is_left_at_the_deadline() {
        let path = std::env::temp_dir().join(format!("wire-dial-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let server = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::bind(server.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        nix::sys::socket::listen(&server, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let peer = Peer::Unix(path.clone());
        let _first = redial(&peer, soon()).unwrap();
        let error = redial(&peer, Instant::now() + Duration::from_millis(50)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().ends_with("time is up"), "{error}");
    }
}
