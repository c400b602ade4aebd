//! What the benchmarks stand on: a server of their own with fsync on, pgbench, and launchers.

use postgres::Statement;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tests::launch::Launch;
use tests::server_programs::{bin, version};
use tests::{Cluster, Database, Supervisor, wait};

/// Files of the write-ahead log that are there from the beginning.
const SEGMENTS: usize = 64;
/// How long pgbench runs for one reference.
const REFERENCE_SECONDS: u32 = 4;

pub struct Rig {
    pub cluster: Cluster,
}

/// A database with a queue, and the launcher program that serves it. Two programs never serve the same database: each makes a
/// catalog of its own version.
pub struct Queue {
    database: Database,
    program: Option<PathBuf>,
}

impl Deref for Queue {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

impl Queue {
    /// A launcher for this queue alone, not started yet.
    pub fn launch(&self) -> Launch<'_> {
        by(Supervisor::of(&self.database), self.program.as_deref())
    }
}

/// The same launcher from this program; without one, from the program of this build.
pub fn by<'d>(launch: Launch<'d>, program: Option<&Path>) -> Launch<'d> {
    match program {
        Some(program) => launch.program(program.to_owned()),
        None => launch,
    }
}

/// What pgbench has found.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub per_second: f64,
    pub latency_ms: f64,
}

impl Rig {
    pub fn start() -> Rig {
        let cluster = Cluster::configure()
            .setting("fsync", "on")
            .setting("full_page_writes", "on")
            .setting("synchronous_commit", "on")
            .setting("shared_buffers", "256MB")
            .setting("min_wal_size", "2GB")
            .setting("max_wal_size", "4GB")
            .setting("checkpoint_timeout", "30min")
            .setting("autovacuum_naptime", "10s")
            .setting("track_io_timing", "on")
            .max_connections(500)
            .start();
        let rig = Rig { cluster };
        rig.lay_in_segments();
        rig
    }

    /// A server that has run for a while writes its log over files that it has already; one that was just made stands still for
    /// each new one until sixteen megabytes of nothing are on disk, and whoever writes more meets that more often.
    fn lay_in_segments(&self) {
        let mut client = self.cluster.connect("postgres");
        for _ in 0..SEGMENTS {
            let next = "SELECT pg_logical_emit_message(false, 'bench', ''); SELECT pg_switch_wal()";
            client.batch_execute(next).expect("the server writes its log");
        }
        client.batch_execute("CHECKPOINT").expect("the server keeps the files for later");
    }

    pub fn describe(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        format!("{}, {cores} cores, load {load}, fsync on", version())
    }

    /// A database whose queue has been made by a launcher that is gone again.
    pub fn queue(&self, program: Option<&Path>) -> Queue {
        let queue = Queue { database: self.cluster.database(), program: program.map(Path::to_owned) };
        let launcher = queue.launch().start();
        let id = queue.insert("SELECT 1");
        launcher.finished(&queue, id);
        stop(&launcher);
        drop(launcher);
        queue.run("TRUNCATE public.task");
        queue
    }

    /// One script, as the database's owner.
    pub fn pgbench(&self, database: &Database, script: &str, arguments: &[&str]) -> Pace {
        let file = std::env::temp_dir().join(format!("bench-{}.sql", std::process::id()));
        fs::write(&file, script).expect("write a script for pgbench");
        let seconds = REFERENCE_SECONDS.to_string();
        let server = self.cluster.server();
        let mut command = Command::new(bin().join("pgbench"));
        command.arg("-n").args(["-T", &seconds]).args(arguments).arg("-f").arg(&file);
        command.arg("-h").arg(&server.socket_folder).args(["-p", &server.port.to_string()]);
        let output = command.args(["-U", database.owner(), database.name()]).output().expect("run pgbench");
        let _ = fs::remove_file(&file);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |start: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(start));
            line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse::<f64>().ok())
        };
        let failed = || panic!("pgbench: {}{said}", String::from_utf8_lossy(&output.stderr));
        Pace {
            per_second: number("tps = ").unwrap_or_else(failed),
            latency_ms: number("latency average = ").unwrap_or_else(failed),
        }
    }
}

/// Lets it finish what runs, and waits until it is gone.
pub fn stop(launcher: &Supervisor<'_>) {
    launcher.signal(tests::Signal::SIGINT);
    launcher.wait_gone(Duration::from_secs(60));
}

/// Waits until the number of finished rows has reached `count`.
pub fn until_done(database: &Database, count: i64) {
    until_ended(database, Duration::from_secs(300), || done(database) >= count);
}

/// Waits until all has ended. Whoever watches takes from the cores that are measured, and the reference has nobody who watches:
/// so the newest row is looked at first, and what waits and what runs, which the indexes know, only once that one does not wait.
pub fn until_ended(database: &Database, limit: Duration, mut ended: impl FnMut() -> bool) {
    let mut watcher = database.connect_superuser();
    watcher.batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off").expect("the server answers");
    let newest = "SELECT COALESCE((SELECT state = 'PLAN' FROM public.task ORDER BY id DESC LIMIT 1), false)";
    let busy = "SELECT EXISTS (SELECT FROM public.task WHERE state = 'PLAN' AND NOT held) \
                    OR EXISTS (SELECT FROM public.task WHERE state IN ('TAKE', 'WORK'))";
    let [newest, busy] = [newest, busy].map(|text| watcher.prepare(text).expect("the server answers"));
    let mut is = |what: &Statement| watcher.query_one(what, &[]).expect("the server answers").get::<_, bool>(0);
    wait("the tasks are done").within(limit).until(|| !is(&newest) && !is(&busy) && ended());
}

pub fn done(database: &Database) -> i64 {
    number(database, "SELECT count(*) FROM public.task WHERE state IN ('DONE', 'FAIL', 'GONE')") as i64
}

pub fn number(database: &Database, sql: &str) -> f64 {
    let row = database.query(&format!("SELECT ({sql})::float8"), &[]).expect("the server answers");
    row[0].get::<_, Option<f64>>(0).unwrap_or(f64::NAN)
}

/// Tasks per second between the first start and the last stop, by the server's clock.
pub fn rate(database: &Database) -> f64 {
    let failed = number(database, "SELECT count(*) FROM public.task WHERE state IN ('FAIL', 'GONE')");
    assert_eq!(failed, 0.0, "a benchmark's tasks do not fail");
    number(
        database,
        "SELECT count(*) / extract(epoch FROM max(stop) - min(start)) FROM public.task WHERE state = 'DONE'",
    )
}

/// Tasks per second over a while in the middle of a long backlog.
pub fn rate_over(database: &Database, span: Duration) -> f64 {
    let sql = "SELECT count(*) FROM public.task WHERE state = 'DONE'";
    let (began, before) = (Instant::now(), number(database, sql));
    std::thread::sleep(span);
    (number(database, sql) - before) / began.elapsed().as_secs_f64()
}
