//! A host whose clock is wrong, and jumps while we run: what is due is decided by the server's clock alone, and time
//! limits are counted on the monotonic one.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tests::{Cluster, Database, Supervisor, sized};

use crate::asking::one;
use crate::graphs::{declare, ready};

/// Where the library that lies about the time is, if it is installed.
const LIBRARIES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"];

const HOUR: f64 = 3600.0;
const FIVE_YEARS: f64 = 5.0 * 365.0 * 24.0 * HOUR;

#[test]
fn a_host_clock_that_is_off_and_jumps_changes_neither_schedules_nor_time_limits() {
    let Some(library) = LIBRARIES.into_iter().find(|path| Path::new(path).exists()) else {
        tests::skip("a clock that is off", "libfaketime is not installed (apt-get install faketime)");
        return;
    };
    let database = Cluster::shared().database();
    let folder = tests::Desk::new();
    let clock = folder.write("clock", &format!("{FIVE_YEARS:+}"));
    let mill = Supervisor::of(&database)
        .row_key("sleep", 200)
        .env("LD_PRELOAD", library)
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_TIMESTAMP_FILE", &clock.display().to_string())
        .start();
    ready(&mill, &database);
    database.run("CREATE TABLE public.ran (what text, at timestamptz DEFAULT clock_timestamp()); GRANT ALL ON public.ran TO PUBLIC");
    let note = |what: &str| format!("INSERT INTO public.ran (what) VALUES (''{what}'')");
    declare(
        &database,
        &format!(
            "INSERT INTO mill.job (name, input, schedule_interval) VALUES ('each', '{}', '1 s'); \
             INSERT INTO mill.job (name, input) VALUES ('node', '{}'); \
             INSERT INTO mill.timer (name, period) VALUES ('beat', '1 s'); \
             INSERT INTO mill.edge (job, from_timer) VALUES ('node', 'beat')",
            note("each"),
            note("node")
        ),
    );
    let all = vec![-FIVE_YEARS, -HOUR, HOUR, FIVE_YEARS, 0.0, -HOUR, FIVE_YEARS, -FIVE_YEARS];
    for offset in sized(vec![-FIVE_YEARS, HOUR, FIVE_YEARS], all) {
        fs::write(&clock, format!("{offset:+}")).expect("set the clock");
        assert_host_clock_is_off(&mill, &database, offset);
        assert_due_times_and_limits_hold(&mill, &database, offset);
    }
    let skipped: i64 = one(&database, "SELECT skipped FROM mill.timer");
    assert_eq!(skipped, 0, "no time was missed");
    let off: Vec<i64> = crate::asking::all(
        &database,
        "SELECT extract(epoch FROM t.at - t.start)::bigint FROM public.task t WHERE t.job IS NOT NULL AND t.start IS NOT NULL \
         AND abs(extract(epoch FROM t.at - t.start)) > 60",
    );
    assert!(off.is_empty(), "logical times are the server's: {off:?}");
}

/// The log has the host's time.
fn assert_host_clock_is_off(mill: &Supervisor<'_>, database: &Database, offset: f64) {
    let mark = mill.log().mark();
    let told = database.insert_with("DO 'BEGIN RAISE NOTICE $$tick$$; END'", "group = 'told'");
    mill.finished(database, told);
    let line = mill
        .eventually("its log has the line", || mill.log().since(mark).into_iter().find(|line| line.contains("tick")));
    let moment = line.split(' ').next().unwrap_or_default();
    let off: f64 =
        one(database, &format!("SELECT extract(epoch FROM timestamptz '{moment}' - clock_timestamp())::float8"));
    assert!((off - offset).abs() < 120.0, "the host's clock is off by {off} s, not by {offset}: {line}");
}

/// Tasks planned for later, with a time limit, or too old, a job and a timer, while the host's clock is wrong.
fn assert_due_times_and_limits_hold(mill: &Supervisor<'_>, database: &Database, offset: f64) {
    let began: f64 = one(database, "SELECT extract(epoch FROM clock_timestamp())::float8");
    let runs = |what: &str| -> i64 {
        one(database, &format!("SELECT count(*) FROM public.ran WHERE what = '{what}' AND at > to_timestamp({began})"))
    };
    let planned = database.insert_with("SELECT 1", "plan = clock_timestamp() + interval '1.5 s', group = 'later'");
    let started = Instant::now();
    let limited = database.insert_with("SELECT pg_sleep(600)", "timeout = '700 ms', group = 'limited'");
    let expired =
        database.insert_with("SELECT 1", "plan = clock_timestamp() - interval '2 h', active = '1 h', group = 'old'");
    let row = mill.finished(database, limited);
    let took = started.elapsed();
    assert!(row["state"] == "FAIL" && row["reason"] == "timeout", "{offset}: {row:#}");
    assert!(took >= Duration::from_millis(700), "{offset}: ended after {took:?}");
    assert_eq!(mill.finished(database, expired)["state"], "GONE", "{offset}");
    let row = mill.finished(database, planned);
    let early: bool = one(database, &format!("SELECT start < plan FROM public.task WHERE id = {planned}"));
    assert!(row["state"] == "DONE" && !early, "{offset}: {row:#}");
    mill.wait("jobs and timers go on").within(Duration::from_secs(60)).until(|| runs("each") >= 2 && runs("node") >= 2);
    let most: i64 = one(database, &format!("SELECT ceil(extract(epoch FROM clock_timestamp()) - {began})::bigint + 2"));
    assert!(
        runs("each") <= most && runs("node") <= most,
        "{offset}: {} and {} in {most} s",
        runs("each"),
        runs("node")
    );
}
