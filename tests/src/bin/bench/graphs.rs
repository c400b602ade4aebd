//! Timers that are due together, and a graph of nine jobs with fan-out and joins.

use crate::report::{Bound, Line};
use crate::rig::{Rig, number, stop};
use crate::works::{SLOTS, State};
use serde_json::json;
use std::time::{Duration, Instant};
use tests::{Database, Supervisor, eventually, wait};

const TIMERS: usize = 1_000;
/// Logical times of one round: three rounds are more than two thousand.
const TIMES: i64 = 700;

/// Fan-out to three, two joins, an edge behind each.
const NINE: &str = "BEGIN;
    INSERT INTO mill.flow (name, \"window\") VALUES ('nine', 64);
    INSERT INTO mill.job (flow, name, input, live, \"max\")
        SELECT 'nine', n, 'SELECT 1', '1 hour', 7 FROM unnest(ARRAY['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']) AS n;
    INSERT INTO mill.timer (name, flow, start, stop, period, catchup)
        VALUES ('hourly', 'nine', '2000-01-01Z', '2020-01-01Z', '1 hour', 'none');
    INSERT INTO mill.edge (job, from_timer) VALUES ('a', 'hourly');
    INSERT INTO mill.edge (job, from_job) VALUES ('b', 'a'), ('c', 'a'), ('d', 'a'), ('e', 'b'), ('e', 'c'), ('f', 'd'),
        ('f', 'e'), ('g', 'f'), ('h', 'f'), ('i', 'g'), ('i', 'h');
    COMMIT";

/// Waits until the queue runs jobs.
fn ready(database: &Database) {
    wait("the queue runs jobs").within(Duration::from_secs(60)).until(|| {
        let sql =
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = to_regclass('public.task') AND tgname LIKE 'mill_job_%'";
        number(database, sql) >= 5.0
    });
}

fn declare(database: &Database, sql: &str) {
    database.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// Seconds from the moment at which all are due until the last one has made its row.
pub fn timers(rig: &Rig, rounds: usize) -> Line {
    eprintln!("P9: {TIMERS} timers due in the same second");
    let seconds: Vec<f64> = (0..rounds).map(|_| together(rig)).collect();
    for (round, took) in seconds.iter().enumerate() {
        eprintln!("   round {}: {took:.3} s", round + 1);
    }
    let ones = vec![1.0; seconds.len()];
    let what = "1,000 timers due in the same second, each with one job: until all are activated";
    Line::new("P9", what, "s", seconds.clone(), ones, seconds, Bound::AtMost(1.0))
}

fn together(rig: &Rig) -> f64 {
    let database = rig.queue();
    let launcher = Supervisor::of(&database).key("max_workers", json!(SLOTS)).start();
    ready(&database);
    declare(
        &database,
        &format!(
            "BEGIN; INSERT INTO mill.job (name, input) SELECT 'job ' || n, 'SELECT 1' FROM generate_series(1, {TIMERS}) AS n;
             INSERT INTO mill.timer (name, start, period, catchup)
                 SELECT 'timer ' || n, date_trunc('second', clock_timestamp()) + interval '12 s', '1 day', 'none'
                   FROM generate_series(1, {TIMERS}) AS n;
             INSERT INTO mill.edge (job, from_timer) SELECT 'job ' || n, 'timer ' || n FROM generate_series(1, {TIMERS}) AS n;
             COMMIT"
        ),
    );
    let due = number(&database, "SELECT extract(epoch FROM max(start)) FROM mill.timer");
    let lead = due - number(&database, "SELECT extract(epoch FROM clock_timestamp())");
    assert!(lead > 1.0, "the timers were declared in time");
    std::thread::sleep(Duration::from_secs_f64(lead));
    let mut last = 0.0;
    wait("all are activated").within(Duration::from_secs(120)).until(|| {
        last = number(&database, "SELECT extract(epoch FROM clock_timestamp())");
        number(&database, "SELECT count(*) FROM public.task WHERE job IS NOT NULL") >= TIMERS as f64
    });
    stop(&launcher);
    last - due
}

pub fn prepare(rig: &Rig) -> State {
    let state = crate::works::twice(rig);
    let launcher = Supervisor::of(&state.work).key("max_workers", json!(SLOTS)).start();
    ready(&state.work);
    stop(&launcher);
    drop(launcher);
    declare(&state.work, NINE);
    state
}

/// Tasks per second of a back-fill through the graph.
pub fn nine(database: &Database) -> f64 {
    let ended = || number(database, "SELECT coalesce(sum(total_successes + total_failures), 0) FROM mill.job_stat");
    let fired = number(database, "SELECT coalesce(sum(fired), 0) FROM mill.backfill");
    let before = ended();
    let launcher = Supervisor::of(database).key("max_workers", json!(SLOTS)).start();
    ready(database);
    eventually("the launcher serves it", || !launcher.schedulers().is_empty());
    let began = Instant::now();
    declare(
        database,
        &format!(
            "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('hourly', '2000-01-01Z'::timestamptz + {fired} * interval '1 hour',
                 '2000-01-01Z'::timestamptz + {} * interval '1 hour')",
            fired + TIMES as f64
        ),
    );
    let all = 9.0 * TIMES as f64;
    wait("all have run").within(Duration::from_secs(300)).until(|| ended() - before >= all);
    let rate = all / began.elapsed().as_secs_f64();
    stop(&launcher);
    rate
}
