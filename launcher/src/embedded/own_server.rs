//! The embedded server of this launcher, if it has one: watched on every pass, stopped last.

use super::{Embedded, ServerEvent, StopMode};
use nix::unistd::Pid;
use std::time::Instant;

#[derive(Debug)]
pub struct OwnServer {
    server: Option<Embedded>,
    stopping: bool,
}

impl OwnServer {
    pub fn new(server: Option<Embedded>) -> OwnServer {
        OwnServer { server, stopping: false }
    }

    pub fn pid(&self) -> Option<Pid> {
        self.server.as_ref().and_then(Embedded::pid)
    }

    /// Its pid and major version, for `status`.
    pub fn description(&self) -> Option<(Option<i32>, u32)> {
        self.server.as_ref().map(|server| (server.pid().map(Pid::as_raw), server.major()))
    }

    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        self.server.as_ref().map(|server| now + server.check_again_in(now))
    }

    /// Starts it again if it has died.
    pub fn watch(&mut self, now: Instant) {
        let Some(server) = &mut self.server else { return };
        match server.check(now) {
            Some(ServerEvent::Died { pid, status }) if !self.stopping => {
                shared::error!("embedded server died; restarting it", pid = pid, status = status);
            }
            Some(ServerEvent::Restarted { pid }) => shared::info!("embedded server restarted", pid = pid),
            Some(ServerEvent::StartFailed { why }) => shared::error!("embedded server cannot start", why = why),
            Some(ServerEvent::Died { .. }) | None => {}
        }
    }

    /// At once, without an orderly end.
    pub fn quit(&mut self) {
        if let Some(server) = &mut self.server {
            server.stop(StopMode::Immediate);
        }
    }

    /// It is asked to stop. False: it was before, or there is none.
    pub fn stop(&mut self) -> bool {
        match &mut self.server {
            Some(server) if !self.stopping => {
                self.stopping = true;
                server.stop(StopMode::Fast);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Nothing of it is left.
    pub fn stopped(&mut self) -> bool {
        self.server.as_mut().is_none_or(Embedded::stopped)
    }
}
