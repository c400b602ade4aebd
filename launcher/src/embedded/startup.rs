//! From a prepared folder to a ready server: adopt or spawn, then observe until it accepts.
//!
//! The only module here that waits, and only before the launcher's loop begins. It asks its caller
//! all the while whether to go on, so that a signal during a long recovery is not held up.
//!
//! What can go wrong: the server ends (its last lines are in the error), is late (it is left
//! alone, since it may be recovering), or listens elsewhere because someone started it by hand.

use crate::limits::{LOOKS_BEFORE_RETRY, PREDECESSOR_TIMEOUT, STARTUP_PERIOD};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::error::EmbeddedError;
use super::folder::DataFolder;
use super::programs::Programs;
use super::server::PostgresServer;
use super::supervision::Condition;
use super::system_user::SystemUser;

/// A time limit, and a caller that may call the start off.
pub struct StartLimit<'a> {
    until: Instant,
    called_off: &'a mut dyn FnMut() -> bool,
}

impl<'a> StartLimit<'a> {
    pub fn new(limit: Duration, called_off: &'a mut dyn FnMut() -> bool) -> StartLimit<'a> {
        StartLimit { until: Instant::now() + limit, called_off }
    }

    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Waits a moment between two observations.
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
    folder: &DataFolder,
    programs: &Programs,
    user: &SystemUser,
    limit: &mut StartLimit<'_>,
) -> Result<PostgresServer, EmbeddedError> {
    let predecessor_until = Instant::now() + PREDECESSOR_TIMEOUT;
    loop {
        let mut server = launch(folder, programs, user)?;
        let adopted = server.is_adopted();
        loop {
            match server.observe(folder) {
                Condition::Accepting => return Ok(server),
                // The one we found was about to end.
                Condition::Gone if adopted => break,
                Condition::Gone if has_predecessor(&server) && Instant::now() < predecessor_until => break,
                Condition::Gone => return Err(ended(&server)),
                Condition::NotReady if limit.is_over(Instant::now()) => {
                    return Err(EmbeddedError::Late {
                        pid: server.pid(),
                        log: server.log().path().to_owned(),
                        tail: server.log().tail(),
                    });
                }
                Condition::NotReady => {}
            }
            if let Some(address) = server.strange_address(folder) {
                return Err(EmbeddedError::Strange { pid: server.pid(), data: folder.data(), address });
            }
            if let Err(error) = limit.pause() {
                server.signal(folder, Signal::SIGINT);
                return Err(error);
            }
        }
        for _ in 0..LOOKS_BEFORE_RETRY {
            limit.pause()?;
        }
    }
}

/// The server alive in the folder, or else a new one; neither need be ready.
pub fn launch(folder: &DataFolder, programs: &Programs, user: &SystemUser) -> Result<PostgresServer, EmbeddedError> {
    match PostgresServer::find_alive(folder, user)? {
        Some(server) => Ok(server),
        None => PostgresServer::spawn(folder, programs, user),
    }
}

/// Did it refuse to start because of another one: sessions of a killed server are still there, or
/// a server that an earlier launcher had just started was quicker?
fn has_predecessor(server: &PostgresServer) -> bool {
    let tail = server.log().tail();
    tail.contains("shared memory block") || tail.contains("lock file")
}

/// The error of a server that ended before it was ready.
pub fn ended(server: &PostgresServer) -> EmbeddedError {
    EmbeddedError::Ended {
        status: server.status().to_owned(),
        log: server.log().path().to_owned(),
        tail: server.log().tail(),
    }
}
