//! The benchmarks that stand beside a reference.
//!
//! Those of timers and graphs are `graphs`.

use crate::report::Bound;
use crate::rig::{Queue, Rig, number, rate, rate_over, stop, until_done};
use crate::{alone, at_least, graphs};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tests::{Database, Supervisor, eventually, wait};

/// Eight tasks at once: the launcher and the scheduler have a slot each.
const SLOTS: i32 = 10;
const MANY: i64 = 20_000;
/// Rows that pgbench updates in the references.
const SETTLED: i64 = 20_000;

pub struct Bench {
    pub name: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub bound: Bound,
    /// With this launcher program, or with that of this build.
    pub prepare: fn(&Rig, Option<&Path>) -> State,
    pub work: fn(&Rig, &mut State) -> f64,
    pub reference: fn(&Rig, &mut State) -> f64,
    /// What else the same work tells.
    pub also: &'static [Also],
}

/// Another figure of a work that is measured anyway.
pub struct Also {
    pub name: &'static str,
    pub what: &'static str,
    pub bound: Bound,
    /// Out of what the work has left, and its own figure.
    pub figure: fn(&State, f64) -> f64,
    /// None: beside the same reference.
    pub reference: Option<fn(&Rig, &mut State) -> f64>,
}

/// The databases of one benchmark: where the work is done, where the reference, and what they need to remember.
pub struct State {
    pub work: Queue,
    pub reference: Queue,
    pub latencies: Vec<f64>,
}

pub const ALL: &[Bench] = &[
    Bench {
        name: "P1",
        what: "reuse, 8 workers, in batches; pgbench with SELECT 1 and one UPDATE",
        unit: "tasks/s",
        bound: at_least(0.9),
        prepare: twice,
        work: |_, state| reused(&state.work, MANY),
        reference: |rig, state| settle(rig, &state.reference),
        also: &[Also {
            name: "P1b",
            what: "the same beside pgbench with three commits",
            bound: at_least(4.0),
            figure: |_, rate| rate,
            reference: Some(|rig, state| three_commits(rig, &state.reference)),
        }],
    },
    Bench {
        name: "P1one",
        what: "the same without batches; pgbench with SELECT 1 and one UPDATE",
        unit: "tasks/s",
        bound: Bound::None,
        prepare: twice,
        work: |_, state| reused_in(&state.work, MANY, false),
        reference: |rig, state| settle(rig, &state.reference),
        also: &[],
    },
    Bench {
        name: "P2",
        what: "a process per task, pooled connections; pgbench -C",
        unit: "tasks/s",
        bound: at_least(5.0),
        prepare: twice,
        work: |_, state| single(&state.work, true, 3_000),
        reference: |rig, state| connecting(rig, &state.reference, "8").per_second,
        also: &[],
    },
    Bench {
        name: "P2own",
        what: "a process and a connection per task; pgbench -C",
        unit: "tasks/s",
        bound: at_least(0.8),
        prepare: twice,
        work: |_, state| single(&state.work, false, 1_000),
        reference: |rig, state| connecting(rig, &state.reference, "8").per_second,
        also: &[],
    },
    Bench {
        name: "P3",
        what: "default settings, one group, 500 tasks",
        unit: "tasks/s",
        bound: at_least(150.0),
        prepare: twice,
        work: |_, state| usual(&state.work),
        reference: alone,
        also: &[],
    },
    Bench {
        name: "P4",
        what: "INSERT to start, asleep, median; latency of pgbench -C -c 1",
        unit: "ms",
        bound: Bound::AtMost(1.0),
        prepare: twice,
        work: |_, state| {
            state.latencies = latencies(&state.work);
            percentile(&state.latencies, 50)
        },
        reference: |rig, state| connecting(rig, &state.reference, "1").latency_ms,
        also: &[Also {
            name: "P4p99",
            what: "the same, 99 of 100",
            bound: Bound::AtMost(3.0),
            figure: |state, _| percentile(&state.latencies, 99),
            reference: None,
        }],
    },
    Bench {
        name: "P5",
        what: "P1 with 1,000,000 waiting; with 1,000 waiting",
        unit: "tasks/s",
        bound: at_least(0.8),
        prepare: |rig, program| {
            let state = twice(rig, program);
            fill(&state.work, "SELECT 'group', 'SELECT 1', interval '1 hour', 7 FROM generate_series(1, 1000000)");
            state
        },
        work: |_, state| backlog(&state.work, false),
        reference: |_, state| thousand_at_a_time(&state.reference),
        also: &[],
    },
    Bench {
        name: "P6",
        what: "10,000 groups with 100 waiting each, one at a time per group; P1",
        unit: "tasks/s",
        bound: at_least(0.5),
        prepare: |rig, program| {
            let state = twice(rig, program);
            fill(
                &state.work,
                "SELECT 'group ' || g, 'SELECT 1', interval '1 hour', 0 \
                   FROM generate_series(1, 100) AS n, generate_series(1, 10000) AS g",
            );
            state
        },
        work: |_, state| backlog(&state.work, true),
        reference: |_, state| reused(&state.reference, MANY),
        also: &[],
    },
    Bench {
        name: "P7",
        what: "16 inserters, scheduler awake; without the trigger",
        unit: "inserts/s",
        bound: at_least(0.75),
        prepare: twice,
        work: |rig, state| inserts(rig, &state.work, true),
        reference: |rig, state| inserts(rig, &state.work, false),
        also: &[],
    },
    Bench {
        name: "P9",
        what: "1,000 timers due at once, until the last of their jobs is activated",
        unit: "s",
        bound: Bound::AtMost(1.0),
        prepare: twice,
        work: |_, state| graphs::timers(&state.work),
        reference: alone,
        also: &[],
    },
    Bench {
        name: "P10",
        what: "nine jobs, fan-out and join, 2,000 logical times; P1 without batches, which runs of jobs are never in",
        unit: "tasks/s",
        bound: at_least(0.5),
        prepare: twice,
        work: |_, state| graphs::nine_jobs(&state.work),
        reference: |_, state| reused_in(&state.reference, MANY, false),
        also: &[],
    },
];

