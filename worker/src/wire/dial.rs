//! From an attempt of the route to a connected socket, within a deadline.
//!
//! `Session::connect` dials, `Canceller` dials the same peer again. A name is looked up by the system's resolver, which
//! keeps its own time: so in a thread of its own, which is left behind if it takes too long (a worker never forks, and
//! ends soon). Every socket is closed on exec. What can go wrong is a `ConnectError::Io` that names the place.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use shared::conninfo::{Keepalive, Place};
use shared::db::route::ConnectAttempt;
use shared::db::socket::tend;

use super::error::ConnectError;

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

impl Peer {
    /// Whom an attempt means.
    pub(super) fn of(attempt: &ConnectAttempt) -> Peer {
        match (&attempt.place, attempt.address) {
            (Place::Unix { path }, _) => Peer::Unix(path.clone()),
            (Place::Tcp { host, .. }, Some(address)) => Peer::Tcp { host: host.clone(), address },
            (Place::Tcp { host, port, address }, None) => {
                let address = address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
                Peer::Tcp { host: host.clone(), address: SocketAddr::new(address, *port) }
            }
        }
    }
}

/// The addresses of a name.
pub(super) fn look_up(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, ConnectError> {
    let connect_error = |source| ConnectError::Io { attempted: "look up", place: host.to_owned(), source };
    let (answer, answered) = bounded(1);
    let name = host.to_owned();
    let resolve = move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = answer.send(found);
    };
    thread::Builder::new().name("resolver".into()).spawn(resolve).map_err(connect_error)?;
    match answered.recv_deadline(deadline) {
        Ok(Ok(found)) if found.is_empty() => {
            Err(connect_error(io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
        }
        Ok(found) => found.map_err(connect_error),
        Err(_) => Err(connect_error(time_is_up())),
    }
}

/// Opens a socket to a peer known by its address.
pub(super) fn dial(peer: &Peer, keepalive: &Keepalive, deadline: Instant) -> Result<OwnedFd, ConnectError> {
    let opened = match time_left(deadline) {
        Err(late) => Err(late),
        Ok(left) => match peer {
            Peer::Unix(path) => open_unix(path, left),
            Peer::Tcp { address, .. } => open_tcp(address, keepalive, left),
        },
    };
    opened.map_err(|source| ConnectError::Io { attempted: "connect to", place: peer.to_string(), source })
}

fn open_tcp(address: &SocketAddr, keepalive: &Keepalive, left: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(address, left)?;
    tend(&stream, keepalive)?;
    Ok(stream.into())
}

/// The send timeout also bounds a connect that waits for room in the server's backlog.
fn open_unix(path: &PathBuf, left: Duration) -> io::Result<OwnedFd> {
    // A leading @ means a name in the abstract space, as in libpq.
    let address = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => UnixAddr::new_abstract(name.as_bytes())?,
        None => UnixAddr::new(path)?,
    };
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
    io::Error::new(io::ErrorKind::TimedOut, "timeout")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    const USUAL: Keepalive = Keepalive { on: true, idle_s: 4, interval_s: 2, count: 2, user_timeout_ms: 7_000 };

    #[test]
    fn a_missing_socket_file_is_named() {
        let peer = Peer::Unix("/nowhere/.s.PGSQL.5432".into());
        let text = dial(&peer, &USUAL, soon()).unwrap_err().to_string();
        assert!(text.starts_with("could not connect to /nowhere/.s.PGSQL.5432: "), "{text}");
    }

    #[test]
    fn a_deadline_in_the_past_is_time_up() {
        let peer = Peer::Tcp { host: "db".into(), address: "127.0.0.1:1".parse().unwrap() };
        let text = dial(&peer, &USUAL, Instant::now()).unwrap_err().to_string();
        assert_eq!(text, "could not connect to db (127.0.0.1:1): timeout");
    }

    #[test]
    fn a_host_name_is_looked_up_and_a_dead_peer_will_be_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = look_up("localhost", port, soon()).unwrap();
        let address = *found.iter().find(|address| address.is_ipv4()).unwrap();
        let peer = Peer::Tcp { host: "localhost".into(), address };
        assert_eq!(peer.to_string(), format!("localhost (127.0.0.1:{port})"));
        let socket = dial(&peer, &USUAL, soon()).unwrap();
        assert!(nix::sys::socket::getsockopt(&socket, sockopt::KeepAlive).unwrap());
        let idle = nix::sys::socket::getsockopt(&socket, sockopt::TcpKeepIdle).unwrap();
        assert_eq!(
            (idle, nix::sys::socket::getsockopt(&socket, sockopt::TcpUserTimeout).unwrap()),
            (USUAL.idle_s, USUAL.user_timeout_ms)
        );
    }

    #[test]
    fn a_full_backlog_is_left_at_the_deadline() {
        let path = std::env::temp_dir().join(format!("wire-dial-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let server = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::bind(server.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        nix::sys::socket::listen(&server, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let peer = Peer::Unix(path.clone());
        let _first = dial(&peer, &USUAL, soon()).unwrap();
        let error = dial(&peer, &USUAL, Instant::now() + Duration::from_millis(50)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().ends_with("timeout"), "{error}");
    }
}
