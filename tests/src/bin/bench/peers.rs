//! What other queues need for the same no-op work, in the same run: pg_cron, graphile-worker, procrastinate.
//!
//! They come by their own package managers into a temporary folder. One that cannot be had here is said and left out;
//! nothing of it is judged.

use crate::report::{Bound, Line};
use crate::rig::Rig;
use crate::works::three_commits;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::{Cluster, Database, wait};

const JOBS: usize = 5_000;
const CRON_JOBS: usize = 400;

/// Jobs per second, or why it is left out.
type Peer = fn(&Rig) -> Result<f64, String>;

/// A folder that goes when it is done with.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn measure(rig: &Rig, rounds: usize) -> Vec<Line> {
    let peers: [(&str, Peer); 4] = [
        ("pg_cron, jobs that are due together", cron),
        ("graphile-worker, 8 at once", |rig| graphile(rig, "single", JOBS)),
        ("graphile-worker in batches, each job asks SELECT 1", |rig| graphile(rig, "batched", 4 * JOBS)),
        ("procrastinate, 8 at once", procrastinate),
    ];
    let database = crate::works::twice(rig, None).reference;
    let mut lines = Vec::new();
    for (what, run) in peers {
        eprintln!("peer: {what}");
        let (mut work, mut reference) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            match run(rig) {
                Ok(rate) => {
                    work.push(rate);
                    reference.push(three_commits(rig, &database));
                    eprintln!("   {rate:.0} jobs/s beside {:.0}", reference.last().copied().unwrap_or(0.0));
                }
                Err(why) => {
                    eprintln!("   left out: {why}");
                    break;
                }
            }
            // Minutes apart: once is enough.
            if what.starts_with("pg_cron") {
                break;
            }
        }
        if !work.is_empty() {
            let ratios = work.iter().zip(&reference).map(|(work, reference)| work / reference).collect();
            lines.push(Line::new("peer", what, "jobs/s", work, reference, ratios, Bound::None));
        }
    }
    lines
}

/// Runs a program to its end; its output, or why there is none.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{name}: {}", words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed")))
}

fn folder(name: &str) -> Result<Folder, String> {
    let path = std::env::temp_dir().join(format!("bench-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).map_err(|error| error.to_string())?;
    Ok(Folder(path))
}

/// Where a peer finds its database.
fn at<'a>(command: &'a mut Command, database: &Database) -> &'a mut Command {
    let server = database.server();
    command
        .env("PGHOST", &server.socket_folder)
        .env("PGPORT", server.port.to_string())
        .env("PGUSER", database.owner())
        .env("PGDATABASE", database.name())
}

fn last_number(text: &str) -> Result<f64, String> {
    let number = text.lines().rev().find_map(|line| line.trim().parse().ok());
    number.ok_or_else(|| "it told no number".to_owned())
}

/// A cluster of its own, since it must be loaded at the start. All jobs are due at the full minute.
fn cron(_: &Rig) -> Result<f64, String> {
    // "postgres (PostgreSQL) 15.14 (Debian ..)"
    let version = tests::server_programs::version().trim_start_matches(|c: char| !c.is_ascii_digit());
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    let package = format!("postgresql-{major}-cron");
    let installed = || said(Command::new("dpkg").args(["-s", &package])).is_ok();
    if !installed() {
        said(Command::new("apt-get").args(["install", "-y", "-q", &package]))?;
    }
    let cluster = Cluster::configure()
        .setting("fsync", "on")
        .setting("shared_preload_libraries", "pg_cron")
        .setting("cron.database_name", "postgres")
        .setting("cron.use_background_workers", "on")
        .setting("max_worker_processes", "64")
        .start();
    let mut client = cluster.connect("postgres");
    let mut run = |sql: &str| client.batch_execute(sql).map_err(|error| error.to_string());
    run("CREATE EXTENSION pg_cron")?;
    run(&format!(
        "SELECT cron.schedule('job ' || n, '* * * * *', 'SELECT 1') FROM generate_series(1, {CRON_JOBS}) AS n"
    ))?;
    let mut rate = f64::NAN;
    wait("all its jobs have run once").within(Duration::from_secs(180)).until(|| {
        let sql = "SELECT count(*)::float8, (count(*) / nullif(extract(epoch FROM max(end_time) - min(start_time)), 0))::float8 \
                     FROM cron.job_run_details WHERE status = 'succeeded'";
        let row = client.query_one(sql, &[]).expect("its counters");
        rate = row.get::<_, Option<f64>>(1).unwrap_or(f64::NAN);
        row.get::<_, f64>(0) >= CRON_JOBS as f64
    });
    Ok(rate)
}

