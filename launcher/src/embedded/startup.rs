//! From a prepared folder to a ready server: adopt or spawn, then look until it accepts.
//!
//! The only room here that waits, and only before the launcher's loop begins. It asks its caller
//! all the while whether to go on, so that a signal during a long recovery is not held up.
//!
//! What can go wrong: the server ends (its last lines are in the error), is late (it is left
//! alone, since it may be recovering), or listens elsewhere because someone started it by hand.

use crate::limits::{LOOKS_BEFORE_RETRY, PREDECESSOR_TIMEOUT, STARTUP_PERIOD};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::error::EmbeddedError;
use super::folder::Folder;
use super::programs::Programs;
use super::server::Server;
use super::supervision::Sight;
use super::system_user::SystemUser;

/// A time limit and a caller who may lose interest.
pub struct Patience<'a> {
    until: Instant,
    called_off: &'a mut dyn FnMut() -> bool,
}

impl<'a> Patience<'a> {
    pub fn new(limit: Duration, called_off: &'a mut dyn FnMut() -> bool) -> Patience<'a> {
        Patience { until: Instant::now() + limit, called_off }
    }

    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Waits a moment between two looks.
    pub fn pause(&mut self) -> Result<(), EmbeddedError> {
        if (self.called_off)() {
            return Err(EmbeddedError::CalledOff);
        }
        std::thread::sleep(STARTUP_PERIOD);
        Ok(())
    }
}

/// Adopts or starts a server and waits until it is ready.
pub fn start_server(
    folder: &Folder,
    programs: &Programs,
    user: &SystemUser,
    patience: &mut Patience<'_>,
) -> Result<Server, EmbeddedError> {
    let predecessor_until = Instant::now() + PREDECESSOR_TIMEOUT;
    loop {
        let mut server = launch(folder, programs, user)?;
        let adopted = server.is_adopted();
        loop {
            match server.look(folder) {
                Sight::Accepting => return Ok(server),
                // The one we found was about to end.
                Sight::Gone if adopted => break,
                Sight::Gone if has_predecessor(&server) && Instant::now() < predecessor_until => break,
                Sight::Gone => return Err(ended(&server)),
                Sight::NotReady if patience.is_over(Instant::now()) => {
                    return Err(EmbeddedError::Late {
                        pid: server.pid(),
                        log: server.log().path().to_owned(),
                        tail: server.log().tail(),
                    });
                }
                Sight::NotReady => {}
            }
            if let Some(address) = server.strange_address(folder) {
                return Err(EmbeddedError::Strange { pid: server.pid(), data: folder.data(), address });
            }
            if let Err(error) = patience.pause() {
                server.signal(folder, Signal::SIGINT);
                return Err(error);
            }
        }
        for _ in 0..LOOKS_BEFORE_RETRY {
            patience.pause()?;
        }
    }
}

/// The server alive in the folder, or else a new one; neither need be ready.
pub fn launch(folder: &Folder, programs: &Programs, user: &SystemUser) -> Result<Server, EmbeddedError> {
    match Server::find_alive(folder, user)? {
        Some(server) => Ok(server),
        None => Server::spawn(folder, programs, user),
    }
}

/// Did it refuse to start because of another one: sessions of a killed server are still there, or
/// a server that an earlier launcher had just started was quicker?
fn has_predecessor(server: &Server) -> bool {
    let tail = server.log().tail();
    tail.contains("shared memory block") || tail.contains("lock file")
}

/// What to say of a server that ended before it was ready.
pub fn ended(server: &Server) -> EmbeddedError {
    EmbeddedError::Ended {
        status: server.status().to_owned(),
        log: server.log().path().to_owned(),
        tail: server.log().tail(),
    }
}

/// The server programs get none of what steers our own connections, speak English to our log,
/// and do not report to the service manager in our place.
pub fn clean_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let steers = [&b"PG"[..], b"LC_", b"LANG", b"NOTIFY_SOCKET"].iter().any(|prefix| bytes.starts_with(prefix));
        if steers {
            command.env_remove(&name);
        }
    }
    command.env("LC_ALL", "C");
}
