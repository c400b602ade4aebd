//! Back-fills: long stretches of past times in small steps, behind live work, through any death.

use std::time::{Duration, Instant};

use tests::{Cluster, Supervisor, sized, steadily};

use crate::asking::one;
use crate::graphs::{balanced, declare, ended, ready};

/// Resident memory of a process, in KiB.
fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("0");
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

#[test]
fn a_long_stretch_in_a_window_of_four_is_flat_and_neither_repeats_nor_skips() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let minutes = sized(1_500, 525_600);
    declare(
        &database,
        "BEGIN; INSERT INTO mill.flow (name, \"window\") VALUES ('past', 4);
         INSERT INTO mill.job (flow, name) VALUES ('past', 'one'), ('past', 'two'); INSERT INTO mill.job (name) VALUES ('live');
         INSERT INTO mill.timer (name, start, period, catchup) VALUES ('minutely', '2020-01-01Z', '1 min', 'none'), ('secondly', date_trunc('second', now()), '1 s', 'none');
         INSERT INTO mill.edge (job, from_timer) VALUES ('one', 'minutely'), ('live', 'secondly');
         INSERT INTO mill.edge (job, from_job) VALUES ('two', 'one'); COMMIT",
    );
    mill.eventually("the live timer fires", || ended(&database, "live", "true") >= 2);
    let before = resident_kib(mill.schedulers()[0].pid);
    declare(
        &database,
        &format!(
            "INSERT INTO mill.backfill (timer, lo, hi, \"order\") VALUES ('minutely', '2025-01-01Z', '2025-01-01Z'::timestamptz + {minutes} * interval '1 min', 'random')"
        ),
    );
    let fired = || one::<i64>(&database, "SELECT fired FROM mill.backfill");
    let mut widest = 0;
    for third in 1..=2 {
        mill.wait("a third more").within(Duration::from_secs(3600)).until(|| {
            widest = widest.max(one::<i32>(&database, "SELECT mill_private.count_open_times('past')"));
            fired() >= minutes * third / 3
        });
        if third == 1 {
            // it can be paused, and goes on
            declare(&database, "UPDATE mill.backfill SET paused = true");
            let paused_at = fired();
            steadily("a paused back-fill fires at most its window", Duration::from_millis(500), || {
                fired() <= paused_at + 4
            });
            declare(&database, "UPDATE mill.backfill SET paused = false");
        }
        let scheduler = mill.schedulers()[0].pid;
        mill.kill9(scheduler);
        mill.wait("another scheduler is there")
            .within(Duration::from_secs(30))
            .until(|| mill.schedulers().iter().any(|process| process.pid != scheduler));
    }
    mill.wait("it is over").within(Duration::from_secs(7200)).until(|| {
        widest = widest.max(one::<i32>(&database, "SELECT mill_private.count_open_times('past')"));
        one::<i64>(&database, "SELECT count(finished) FROM mill.backfill") == 1
            && one::<i64>(
                &database,
                "SELECT s.total_successes FROM mill.job_stat s JOIN mill.job j ON j.id = s.job WHERE j.name = 'two'",
            ) >= minutes
    });
    assert!(widest <= 4, "{widest} times were open at once");
    for job in ["one", "two"] {
        let wrong: i64 = one(
            &database,
            &format!(
                "SELECT count(*) FROM generate_series('2025-01-01Z'::timestamptz, '2025-01-01Z'::timestamptz + {} * interval '1 min', '1 min') AS g (at) \
                 LEFT JOIN mill.token k ON k.at = g.at AND k.job = (SELECT id FROM mill.job WHERE name = '{job}') \
                 WHERE k.activations IS DISTINCT FROM 1",
                minutes - 1
            ),
        );
        assert_eq!(wrong, 0, "job {job}: every minute exactly once");
    }
    let low: bool =
        one(&database, "SELECT bool_and(priority = -1000) FROM mill_private.run WHERE at < now() - interval '1 month'");
    assert!(low, "behind live work");
    let after = resident_kib(mill.schedulers()[0].pid);
    println!("scheduler: {before} KiB before, {after} KiB after {minutes} times; at most {widest} open");
    assert!(after < before + 16 * 1024, "{before} KiB before, {after} KiB after");
    let late: f64 = one(
        &database,
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM k.touched - k.at))::float8 FROM mill.token k JOIN mill.job j ON j.id = k.job WHERE j.name = 'live'",
    );
    println!("live timers fired {late:.3} s after their time (median)");
    assert!(late < 5.0, "{late}");
    declare(&database, "DELETE FROM mill.timer");
    balanced(&database);
}

