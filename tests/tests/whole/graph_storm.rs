//! The nine-job example through a storm: random kills of workers, schedulers and the server, and every job runs exactly
//! once per logical time.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::cluster::ShutdownMode;
use tests::{Cluster, Supervisor, sized};

use crate::asking::{all, linger};
use crate::graphs::{balanced, declare, ready};

/// One that has just gone is no error.
fn kill9(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Fan-out, two joins, an edge to another flow, a failure edge, a threshold. `b` always fails.
const NINE: &str = "BEGIN;
    INSERT INTO mill.flow (name, \"window\") VALUES ('nine', 8); INSERT INTO mill.flow (name) VALUES ('beyond');
    INSERT INTO mill.job (flow, name, input, live, crash_wait, retry_period)
        SELECT CASE WHEN n IN ('g', 'i') THEN 'beyond' ELSE 'nine' END, n,
               CASE n WHEN 'b' THEN 'SELECT 1 / 0' WHEN 'd' THEN NULL ELSE 'SELECT 1' END, '1 hour', '0', '10 ms'
          FROM unnest(ARRAY['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']) AS n;
    UPDATE mill.job SET threshold = 1 WHERE name = 'i';
    INSERT INTO mill.timer (name, flow, start, stop, period, catchup) VALUES ('hourly', 'nine', '2020-01-01Z', '2021-01-01Z', '1 hour', 'none');
    INSERT INTO mill.edge (job, from_timer) VALUES ('a', 'hourly');
    INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('b', 'a', 'success'), ('c', 'a', 'success'), ('d', 'a', 'success'),
        ('e', 'b', 'done'), ('e', 'c', 'success'), ('f', 'd', 'success'), ('f', 'e', 'success'), ('g', 'f', 'success'),
        ('h', 'b', 'failure'), ('i', 'g', 'success'), ('i', 'c', 'failure');
    COMMIT";

#[test]
fn nine_jobs_run_exactly_once_per_time_through_random_kills() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(&database, NINE);
    let times: i64 = sized(25, 2000);
    declare(
        &database,
        &format!(
            "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('hourly', '2020-01-01Z', '2020-01-01Z'::timestamptz + {times} * interval '1 hour')"
        ),
    );
    // by the books: old rows are deleted, and a run that was interrupted or crashed leaves a row of the same activation
    let done = || {
        let sql = "SELECT coalesce(sum(s.total_successes + s.total_failures), 0)::bigint FROM mill.job_stat s";
        database.look(sql, &[]).map_or(0, |rows| rows[0].get::<_, i64>(0))
    };
    let began = Instant::now();
    let (mut workers, mut schedulers, mut servers) = (0, 0, 0);
    while done() < 9 * times {
        assert!(
            began.elapsed() < Duration::from_secs(sized(240, 7200)),
            "{} of {} are done\n{}",
            done(),
            9 * times,
            mill.describe()
        );
        linger(Duration::from_millis(rand::random_range(100..400)), "kills come at random moments");
        match rand::random_range(0..100) {
            0..50 => {
                if let Some(worker) = mill.workers().first() {
                    kill9(worker.pid);
                    workers += 1;
                }
            }
            50..60 => {
                if let Some(scheduler) = mill.schedulers().first() {
                    kill9(scheduler.pid);
                    schedulers += 1;
                }
            }
            60..63 => {
                cluster.stop(ShutdownMode::Immediate);
                cluster.start_again();
                servers += 1;
            }
            _ => {}
        }
    }
    println!(
        "{} runs, {workers} workers, {schedulers} schedulers, {servers} servers killed, in {:?}",
        9 * times,
        began.elapsed()
    );
    mill.wait("nothing is left to do").within(Duration::from_secs(60)).until(|| {
        let sql = "SELECT (SELECT count(*) FROM mill_private.run WHERE at < '2026-01-01' AND outcome IS NULL) \
                        + (SELECT count(*) FROM public.task WHERE at < '2026-01-01' AND state NOT IN ('DONE', 'FAIL', 'GONE'))";
        database.look(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 0)
    });
    let wrong: Vec<String> = all(
        &database,
        &format!(
            "SELECT concat_ws(' ', j.name, g.at, k.activations) \
               FROM mill.job j CROSS JOIN generate_series('2020-01-01Z'::timestamptz, '2020-01-01Z'::timestamptz + {} * interval '1 hour', '1 hour') AS g (at) \
               LEFT JOIN mill.token k ON k.job = j.id AND k.at = g.at WHERE k.activations IS DISTINCT FROM 1 \
             UNION ALL SELECT concat_ws(' ', j.name, s.total_successes, s.total_failures) FROM mill.job_stat s JOIN mill.job j ON j.id = s.job \
              WHERE s.total_successes + s.total_failures <> {times} \
             UNION ALL SELECT concat_ws(' ', r.job, r.at) FROM mill_private.run r GROUP BY r.job, r.at HAVING count(DISTINCT COALESCE(r.activation, r.id)) > 1 \
             UNION ALL SELECT concat_ws(' ', t.job, t.at) FROM public.task t GROUP BY t.job, t.at HAVING count(DISTINCT t.run_of) > 1 LIMIT 20",
            times - 1
        ),
    );
    assert!(wrong.is_empty(), "not exactly once: {wrong:#?}");
    balanced(&database);
}
