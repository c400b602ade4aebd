//! Messages to the service manager that has started us, in systemd's protocol: datagrams to the socket that
//! `NOTIFY_SOCKET` names. Without that variable nothing is sent.
//!
//! READY once every queue is served or has its reason; RELOADING and READY around a reload; STOPPING at the end;
//! WATCHDOG from the loop itself, at half of the time that the manager allows: a loop that stands still sends nothing
//! and is ended. A manager that does not read costs nothing: the socket does not block, and a lost WATCHDOG is followed
//! by the next one.

use nix::time::{ClockId, clock_gettime};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    next_beat: Instant,
    /// READY has been logged and sent since the last reload.
    announced: bool,
}

impl ServiceManager {
    /// As the environment says. `WATCHDOG_PID`, if it is set, must be ours.
    pub fn from_environment(environment: &dyn Fn(&str) -> Option<String>) -> ServiceManager {
        let address = environment("NOTIFY_SOCKET").and_then(|path| address(&path));
        let socket = address.and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        });
        let ours = environment("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let limit = environment("WATCHDOG_USEC").and_then(|text| text.parse::<u64>().ok()).filter(|usec| *usec > 0);
        let watchdog = limit.filter(|_| ours && socket.is_some()).map(|usec| Duration::from_micros(usec) / 2);
        ServiceManager { socket, watchdog, next_beat: Instant::now(), announced: false }
    }

    /// Every wanted queue is served or has its reason: logged and sent once.
    pub fn announce(&mut self, status: &str, slots: u32) {
        if !self.announced {
            shared::info!("launcher ready", slots = slots);
            self.announced = true;
            self.ready(status);
        }
    }

    /// The config has changed: READY is announced again.
    pub fn announce_again(&mut self) {
        self.announced = false;
    }

    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reloading the config", now.as_micros()));
    }

    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={status}"));
    }

    /// On every pass of the loop.
    pub fn beat(&mut self, now: Instant) {
        if let Some(pause) = self.watchdog.filter(|_| now >= self.next_beat) {
            self.next_beat = now + pause;
            self.send("WATCHDOG=1");
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.watchdog.map(|_| self.next_beat)
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// A path, or a name in the abstract namespace that begins with `@`.
fn address(path: &str) -> Option<SocketAddr> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name.as_bytes()).ok(),
        None => SocketAddr::from_pathname(path).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_beats_at_half_of_the_time_and_only_for_us() {
        let environment = |pid: String| {
            move |name: &str| match name {
                "NOTIFY_SOCKET" => Some("@pgmill-nobody".to_owned()),
                "WATCHDOG_USEC" => Some("4000000".to_owned()),
                "WATCHDOG_PID" => Some(pid.clone()),
                _ => None,
            }
        };
        let mut ours = ServiceManager::from_environment(&environment(std::process::id().to_string()));
        let now = Instant::now();
        ours.beat(now);
        assert_eq!(ours.deadline(), Some(now + Duration::from_secs(2)));
        assert_eq!(ServiceManager::from_environment(&environment("1".to_owned())).deadline(), None);
        assert_eq!(ServiceManager::from_environment(&|_| None).deadline(), None);
    }
}