#[test]
fn a_back_fill_opens_no_more_times_than_its_window() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let times = sized(60, 2_000);
    // jobs for workers: a time is open until the last of them has ended
    declare(
        &database,
        &format!(
            "BEGIN; INSERT INTO mill.flow (name, \"window\") VALUES ('past', 4);
             INSERT INTO mill.job (flow, name, input, live, \"max\", crash_wait, retry_period) SELECT 'past', n, 'SELECT 1', '1 hour', 3, '0', '10 ms' FROM unnest(ARRAY['one', 'two']) AS n;
             INSERT INTO mill.job (flow, name) VALUES ('past', 'between');
             INSERT INTO mill.timer (name, start, stop, period, catchup) VALUES ('t', '2025-01-01Z', '2026-01-01Z', '1 min', 'none');
             INSERT INTO mill.edge (job, from_timer) VALUES ('one', 't');
             INSERT INTO mill.edge (job, from_job) VALUES ('between', 'one'), ('two', 'between');
             INSERT INTO mill.backfill (timer, lo, hi, \"order\") VALUES ('t', '2025-01-01Z', '2025-01-01Z'::timestamptz + {times} * interval '1 min', 'latest'); COMMIT"
        ),
    );
    let done = || {
        one::<i64>(
            &database,
            "SELECT s.total_successes FROM mill.job_stat s JOIN mill.job j ON j.id = s.job WHERE j.name = 'two'",
        )
    };
    let (mut widest, mut killed) = (0, false);
    let began = Instant::now();
    mill.wait("all have run").within(Duration::from_secs(sized(120, 3600))).until(|| {
        widest = widest.max(one::<i32>(&database, "SELECT mill_private.count_open_times('past')"));
        if !killed && done() >= times / 2 {
            killed = true;
            mill.kill9(mill.schedulers()[0].pid);
        }
        done() == times
    });
    println!("{times} times of three jobs in {:?}, at most {widest} open", began.elapsed());
    assert!((1..=4).contains(&widest), "{widest} times were open at once");
    let once: i64 = one(&database, "SELECT count(*) FROM mill.token WHERE activations = 1");
    assert_eq!(once, 3 * times);
    balanced(&database);
}

#[test]
fn a_scheduler_that_dies_between_two_steps_of_a_back_fill_repeats_nothing() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database)
        .fault("scheduler.after_backfill:kill@2")
        .fault("scheduler.before_fire:kill@2")
        .start();
    ready(&mill, &database);
    declare(
        &database,
        "BEGIN; INSERT INTO mill.job (name) VALUES ('j');
         INSERT INTO mill.timer (name, start, period, catchup) VALUES ('t', '2025-01-01Z', '1 min', 'none');
         INSERT INTO mill.edge (job, from_timer) VALUES ('j', 't');
         INSERT INTO mill.backfill (timer, lo, hi, \"order\") VALUES ('t', '2025-01-01Z', '2025-01-01 02:00Z', 'latest'); COMMIT",
    );
    mill.wait("all have run")
        .within(Duration::from_secs(60))
        .until(|| ended(&database, "j", "at < '2025-02-01'") == 120);
    declare(&database, "DELETE FROM mill.timer");
    let twice: i64 = one(&database, "SELECT count(*) FROM mill.token WHERE activations <> 1");
    assert_eq!(twice, 0);
    balanced(&database);
}
