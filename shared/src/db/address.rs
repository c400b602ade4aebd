//! Names into addresses, in a short-lived child: the resolver may take half a minute, and inside libc it may start
//! threads. The loop polls a pipe; the child dies with us or at its deadline.

use crate::process::exit_code::ExitCode;
use crate::sys::{fork, signal, wait::Child};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A resolution under way.
#[derive(Debug)]
pub struct Resolving {
    child: Option<Child>,
    pipe: UnixStream,
    answer: Vec<u8>,
    port: u16,
}

struct AddressQuery {
    host: String,
    pipe: UnixStream,
}

impl Resolving {
    pub fn start(host: &str, port: u16) -> Result<Resolving, String> {
        let (pipe, theirs) = UnixStream::pair().map_err(|error| format!("cannot create a pipe: {error}"))?;
        pipe.set_nonblocking(true).map_err(|error| format!("cannot prepare a pipe: {error}"))?;
        let keep = [theirs.as_raw_fd()];
        let question = AddressQuery { host: host.to_owned(), pipe: theirs };
        let child = fork::start(resolve, question, &keep).map_err(|error| error.to_string())?;
        Ok(Resolving { child: Some(child), pipe, answer: Vec::new(), port })
    }

    /// None while the child still looks.
    pub fn drive(&mut self) -> Option<Result<Vec<SocketAddr>, String>> {
        let mut bytes = [0u8; 4096];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(0) => return Some(self.finished()),
                Ok(count) => self.answer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Some(Err(error.to_string())),
            }
        }
    }

    fn finished(&mut self) -> Result<Vec<SocketAddr>, String> {
        let text = String::from_utf8_lossy(&self.answer).into_owned();
        if let Some(error) = text.strip_prefix('!') {
            return Err(error.to_owned());
        }
        let found: Vec<SocketAddr> =
            text.lines().filter_map(|line| line.parse::<IpAddr>().ok()).map(|ip| (ip, self.port).into()).collect();
        if found.is_empty() { Err("the resolver did not answer".to_owned()) } else { Ok(found) }
    }
}

impl AsFd for Resolving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            child.signal(Signal::SIGKILL);
            child.reap();
        }
    }
}

/// The child: one look-up, one address per line, or `!` and the reason.
fn resolve(mut question: AddressQuery) -> ExitCode {
    signal::open_to_defaults();
    let answer = match (question.host.as_str(), 0u16).to_socket_addrs() {
        Ok(found) => found.map(|address| format!("{}\n", address.ip())).collect::<String>(),
        Err(error) => format!("!{error}"),
    };
    let _ = question.pipe.write_all(answer.as_bytes());
    ExitCode::Asked
}
