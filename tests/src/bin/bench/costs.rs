//! What one task costs: commits, WAL, dead row versions, CPU on both sides, system calls.
//!
//! Taken over one run of its own beside each of P1, P1b and P2, since looking costs too. System calls are counted in a
//! second, shorter run under strace; where that is not to be had, they are left out.

use crate::report::{Bound, Line};
use crate::rig::{Rig, number, stop, until_done};
use crate::works::{fill, serve_in};
use std::fs;
use std::process::{Command, Stdio};
use tests::{Supervisor, wait};

/// One kind of work: its rows are (group, input, live, max).
struct Kind {
    name: &'static str,
    live: &'static str,
    batch: bool,
    tasks: i64,
    traced: i64,
}

const KINDS: [Kind; 3] = [
    Kind { name: "P1one", live: "1 hour", batch: false, tasks: 5_000, traced: 1_000 },
    Kind { name: "P1b", live: "1 hour", batch: true, tasks: 10_000, traced: 2_000 },
    Kind { name: "P2", live: "0", batch: false, tasks: 2_000, traced: 500 },
];

pub fn measure(rig: &Rig, asked: impl Fn(&str) -> bool) -> Vec<Line> {
    KINDS.iter().filter(|kind| asked(kind.name)).flat_map(|kind| one(rig, kind)).collect()
}

fn one(rig: &Rig, kind: &Kind) -> Vec<Line> {
    eprintln!("{}: what a task costs", kind.name);
    let database = rig.queue(None);
    let launcher = serve_in(&database, true, kind.batch);
    let postmaster = rig.cluster.postmaster().unwrap_or(0);
    let read = |sql: &str| number(&database, sql);
    let (commits, wal, dead) = (
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')",
        "SELECT n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relid = 'public.task'::regclass",
    );
    fill(&database, &rows(kind, 100));
    until_done(&database, 100);
    settle_statistics();
    let before = (read(commits), read(wal), read(dead), ours(&launcher), servers(postmaster));
    database.run(&format!("INSERT INTO public.task (\"group\", input, live, \"max\") {}", rows(kind, kind.tasks)));
    let inserted = (read(wal), servers(postmaster));
    until_done(&database, 100 + kind.tasks);
    let after = (read(wal), ours(&launcher), servers(postmaster));
    // A session that lives on keeps what it has done to itself for a while; one that ends tells it.
    stop(&launcher);
    settle_statistics();
    let (commits, dead) = (read(commits), read(dead));
    let each = |value: f64| value / kind.tasks as f64;
    let line = |what: &str, unit: &'static str, value: f64| {
        Line::single(
            &format!("{}cost", kind.name),
            &format!("{} per task: {what}", kind.name),
            unit,
            value,
            Bound::None,
        )
    };
    let mut lines = vec![
        // The INSERT is one of them.
        line("commits", "commits", each(commits - before.0 - 1.0)),
        line("write-ahead log", "bytes", each(after.0 - inserted.0)),
        line("dead row versions", "rows", each(dead - before.2)),
        line("CPU of launcher, scheduler and workers", "us", each(after.1 - before.3) * 1e6),
        line("CPU of the server", "us", each(after.2 - inserted.1) * 1e6),
    ];
    lines.extend(system_calls(rig, kind).map(|calls| line("system calls of scheduler and workers", "calls", calls)));
    lines
}

fn rows(kind: &Kind, count: i64) -> String {
    format!("SELECT 'group', 'SELECT 1', interval '{}', 7 FROM generate_series(1, {count})", kind.live)
}

/// A backend tells what it has done when it is idle, and once a second at most.
fn settle_statistics() {
    std::thread::sleep(std::time::Duration::from_millis(1_500));
}

/// Seconds of CPU of the launcher, its children and theirs, living or reaped.
fn ours(launcher: &Supervisor<'_>) -> f64 {
    let mut pids = vec![launcher.pid()];
    pids.extend(launcher.schedulers().iter().map(|process| process.pid));
    let workers: f64 = launcher.workers().iter().map(|process| seconds(process.pid, &[11, 12])).sum();
    workers + pids.into_iter().map(|pid| seconds(pid, &[11, 12, 13, 14])).sum::<f64>()
}

/// The same of the server: the living by themselves, the gone as the postmaster's children.
fn servers(postmaster: i32) -> f64 {
    let folder = format!("/proc/{postmaster}/task/{postmaster}/children");
    let children = fs::read_to_string(folder).unwrap_or_default();
    let living = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    living.map(|pid: i32| seconds(pid, &[11, 12])).sum::<f64>() + seconds(postmaster, &[11, 12, 13, 14])
}

/// Fields of /proc/PID/stat behind the name, in clock ticks of a hundredth.
fn seconds(pid: i32, fields: &[usize]) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let field = |index: &usize| after.get(*index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    fields.iter().map(field).sum::<f64>() / 100.0
}

fn system_calls(rig: &Rig, kind: &Kind) -> Option<f64> {
    let database = rig.queue(None);
    let launcher = serve_in(&database, true, kind.batch);
    let scheduler = launcher.schedulers().first()?.pid;
    let counts = std::env::temp_dir().join(format!("bench-calls-{}", std::process::id()));
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&counts).args(["-p", &scheduler.to_string()]);
    let Ok(mut tracer) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        eprintln!("   strace cannot be started: system calls are not counted");
        stop(&launcher);
        return None;
    };
    let status = format!("/proc/{scheduler}/status");
    let traced = || fs::read_to_string(&status).is_ok_and(|text| !text.contains("TracerPid:\t0\n"));
    wait("strace is at it").within(std::time::Duration::from_secs(20)).until(traced);
    database.run(&format!("INSERT INTO public.task (\"group\", input, live, \"max\") {}", rows(kind, kind.traced)));
    until_done(&database, kind.traced);
    stop(&launcher);
    let _ = tracer.wait();
    let text = fs::read_to_string(&counts).unwrap_or_default();
    let _ = fs::remove_file(&counts);
    // "100.00    0.244775          13     18407      8887 total"
    let total = text.lines().rev().find(|line| line.ends_with(" total"))?;
    let calls: f64 = total.split_whitespace().nth(3)?.parse().ok()?;
    Some(calls / kind.traced as f64)
}
