//! The server, its databases, and the two launchers, which are started again when they were killed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tests::database::quote_ident;
use tests::{Cluster, Database, Signal, Supervisor, wait};

use crate::chronicle::Chronicle;

pub const DATABASES: usize = 4;
/// Slots: two for the launcher and the churning database, one per scheduler, sixteen for workers.
const SLOTS: usize = 16 + DATABASES + 3;
const NAME: &str = "soak";
pub const CONNECTIONS: u32 = 60;
/// What a launcher with all its rows may have open, by default; and the session of the one that stands by.
pub const BUDGET: i64 = (SLOTS + 2 * (DATABASES + 1) + 2) as i64 + 1;
/// Where the library that lies about the time is, if it is installed.
const FAKETIME: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"];

#[derive(Debug)]
pub struct World {
    pub cluster: Cluster,
    pub databases: Vec<Database>,
    launchers: Mutex<Vec<Supervisor<'static>>>,
    /// Rows of databases that come and go.
    passing: Mutex<Vec<Value>>,
    pub chronicle: Chronicle,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library for `LD_PRELOAD`.
pub fn faketime() -> Option<&'static str> {
    FAKETIME.into_iter().find(|path| std::path::Path::new(path).exists())
}

impl World {
    pub fn make(chronicle: Chronicle) -> World {
        let cluster = Cluster::configure().max_connections(CONNECTIONS).start();
        let databases: Vec<Database> = (0..DATABASES).map(|_| cluster.database()).collect();
        let login = quote_ident(databases[0].login());
        for database in &databases {
            database.run(&format!("GRANT {} TO {login}", quote_ident(database.owner())));
        }
        databases[0].run(&format!("GRANT pg_signal_backend, pg_read_all_stats TO {login}"));
        let world = World { cluster, databases, launchers: Mutex::default(), passing: Mutex::default(), chronicle };
        for number in 0..2 {
            let launcher = world.launch(None);
            lock(&world.launchers).push(launcher);
            if number == 0 {
                for database in &world.databases {
                    let table = || database.query("SELECT FROM mill.queue, public.task LIMIT 0", &[]).is_some();
                    wait("the tables are made")
                        .within(Duration::from_secs(180))
                        .telling(|| world.describe())
                        .until(table);
                }
            }
        }
        world
    }

    /// What every launcher reads.
    fn config(&self) -> String {
        let mut rows: Vec<Value> = self
            .databases
            .iter()
            .map(|database| json!({"data": database.name(), "user": database.owner(), "sleep": 500, "close": "5 s"}))
            .collect();
        rows.extend(lock(&self.passing).iter().cloned());
        let connect = self.cluster.server().conninfo(self.databases[0].login());
        json!({"name": NAME, "control": "mill.sock", "connect": connect, "max_workers": SLOTS, "json": rows})
            .to_string()
    }

    /// Starts a launcher, whose clock may be off.
    pub fn launch(&self, clock: Option<&str>) -> Supervisor<'static> {
        let mut launch = Supervisor::bare().config_text(&self.config());
        if let (Some(clock), Some(library)) = (clock, faketime()) {
            launch = launch.env("LD_PRELOAD", library).env("FAKETIME", clock).env("DONT_FAKE_MONOTONIC", "1");
        }
        launch.launch()
    }

    /// Works on the launchers; nobody else does meanwhile.
    pub fn with_launchers<R>(&self, work: impl FnOnce(&mut Vec<Supervisor<'static>>) -> R) -> R {
        work(&mut lock(&self.launchers))
    }

    /// Rows of databases that come and go: both launchers read them.
    pub fn set_passing(&self, rows: Vec<Value>) {
        *lock(&self.passing) = rows;
        let text = self.config();
        self.with_launchers(|launchers| {
            for launcher in launchers.iter() {
                launcher.rewrite_config(&text);
                launcher.signal(Signal::SIGHUP);
            }
        });
    }

    /// Waits until one of the two leads and serves every queue.
    pub fn settle(&self) {
        wait("somebody leads").within(Duration::from_secs(180)).telling(|| self.describe()).until(|| {
            self.with_launchers(|launchers| {
                launchers.iter().any(|launcher| launcher.schedulers().len() >= DATABASES && launcher.status().is_some())
            })
        });
        tests::steadily("processes grow to their size", Duration::from_secs(3), || true);
    }

    pub fn describe(&self) -> String {
        let launchers: String = self.with_launchers(|all| all.iter().map(Supervisor::describe).collect());
        let databases: String = self.databases.iter().map(Database::describe).collect();
        format!("{databases}\n{launchers}\n-- server\n{}", last(&self.cluster.log(), 30))
    }
}

fn last(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
