//! What is broken, and how often.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use postgres::Client;
use rand::seq::IndexedRandom;
use tests::process::{self, Process};
use tests::{ShutdownMode, Signal, Supervisor};

use crate::world::{CONNECTIONS, World, faketime};

/// How long the processes of a killed launcher may stay.
const AFTERLIFE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    WorkerKilled,
    SchedulerKilled,
    LauncherKilled,
    ClockOff,
    SessionTerminated,
    SessionCancelled,
    ProcessFrozen,
    ServerCrashed,
    ServerAway,
    ConnectionsTaken,
}

/// Out of a hundred blows.
const SHARES: [(Fault, u32); 6] = [
    (Fault::WorkerKilled, 42),
    (Fault::SchedulerKilled, 12),
    (Fault::SessionTerminated, 22),
    (Fault::SessionCancelled, 18),
    (Fault::ProcessFrozen, 3),
    (Fault::LauncherKilled, 3),
];

/// The heavy ones come at least at these parts of the storm, however short it is.
const APPOINTED: [(f64, Fault); 10] = [
    (0.10, Fault::ServerCrashed),
    (0.20, Fault::LauncherKilled),
    (0.30, Fault::ConnectionsTaken),
    (0.35, Fault::ProcessFrozen),
    (0.40, Fault::ServerAway),
    (0.45, Fault::ClockOff),
    (0.55, Fault::ServerCrashed),
    (0.65, Fault::LauncherKilled),
    (0.75, Fault::ClockOff),
    (0.90, Fault::ServerCrashed),
];

pub struct Faults {
    world: &'static World,
    pub counts: BTreeMap<Fault, usize>,
    /// The longest that processes of a killed launcher have stayed.
    pub longest_afterlife: Duration,
    pub orphans: usize,
    appointed: usize,
    /// In a long storm the appointed ones come again and again.
    next_round: Instant,
    held: Vec<Client>,
    held_until: Instant,
    /// Stopped, and until when.
    frozen: Vec<(i32, Instant)>,
    /// How long a server that goes away stays away.
    away: Duration,
}

impl Faults {
    /// For a storm of that length.
    pub fn new(world: &'static World, storm: Duration) -> Faults {
        let now = Instant::now();
        Faults {
            world,
            counts: BTreeMap::new(),
            longest_afterlife: Duration::ZERO,
            orphans: 0,
            appointed: 0,
            next_round: now + Duration::from_secs(120),
            held: Vec::new(),
            held_until: now,
            frozen: Vec::new(),
            // minutes in a long storm: what timers miss by more than one is caught up
            away: (storm / 20).clamp(Duration::from_secs(3), Duration::from_secs(120)),
        }
    }

    /// One blow, after a pause; `part` of the storm is over.
    pub fn strike(&mut self, part: f64) {
        sleep(Duration::from_millis(rand::random_range(50..500)));
        if Instant::now() >= self.held_until {
            self.held.clear();
        }
        self.thaw(Instant::now());
        let fault = match APPOINTED.get(self.appointed) {
            Some((at, fault)) if part >= *at => {
                self.appointed += 1;
                *fault
            }
            _ if Instant::now() >= self.next_round => {
                self.next_round = Instant::now() + Duration::from_secs(rand::random_range(5..30));
                let heavy = [
                    Fault::ServerCrashed,
                    Fault::ConnectionsTaken,
                    Fault::ClockOff,
                    Fault::LauncherKilled,
                    Fault::ProcessFrozen,
                ];
                *heavy.choose(&mut rand::rng()).expect("there are some")
            }
            _ => self.drawn(),
        };
        if self.carry_out(fault) {
            self.world.chronicle.note(&format!("{fault:?}"));
            *self.counts.entry(fault).or_default() += 1;
        }
    }

    fn drawn(&self) -> Fault {
        let total: u32 = SHARES.iter().map(|(_, share)| share).sum();
        let mut ball = rand::random_range(0..total);
        for (fault, share) in SHARES {
            if ball < share {
                return fault;
            }
            ball -= share;
        }
        Fault::WorkerKilled
    }