const GRAPHILE: &str = r#"
const { run, makeWorkerUtils, Logger } = require("graphile-worker");
const { Pool } = require("pg");
const jobs = Number(process.argv[2]), batched = process.argv[3] === "batched";
const logger = new Logger(() => () => {});
(async () => {
  const pgPool = new Pool({ max: 10 });
  const utils = await makeWorkerUtils({ pgPool, logger });
  await utils.migrate();
  await pgPool.query("SELECT graphile_worker.add_job('nothing') FROM generate_series(1, $1::int)", [jobs]);
  let done = 0, over;
  const all = new Promise((resolve) => { over = resolve; });
  const began = process.hrtime.bigint();
  const ask = batched ? (helpers) => helpers.query("SELECT 1") : async () => {};
  const taskList = { nothing: async (_, helpers) => { await ask(helpers); if (++done === jobs) over(); } };
  const worker = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const preset = batched ? { worker } : {};
  const runner = await run({ pgPool, logger, concurrency: 8, noHandleSignals: true, taskList, preset });
  await all;
  if (batched) await runner.stop();
  console.log(jobs / (Number(process.hrtime.bigint() - began) / 1e9));
  if (!batched) await runner.stop();
  process.exit(0);
})().catch((error) => { console.error(error.message); process.exit(1); });
"#;

/// Whatever it keeps for a while counts as done when it is written down.
fn graphile(rig: &Rig, how: &str, jobs: usize) -> Result<f64, String> {
    let folder = cached("graphile", |path| {
        fs::write(path.join("package.json"), "{}").map_err(|error| error.to_string())?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "graphile-worker"]).current_dir(path);
        said(&mut npm).map(|_| ())
    })?;
    fs::write(folder.join("run.js"), GRAPHILE).map_err(|error| error.to_string())?;
    let database = rig.cluster.database();
    let mut node = Command::new("node");
    node.arg("run.js").arg(jobs.to_string()).arg(how).current_dir(&folder);
    last_number(&said(at(&mut node, &database))?)
}

const PROCRASTINATE: &str = r#"
import asyncio, logging, sys, time
import procrastinate
logging.disable(logging.CRITICAL)
jobs = int(sys.argv[1])
app = procrastinate.App(connector=procrastinate.PsycopgConnector())
@app.task(name="nothing")
async def nothing():
    pass
async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await nothing.batch_defer_async(*[{} for _ in range(jobs)])
        began = time.monotonic()
        await app.run_worker_async(concurrency=8, wait=False, install_signal_handlers=False)
        print(jobs / (time.monotonic() - began))
asyncio.run(main())
"#;

fn procrastinate(rig: &Rig) -> Result<f64, String> {
    let folder = cached("procrastinate", |path| {
        said(Command::new("python3").args(["-m", "venv"]).arg(path.join("venv")))?;
        let mut pip = Command::new(path.join("venv/bin/pip"));
        said(pip.args(["install", "--quiet", "procrastinate", "psycopg[binary,pool]"])).map(|_| ())
    })?;
    fs::write(folder.join("run.py"), PROCRASTINATE).map_err(|error| error.to_string())?;
    let database = rig.cluster.database();
    let mut python = Command::new(folder.join("venv/bin/python"));
    python.arg("run.py").arg((JOBS / 5).to_string()).current_dir(&folder);
    last_number(&said(at(&mut python, &database))?)
}

/// Made once per run of the benchmarks.
fn cached(name: &str, make: impl Fn(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    thread_local! {
        static MADE: std::cell::RefCell<Vec<(String, Folder)>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let known =
        MADE.with_borrow(|made| made.iter().find(|(known, _)| known == name).map(|(_, folder)| folder.0.clone()));
    if let Some(path) = known {
        return Ok(path);
    }
    let folder = folder(name)?;
    make(&folder.0)?;
    let path = folder.0.clone();
    MADE.with_borrow_mut(|made| made.push((name.to_owned(), folder)));
    Ok(path)
}