pub fn twice(rig: &Rig, program: Option<&Path>) -> State {
    let state = State { work: rig.queue(program), reference: rig.queue(program), latencies: Vec::new() };
    let rows = "SELECT id, 'group', 'SELECT 1', now() - interval '1 min', now(), now(), 'DONE'::state, '1'";
    state.reference.run(&format!(
        "CREATE TABLE public.settled (LIKE public.task INCLUDING ALL); \
         INSERT INTO public.settled (id, \"group\", input, plan, start, stop, state, output) \
         {rows} FROM generate_series(1, {SETTLED}) AS id; \
         ALTER TABLE public.settled OWNER TO {}",
        tests::database::quote_ident(state.reference.owner())
    ));
    state.reference.run("VACUUM ANALYZE public.settled");
    state
}

/// Rows as (group, input, live, max), all visible at once.
pub fn fill(database: &Database, rows: &str) {
    database.run(&format!("INSERT INTO public.task (\"group\", input, live, \"max\") {rows}"));
    database.run("VACUUM ANALYZE public.task");
}

/// A launcher for eight tasks at once.
pub fn serve(queue: &Queue, pooled: bool) -> Supervisor<'_> {
    serve_in(queue, pooled, false)
}

/// The same, with batches or without.
pub fn serve_in(queue: &Queue, pooled: bool, batch: bool) -> Supervisor<'_> {
    let launch = queue.launch().key("max_workers", json!(SLOTS)).queue_key("lend", json!(pooled));
    launch.queue_key("batch", json!(batch)).start()
}

fn reused(queue: &Queue, count: i64) -> f64 {
    reused_in(queue, count, true)
}

fn reused_in(queue: &Queue, count: i64, batch: bool) -> f64 {
    queue.run("TRUNCATE public.task");
    fill(queue, &format!("SELECT 'group', 'SELECT 1', interval '1 hour', 7 FROM generate_series(1, {count})"));
    let launcher = serve_in(queue, true, batch);
    until_done(queue, count);
    stop(&launcher);
    rate(queue)
}

fn single(queue: &Queue, pooled: bool, count: i64) -> f64 {
    queue.run("TRUNCATE public.task");
    let launcher = serve(queue, pooled);
    fill(queue, &format!("SELECT 'group', 'SELECT 1', interval '0', 7 FROM generate_series(1, {count})"));
    until_done(queue, count);
    stop(&launcher);
    rate(queue)
}

fn usual(queue: &Queue) -> f64 {
    queue.run("TRUNCATE public.task");
    let launcher = queue.launch().start();
    queue.run("INSERT INTO public.task (input) SELECT 'SELECT 1' FROM generate_series(1, 500)");
    until_done(queue, 500);
    stop(&launcher);
    rate(queue)
}