    /// False: there was nothing to break.
    fn carry_out(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::WorkerKilled => self.kill(Supervisor::workers),
            Fault::SchedulerKilled => self.kill(Supervisor::schedulers),
            Fault::LauncherKilled => self.replace(None),
            Fault::ClockOff => {
                let clocks = ["+1h", "-1h", "+5y", "-5y"];
                let clock = clocks.choose(&mut rand::rng()).copied();
                faketime().is_some() && self.replace(clock)
            }
            Fault::SessionTerminated => self.session("pg_terminate_backend"),
            Fault::SessionCancelled => self.session("pg_cancel_backend"),
            Fault::ProcessFrozen => self.freeze(),
            Fault::ServerCrashed => {
                self.held.clear();
                self.world.cluster.restart(ShutdownMode::Immediate);
                true
            }
            Fault::ServerAway => {
                self.held.clear();
                self.world.cluster.stop(ShutdownMode::Fast);
                sleep(self.away);
                self.world.cluster.start_again();
                true
            }
            Fault::ConnectionsTaken => self.take_connections(),
        }
    }

    fn kill(&self, whom: fn(&Supervisor<'static>) -> Vec<Process>) -> bool {
        self.world.with_launchers(|launchers| {
            let all: Vec<i32> = launchers.iter().flat_map(whom).map(|one| one.pid).collect();
            let Some(pid) = all.choose(&mut rand::rng()) else { return false };
            if is_ours(*pid) {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            true
        })
    }

    /// A process that is there and does nothing for some seconds: a launcher, a scheduler or a worker.
    fn freeze(&mut self) -> bool {
        let all: Vec<i32> = self.world.with_launchers(|launchers| {
            let children = launchers.iter().flat_map(Supervisor::children).map(|one| one.pid);
            children.chain(launchers.iter().map(Supervisor::pid)).collect()
        });
        let Some(pid) = all.choose(&mut rand::rng()).copied().filter(|pid| is_ours(*pid)) else { return false };
        let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
        self.frozen.push((pid, Instant::now() + Duration::from_millis(rand::random_range(500..8000))));
        true
    }

    /// Those whose time is over go on, if they are still there.
    fn thaw(&mut self, now: Instant) {
        self.frozen.retain(|(pid, until)| {
            if now < *until {
                return true;
            }
            if is_ours(*pid) {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGCONT);
            }
            false
        });
    }

    /// Kills one of the launchers, sees to it that all of its processes go, and starts another in its place.
    fn replace(&mut self, clock: Option<&str>) -> bool {
        let (stayed, left) = self.world.with_launchers(|launchers| {
            let number = rand::random_range(0..launchers.len());
            let victim = launchers.remove(number);
            let began = Instant::now();
            victim.kill9(victim.pid());
            let gone = tests::wait("all go with their launcher").within(AFTERLIFE);
            let gone = gone.attempt(|| victim.exit_status().is_some() && victim.children().is_empty());
            let (stayed, left) = (began.elapsed(), if gone.is_some() { 0 } else { victim.children().len() });
            self.world.chronicle.note(&format!("launcher {} killed and gone after {stayed:?}", victim.pid()));
            self.world.chronicle.keep(&victim);
            (stayed, left)
        });
        let next = self.world.launch(clock);
        self.world.chronicle.note(&format!("launcher {} started, clock {clock:?}", next.pid()));
        self.world.with_launchers(|launchers| launchers.push(next));
        self.longest_afterlife = self.longest_afterlife.max(stayed);
        self.orphans += left;
        true
    }

    /// Any session of ours, whoever it is and whatever it does.
    fn session(&self, how: &str) -> bool {
        let sql = format!(
            "SELECT {how}(pid) FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)' \
             AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
        );
        let asked = self.world.cluster.server().try_connect("postgres", "postgres");
        asked.and_then(|mut client| client.query(&sql, &[])).is_ok_and(|rows| !rows.is_empty())
    }

    /// All but a few, for some seconds.
    fn take_connections(&mut self) -> bool {
        let server = self.world.cluster.server();
        while self.held.len() < CONNECTIONS as usize {
            match server.try_connect(self.world.databases[0].owner(), "postgres") {
                Ok(client) => self.held.push(client),
                Err(_) => break,
            }
        }
        self.held.truncate(self.held.len().saturating_sub(4));
        self.held_until = Instant::now() + Duration::from_secs(rand::random_range(2..5));
        true
    }

    pub fn end(&mut self) {
        self.held.clear();
        let last = self.frozen.iter().map(|(_, until)| *until).max();
        self.thaw(last.unwrap_or_else(Instant::now));
    }
}

/// A process may have ended since it was seen, and then the number is nobody's, or a stranger's.
fn is_ours(pid: i32) -> bool {
    process::find(pid).is_some_and(|one| one.title.starts_with("pgmill: "))
}
