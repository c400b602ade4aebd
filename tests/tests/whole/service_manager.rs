//! What a service manager is told, by a socket of the test's own in its place.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use tests::{Cluster, Signal, Supervisor, Workdir};

/// Everything that arrives at a notification socket.
struct Manager {
    socket: UnixDatagram,
    heard: Mutex<Vec<String>>,
}

impl Manager {
    fn at(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).expect("bind a socket");
        socket.set_nonblocking(true).expect("not to wait");
        Manager { socket, heard: Mutex::default() }
    }

    fn heard(&self) -> Vec<String> {
        let mut heard = self.heard.lock().expect("no panic");
        let mut bytes = [0; 4096];
        while let Ok(count) = self.socket.recv(&mut bytes) {
            heard.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
        }
        heard.clone()
    }

    fn count(&self, start: &str) -> usize {
        self.heard().iter().filter(|word| word.starts_with(start)).count()
    }
}

#[test]
fn the_service_manager_hears_of_ready_reload_watchdog_and_stop() {
    let database = Cluster::shared().database();
    let workdir = Workdir::new();
    let path = workdir.home().join("notify");
    let manager = Manager::at(&path);
    let launch = Supervisor::of(&database).env("NOTIFY_SOCKET", &path.to_string_lossy());
    let mill = launch.env("WATCHDOG_USEC", "400000").start();
    mill.eventually("it says that it is ready", || manager.count("READY=1") == 1);
    mill.eventually("its watchdog beats", || manager.count("WATCHDOG=1") >= 3);
    let before = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock")).as_micros();
    mill.signal(Signal::SIGHUP);
    mill.eventually("it is ready again after the reload", || manager.count("READY=1") == 2);
    let heard = manager.heard();
    let reloading = heard.iter().find(|word| word.starts_with("RELOADING=1")).expect("it said that it reloads");
    let usec = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("with the time");
    let after = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock")).as_micros();
    assert!((before..=after).contains(&usec.parse().expect("a number")), "{reloading}");

    // a mistake in the new config: the old one stays, and the manager does not wait for ever
    let text = std::fs::read_to_string(mill.config().expect("config")).expect("read the config");
    mill.rewrite_config("{");
    mill.signal(Signal::SIGHUP);
    mill.eventually("it is ready with the old one", || manager.count("READY=1\nSTATUS=config not reloaded") == 1);
    mill.rewrite_config(&text);

    // a launcher that stands still is silent
    mill.signal(Signal::SIGSTOP);
    let beats = manager.count("WATCHDOG=1");
    let since = Instant::now();
    tests::steadily("no beat", Duration::from_secs(1), || manager.count("WATCHDOG=1") <= beats + 1);
    mill.signal(Signal::SIGCONT);
    mill.eventually("it beats again", || manager.count("WATCHDOG=1") > beats + 1);
    assert!(since.elapsed() >= Duration::from_secs(1));

    mill.signal(Signal::SIGTERM);
    assert_eq!(mill.wait_exit(Duration::from_secs(15)).code(), Some(0));
    assert_eq!(manager.count("STOPPING=1"), 1, "{:?}", manager.heard());
}

#[test]
fn nobody_but_the_launcher_speaks_to_the_service_manager_and_a_deaf_one_costs_nothing() {
    let database = Cluster::shared().database();
    let workdir = Workdir::new();
    // nobody is there
    let path = workdir.home().join("nobody");
    let mill =
        Supervisor::of(&database).env("NOTIFY_SOCKET", &path.to_string_lossy()).env("WATCHDOG_USEC", "100000").start();
    let id = database.insert("SELECT current_setting('application_name')");
    mill.finished(&database, id);
    drop(mill);
    // somebody is there and never listens
    let manager = Manager::at(&path);
    let mill =
        Supervisor::of(&database).env("NOTIFY_SOCKET", &path.to_string_lossy()).env("WATCHDOG_USEC", "20000").start();
    let id = database.insert("SELECT pg_sleep(1)");
    mill.finished(&database, id);
    assert!(manager.count("") > 5);
}
