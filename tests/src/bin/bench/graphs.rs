//! The benchmarks of the graph: timers that are due together (P9), and a fan-out with its join (P10).

use crate::rig::{Queue, number, stop, until_ended};
use crate::works::serve;
use std::time::Duration;
use tests::{Database, wait};

const TIMERS: i64 = 1_000;
const TIMES: i64 = 2_000;

/// Seconds from the moment at which a thousand timers are due until the last of their jobs is activated.
pub fn timers(database: &Queue) -> f64 {
    clear(database);
    let launcher = database.launch().start();
    database.run(&format!(
        "BEGIN; INSERT INTO mill.job (name, input) SELECT 'j' || i, 'SELECT 1' FROM generate_series(1, {TIMERS}) AS i;
         INSERT INTO mill.timer (name, start, period) SELECT 't' || i, date_trunc('second', now()) + interval '1 day', '1 day' FROM generate_series(1, {TIMERS}) AS i;
         INSERT INTO mill.edge (job, from_timer) SELECT 'j' || i, 't' || i FROM generate_series(1, {TIMERS}) AS i; COMMIT"
    ));
    let known = || number(database, "SELECT count(due) FROM mill.timer") as i64;
    wait("all know their next time").within(Duration::from_secs(120)).until(|| known() == TIMERS);
    database.run("VACUUM ANALYZE");
    database.run("UPDATE mill.meta SET clock = (SELECT min(due) FROM mill.timer) - clock_timestamp() - interval '1 s'");
    let activated = || number(database, "SELECT count(*) FROM mill_private.run") as i64;
    wait("all are activated").within(Duration::from_secs(120)).until(|| activated() >= TIMERS);
    // as others see it: the rows are committed
    let took = number(database, "SELECT extract(epoch FROM mill.now() - min(k.at)) FROM mill.token k");
    stop(&launcher);
    clear(database);
    took
}

/// Tasks per second of nine jobs, one that fans out to seven and one that joins them, over many logical times.
pub fn nine_jobs(database: &Queue) -> f64 {
    clear(database);
    database.run(
        "BEGIN; INSERT INTO mill.flow (name) VALUES ('nine');
         INSERT INTO mill.job (flow, name, input, live, \"group\", \"max\") SELECT 'nine', 'n' || i, 'SELECT 1', '1 hour', 'group', 7 FROM generate_series(1, 9) AS i;
         INSERT INTO mill.edge (job, from_job) SELECT 'n' || i, 'n1' FROM generate_series(2, 8) AS i;
         INSERT INTO mill.edge (job, from_job) SELECT 'n9', 'n' || i FROM generate_series(2, 8) AS i;
         INSERT INTO mill.timer (name, start, period, catchup) VALUES ('t', '2020-01-01Z', '1 hour', 'none');
         INSERT INTO mill.edge (job, from_timer) VALUES ('n1', 't'); COMMIT",
    );
    database.run(&format!("SELECT mill.fire('t', '2020-01-01Z'::timestamptz + i * interval '1 hour') FROM generate_series(1, {TIMES}) AS i"));
    database.run("VACUUM ANALYZE");
    let launcher = serve(database, true);
    // by the counters, because old rows are deleted; watched as the reference is
    let ended = || number(database, "SELECT sum(total_successes) FROM mill.job_stat") as i64;
    until_ended(database, Duration::from_secs(600), || ended() >= 9 * TIMES);
    stop(&launcher);
    let wrong = number(database, "SELECT count(*) FROM mill.integrity");
    assert_eq!(wrong, 0.0, "the counters agree");
    let rate = crate::rig::rate(database);
    clear(database);
    rate
}

fn clear(database: &Database) {
    database.run(
        "DELETE FROM mill.timer; DELETE FROM mill.job; DELETE FROM mill.flow; UPDATE mill.meta SET clock = '0'; TRUNCATE public.task, mill_private.run",
    );
}