/// Milliseconds from the INSERT's arrival at the server to the task's start, one at a time, each into a sleep.
fn latencies(queue: &Queue) -> Vec<f64> {
    queue.run("TRUNCATE public.task");
    let launcher = queue.launch().queue_key("idle", json!(0)).start();
    let mut client = queue.connect();
    let mut all = Vec::new();
    for round in 0..101 {
        eventually("it sleeps", || asleep(queue));
        let row = client.query_one("INSERT INTO public.task (input) VALUES ('SELECT 1') RETURNING id", &[]);
        let id: i64 = row.expect("insert a task").get(0);
        launcher.finished(queue, id);
        let sql = format!("SELECT extract(epoch FROM start - plan) * 1000 FROM public.task WHERE id = {id}");
        // The first one warms up.
        if round > 0 {
            all.push(number(queue, &sql));
        }
    }
    stop(&launcher);
    all
}

/// The scheduler holds its wake-up lock and has been doing nothing for a while.
fn asleep(database: &Database) -> bool {
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
                WHERE l.locktype = 'advisory' AND l.classid = 1835597827 AND l.mode = 'ExclusiveLock' \
                  AND a.state = 'idle' AND a.state_change < clock_timestamp() - interval '30 ms' \
                  AND a.datname = current_database()";
    number(database, sql) > 0.0
}

pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Some seconds in the middle of a backlog that does not end, with batches or without.
pub fn backlog(queue: &Queue, batch: bool) -> f64 {
    let launcher = serve_in(queue, true, batch);
    let began = crate::rig::done(queue);
    wait("it works").within(Duration::from_secs(60)).until(|| crate::rig::done(queue) > began + 500);
    let rate = rate_over(queue, Duration::from_secs(4));
    stop(&launcher);
    rate
}

fn thousand_at_a_time(queue: &Queue) -> f64 {
    let launcher = serve(queue, true);
    let mut seconds = 0.0;
    for _ in 0..12 {
        queue.run("TRUNCATE public.task");
        fill(queue, "SELECT 'group', 'SELECT 1', interval '1 hour', 7 FROM generate_series(1, 1000)");
        until_done(queue, 1000);
        seconds += 1000.0 / rate(queue);
    }
    stop(&launcher);
    12_000.0 / seconds
}

/// The group is full, so the scheduler is awake and starts nothing.
fn inserts(rig: &Rig, queue: &Queue, trigger: bool) -> f64 {
    queue.run("TRUNCATE public.task");
    let able = if trigger { "ENABLE" } else { "DISABLE" };
    queue.run(&format!("ALTER TABLE public.task {able} TRIGGER USER"));
    let launcher = queue.launch().start();
    let id = queue.insert("SELECT pg_sleep(600)");
    launcher.eventually("the group is full", || queue.task(id).is_some_and(|row| row["state"] == "WORK"));
    let pace = rig.pgbench(queue, "INSERT INTO task (input) VALUES ('SELECT 1');\n", &["-c", "16", "-j", "2"]);
    stop(&launcher);
    queue.run("ALTER TABLE public.task ENABLE TRIGGER USER");
    pace.per_second
}

fn settle(rig: &Rig, database: &Database) -> f64 {
    let script = format!(
        "\\set id random(1, {SETTLED})\nSELECT 1;\n\
         UPDATE settled SET stop = statement_timestamp(), output = '1' WHERE id = :id;\n"
    );
    let pace = rig.pgbench(database, &script, &["-c", "8", "-j", "2"]);
    database.run("VACUUM public.settled");
    pace.per_second
}

pub fn three_commits(rig: &Rig, database: &Database) -> f64 {
    let script = format!(
        "\\set id random(1, {SETTLED})\nUPDATE settled SET start = statement_timestamp() WHERE id = :id;\nSELECT 1;\n\
         UPDATE settled SET stop = statement_timestamp(), output = '1' WHERE id = :id;\n"
    );
    let pace = rig.pgbench(database, &script, &["-c", "8", "-j", "2"]);
    database.run("VACUUM public.settled");
    pace.per_second
}

fn connecting(rig: &Rig, database: &Database, clients: &str) -> crate::rig::Pace {
    rig.pgbench(database, "SELECT 1;\n", &["-C", "-c", clients])
}
