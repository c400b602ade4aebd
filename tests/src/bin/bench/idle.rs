//! What rest costs: databases whose schedulers sleep, for a minute; and the memory of idle workers, one in each of them.

use crate::report::{Bound, Line};
use crate::rig::{Rig, by, number, stop};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tests::{Database, Supervisor};

const SPAN: Duration = Duration::from_secs(60);
/// The statements of the one backstop poll that falls into the span: the wake-up lock is released, held rows released, what sessions begin
/// with looked at, the table walked, the wake-up lock taken, rows released and walked once more, the next plan asked for, the catalog's
/// marker and the graph's, and once a minute the queue is measured and old rows and old runs are looked for.
const BACKSTOP_QUERIES: f64 = 13.0;

/// How long sessions are given to become idle: one that has gone idle reports what it has done only after ten seconds.
const SETTLING: Duration = Duration::from_secs(15);

pub fn measure(rig: &Rig, count: usize) -> Vec<Line> {
    eprintln!("P8: {count} databases asleep for {} s", SPAN.as_secs());
    let databases: Vec<Database> = (0..count).map(|_| rig.cluster.database()).collect();
    // What the server does by itself would count as well.
    databases[0].run("ALTER SYSTEM SET autovacuum = off");
    databases[0].run("SELECT pg_reload_conf()");
    let launcher = serve(&databases, None);
    let schedulers: Vec<i32> = launcher.schedulers().iter().map(|process| process.pid).collect();
    assert_eq!(schedulers.len(), count, "every database has its scheduler");
    // The launcher has a session of its own, which proves that it leads: there, what schedulers ask cannot be told apart.
    let home =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg_conf%'";
    // The counters are read from there, since a session in a counted database is counted, and so is its login.
    let outside = databases.iter().find(|database| number(database, home) > 0.0).unwrap_or(&databases[0]);
    let quiet: Vec<&Database> = databases.iter().filter(|database| database.name() != outside.name()).collect();
    let names: Vec<String> = quiet.iter().map(|database| format!("'{}'", database.name())).collect();
    let commits = || {
        let sql = format!("SELECT sum(xact_commit) FROM pg_stat_database WHERE datname IN ({})", names.join(", "));
        number(outside, &sql)
    };
    std::thread::sleep(SETTLING);
    let before = commits();
    let (cpu, own) = (ticks(&schedulers), ticks(&[launcher.pid()]));
    std::thread::sleep(SPAN);
    let (cpu, own) = (ticks(&schedulers) - cpu, ticks(&[launcher.pid()]) - own);
    let queries = commits() - before;
    let pss = largest_mb(&schedulers);
    let worker = idle_workers_mb(&launcher, &databases);
    stop(&launcher);
    databases[0].run("ALTER SYSTEM RESET autovacuum");
    databases[0].run("SELECT pg_reload_conf()");
    let share = cpu / 100.0 / SPAN.as_secs_f64() * 100.0 / count as f64;
    let launchers = own / 100.0 / SPAN.as_secs_f64() * 100.0;
    let allowed = BACKSTOP_QUERIES * quiet.len() as f64;
    let what = |text: &str| format!("{text} ({count} databases)");
    vec![
        Line::single("P8", &what("queries of sleeping schedulers in 60 s"), "queries", queries, Bound::AtMost(allowed)),
        Line::single("P8cpu", &what("a sleeping scheduler's share of a core"), "percent", share, Bound::AtMost(0.2)),
        Line::single("P8own", &what("the launcher's share of a core meanwhile"), "percent", launchers, Bound::None),
        Line::single("P8mem", &what("memory of a sleeping scheduler (PSS)"), "MB", pss, Bound::AtMost(2.0)),
        Line::single("P8work", &what("memory of an idle worker, one in each (PSS)"), "MB", worker, Bound::AtMost(0.5)),
    ]
}

/// Megabytes of a sleeping scheduler and of an idle worker, the largest of `count` each, under this launcher program.
pub fn memory_mb(rig: &Rig, program: Option<&Path>, count: usize) -> [f64; 2] {
    let databases: Vec<Database> = (0..count).map(|_| rig.cluster.database()).collect();
    let launcher = serve(&databases, program);
    std::thread::sleep(SETTLING);
    let schedulers: Vec<i32> = launcher.schedulers().iter().map(|process| process.pid).collect();
    let scheduler = largest_mb(&schedulers);
    let worker = idle_workers_mb(&launcher, &databases);
    stop(&launcher);
    [scheduler, worker]
}

/// A launcher that has run a task in each of them.
fn serve<'d>(databases: &'d [Database], program: Option<&Path>) -> Supervisor<'d> {
    let mut launch = Supervisor::bare().key("max_workers", json!(2 * databases.len() + 4));
    for database in databases {
        launch = launch.and(database);
    }
    let launcher = by(launch.queue_key("idle", json!(1)), program).start();
    for database in databases {
        let id = database.insert("SELECT 1");
        launcher.finished(database, id);
    }
    launcher
}

/// The largest of workers whose tasks sleep, one in each database.
fn idle_workers_mb(launcher: &Supervisor<'_>, databases: &[Database]) -> f64 {
    let ids: Vec<i64> = databases.iter().map(|database| database.insert("SELECT pg_sleep(120)")).collect();
    for (database, id) in databases.iter().zip(ids) {
        launcher.eventually("a task sleeps", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    }
    // The row is WORK before the process has started, and some moments pass before it has all that it needs.
    launcher.eventually("every task has its worker", || launcher.workers().len() == databases.len());
    std::thread::sleep(Duration::from_secs(1));
    let workers: Vec<i32> = launcher.workers().iter().map(|process| process.pid).collect();
    largest_mb(&workers)
}

fn largest_mb(pids: &[i32]) -> f64 {
    pids.iter().map(|pid| pss_kb(*pid)).fold(0.0, f64::max) / 1024.0
}

/// Clock ticks of CPU, a hundred to the second.
fn ticks(pids: &[i32]) -> f64 {
    pids.iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).map_or(0.0, |stat| used(&stat))).sum()
}

fn used(stat: &str) -> f64 {
    let after = stat.rsplit(") ").next().unwrap_or_default();
    let fields: Vec<&str> = after.split(' ').collect();
    let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    field(11) + field(12)
}

fn pss_kb(pid: i32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|rest| rest.trim().split(' ').next()).and_then(|kb| kb.parse().ok()).unwrap_or(f64::NAN)
}
