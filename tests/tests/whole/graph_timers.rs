//! Timers: they fire their times once, on time, whatever is edited, deleted or missed.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::{Cluster, Database, Supervisor, sized, steadily};

use crate::asking::{all, linger, one};
use crate::graphs::{balanced, declare, ended, ready, set_clock, times, turn_clock};

const MODES: [&str; 5] = ["none", "last", "earliest", "latest", "random"];

/// A flow, a timer and a job without input per mode of catching up, hourly from the start of 2030 on.
fn declare_modes(database: &Database) {
    for mode in MODES {
        declare(
            database,
            &format!(
                "BEGIN; INSERT INTO mill.flow (name) VALUES ('{mode}'); INSERT INTO mill.job (flow, name) VALUES ('{mode}', '{mode}');
                 INSERT INTO mill.timer (name, flow, start, period, catchup) VALUES ('{mode}', '{mode}', '2030-01-01Z', '1 hour', '{mode}');
                 INSERT INTO mill.edge (job, from_timer) VALUES ('{mode}', '{mode}'); COMMIT"
            ),
        );
    }
}

fn hours(range: impl Iterator<Item = u32>) -> Vec<String> {
    range.map(|hour| format!("2030-01-{:02} {:02}:00", 1 + hour / 24, hour % 24)).collect()
}

/// Waits until the mode's job has run for all that it should, and compares. `from` is the hour of the last live time
/// before the gap, `to` the first one after it.
fn check_modes(mill: &Supervisor<'_>, database: &Database, from: u32, to: u32, cause: &str) {
    for mode in MODES {
        let missed = from + 1..to;
        let expected = match mode {
            "none" => vec![],
            "last" => hours(to - 1..to),
            "latest" => hours(missed.clone().rev()),
            _ => hours(missed.clone()),
        };
        let live = hours(to..to + 1);
        let seen = || -> Vec<String> {
            let after = format!("2030-01-{:02} {:02}:00", 1 + from / 24, from % 24);
            times(database, mode).into_iter().filter(|time| *time > after).collect()
        };
        mill.wait(&format!("{mode} has caught up after {cause}")).within(Duration::from_secs(30)).until(|| {
            let seen = seen();
            seen.len() == expected.len() + 1 && ended(database, mode, "true") == times(database, mode).len() as i64
        });
        let mut caught: Vec<String> = seen();
        caught.retain(|time| *time != live[0]);
        if mode == "random" {
            assert_ne!(caught, expected, "random, after {cause}");
            caught.sort();
        }
        assert_eq!(caught, expected, "{mode} after {cause}");
    }
}

#[test]
fn each_way_of_catching_up_does_what_it_says_whatever_the_cause() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    set_clock(&database, "2030-01-01 00:00:05Z");
    declare_modes(&database);
    mill.eventually("all have fired their first time", || MODES.iter().all(|mode| ended(&database, mode, "true") == 1));
    let skipped = |mode: &str| one::<i64>(&database, &format!("SELECT skipped FROM mill.timer WHERE name = '{mode}'"));

    // stalled: the scheduler stands still while the clock goes on
    let scheduler = Pid::from_raw(mill.schedulers()[0].pid);
    kill(scheduler, Signal::SIGSTOP).expect("stopped");
    turn_clock(&database, "10 hours");
    kill(scheduler, Signal::SIGCONT).expect("goes on");
    check_modes(&mill, &database, 0, 10, "a stall");
    assert_eq!(MODES.map(skipped), [9, 8, 0, 0, 0]);

    // paused: nothing fires, and resuming goes by the rule
    for mode in MODES {
        declare(&database, &format!("SELECT mill.pause('{mode}')"));
    }
    for hours in ["9 hours 30 min", "30 min"] {
        turn_clock(&database, hours);
        steadily("a paused timer fires nothing", Duration::from_millis(500), || {
            MODES.iter().all(|mode| times(&database, mode).iter().all(|time| time.as_str() <= "2030-01-01 10:00"))
        });
    }
    for mode in MODES {
        declare(&database, &format!("SELECT mill.resume('{mode}')"));
    }
    check_modes(&mill, &database, 10, 20, "a pause");
    assert_eq!(MODES.map(skipped), [18, 16, 0, 0, 0]);

    // down: nobody is there
    mill.signal(Signal::SIGTERM);
    mill.wait_gone(Duration::from_secs(20));
    turn_clock(&database, "10 hours");
    let mill = Supervisor::of(&database).start();
    check_modes(&mill, &database, 20, 30, "a downtime");
    assert_eq!(MODES.map(skipped), [27, 24, 0, 0, 0]);
    balanced(&database);
}

#[test]
fn old_times_are_cut_off_and_the_number_of_those_left_out_is_said() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    set_clock(&database, "2030-01-02 00:00:05Z");
    declare(
        &database,
        "BEGIN; INSERT INTO mill.job (name) VALUES ('j');
         INSERT INTO mill.timer (name, start, period, catchup, catchup_age) VALUES ('t', '2030-01-01Z', '1 hour', 'earliest', '3 hours 30 min');
         INSERT INTO mill.edge (job, from_timer) VALUES ('j', 't'); COMMIT",
    );
    mill.eventually("four times have run", || ended(&database, "j", "true") == 4);
    let mut seen = times(&database, "j");
    seen.sort();
    assert_eq!(seen, ["2030-01-01 21:00", "2030-01-01 22:00", "2030-01-01 23:00", "2030-01-02 00:00"]);
    assert_eq!(one::<i64>(&database, "SELECT skipped FROM mill.timer"), 21);
    mill.eventually("the log says it", || mill.log_contains("missed times skipped") && mill.log_contains("times=21"));
}

#[test]
fn a_timer_takes_effect_at_once_when_it_is_made_edited_disabled_or_deleted() {
    let database = Cluster::shared().database();
    // only the bell can be quick
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    ready(&mill, &database);
    set_clock(&database, "2030-01-01 00:00:00Z");
    declare(&database, "INSERT INTO mill.job (name) VALUES ('a'), ('b'), ('c'), ('d')");
    declare(
        &database,
        "BEGIN; INSERT INTO mill.timer (name, start, period) VALUES ('a', '2030-01-01 00:00:03Z', '1 hour'), ('b', '2030-01-01 00:00:03Z', '1 hour'),
            ('c', '2030-01-01 10:00Z', '1 hour'), ('d', '2030-01-01 00:00:03Z', '1 hour');
         INSERT INTO mill.edge (job, from_timer) SELECT n, n FROM unnest(ARRAY['a', 'b', 'c', 'd']) AS n; COMMIT",
    );
    mill.eventually("their next times are known", || one::<i64>(&database, "SELECT count(due) FROM mill.timer") == 4);
    // slept on: one is deleted, one disabled, one comes sooner
    declare(
        &database,
        "DELETE FROM mill.timer WHERE name = 'a'; UPDATE mill.timer SET enabled = false WHERE name = 'b'",
    );
    declare(&database, "UPDATE mill.timer SET start = '2030-01-01 00:00:02Z' WHERE name = 'c'");
    mill.wait("c and d have fired")
        .within(Duration::from_secs(10))
        .until(|| ended(&database, "c", "true") == 1 && ended(&database, "d", "true") == 1);
    steadily("a and b do not fire", Duration::from_millis(500), || {
        (ended(&database, "a", "true"), ended(&database, "b", "true")) == (0, 0)
    });
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.edge WHERE job = 'a'"), 0, "its edges went with it");
    // editing never replays the past
    turn_clock(&database, "5 hours");
    mill.eventually("d has fired the newest missed time and the present one", || times(&database, "d").len() == 3);
    declare(&database, "UPDATE mill.timer SET period = '10 min' WHERE name = 'd'");
    mill.eventually("its next time is computed", || {
        one::<Option<String>>(
            &database,
            "SELECT to_char(next AT TIME ZONE 'UTC', 'HH24:MI:SS') FROM mill.timer WHERE name = 'd'",
        )
        .as_deref()
            == Some("05:10:03")
    });
    assert_eq!(times(&database, "d").len(), 3);
    // moving its start back brings the new stretch, and only that
    declare(&database, "UPDATE mill.timer SET start = '2029-12-31 23:40:03Z' WHERE name = 'd'");
    mill.eventually("two older times have run", || ended(&database, "d", "at < '2030-01-01Z'") == 2);
    assert_eq!(times(&database, "d").len(), 5);
    balanced(&database);
}

#[test]
fn a_thousand_timers_of_one_second_all_fire() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let count = sized(200, 1000);
    declare(
        &database,
        &format!(
            "BEGIN; INSERT INTO mill.job (name, scheduled, input) SELECT 'j' || i, true, 'SELECT 1' FROM generate_series(1, {count}) AS i;
             INSERT INTO mill.timer (name, start, period) SELECT 't' || i, date_trunc('second', now()) + interval '1 day', '1 day' FROM generate_series(1, {count}) AS i;
             INSERT INTO mill.edge (job, from_timer) SELECT 'j' || i, 't' || i FROM generate_series(1, {count}) AS i; COMMIT"
        ),
    );
    mill.wait("all know their next time")
        .within(Duration::from_secs(60))
        .until(|| one::<i64>(&database, "SELECT count(due) FROM mill.timer") == count);
    // the moment comes
    database
        .run("UPDATE mill.meta SET clock = (SELECT min(due) FROM mill.timer) - clock_timestamp() + interval '-200 ms'");
    mill.wait("all have been activated")
        .within(Duration::from_secs(60))
        .until(|| one::<i64>(&database, "SELECT count(*) FROM public.task WHERE job IS NOT NULL") == count);
    let took: f64 = one(
        &database,
        "SELECT extract(epoch FROM max(k.touched) + m.clock - min(k.at))::float8 FROM mill.token k, mill.meta m GROUP BY m.clock",
    );
    println!("{count} timers of one second: the last was activated {took:.3} s after it");
    assert!(took < 60.0, "{took}");
    let order: bool = one(
        &database,
        "SELECT bool_and(id > before) FROM (SELECT job AS id, lag(job, 1, 0) OVER (ORDER BY id) AS before FROM public.task WHERE id = run_of) AS o",
    );
    assert!(order, "ordered by due, then id");
    balanced(&database);
}

#[test]
fn two_schedulers_on_one_database_fire_nothing_twice() {
    let database = Cluster::shared().database();
    let queue = |name: &str| serde_json::json!({"data": database.name(), "user": database.owner(), "table": name});
    let mill = Supervisor::of(&database).row(queue("other")).row(queue("third")).start();
    ready(&mill, &database);
    mill.eventually("three schedulers are there", || mill.schedulers().len() == 3);
    set_clock(&database, "2030-01-01 00:00:00Z");
    // the lock is taken away from under them: each of them believes that the graph is its own
    declare(
        &database,
        "CREATE OR REPLACE FUNCTION mill_private.s_watch_graph(held bool, armed bool) RETURNS TABLE (keeps bool, hears bool, used bool)
             LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
             'SELECT true, false, g.used FROM mill_private.s_check_graph(''{}'') g';
         ALTER TABLE mill.fired ADD COLUMN backend int NOT NULL DEFAULT pg_backend_pid();
         BEGIN; INSERT INTO mill.job (name, queue) VALUES ('j', 'public.task');
         INSERT INTO mill.timer (name, start, period, catchup) SELECT 't' || i, '2030-01-01 00:00:01Z', '1 s', 'earliest' FROM generate_series(1, 20) AS i;
         INSERT INTO mill.edge (job, from_timer) SELECT 'j', 't' || i FROM generate_series(1, 20) AS i;
         UPDATE mill.job SET threshold = 1; COMMIT;
         INSERT INTO mill.backfill (timer, lo, hi) SELECT 't' || i, '2030-01-01 00:00:01Z'::timestamptz - i * interval '10 s', '2030-01-01 00:00:01Z' FROM generate_series(1, 4) AS i",
    );
    // those that are to keep it are asked again every few seconds
    let keepers = || one::<i64>(&database, "SELECT count(DISTINCT backend) FROM mill.fired WHERE live > 0");
    mill.wait("another one fires too").within(Duration::from_secs(60)).until(|| keepers() >= 2);
    linger(Duration::from_secs(sized(3, 30)), "two schedulers compete for so many seconds of 20 timers");
    mill.eventually("the back-fills are over", || {
        one::<i64>(&database, "SELECT count(*) FROM mill.backfill WHERE finished IS NULL") == 0
    });
    declare(&database, "UPDATE mill.timer SET enabled = false");
    let (fires, backends): (i64, i64) = (
        one(&database, "SELECT count(*) FROM mill.fired"),
        one(&database, "SELECT count(DISTINCT backend) FROM mill.fired"),
    );
    println!("{fires} times were fired, by {backends} schedulers");
    let twice: i64 = one(&database, "SELECT count(*) FROM mill.fired WHERE live + filled <> 1");
    assert_eq!(twice, 0, "each timer's every second exactly once");
    let gaps: i64 = one(
        &database,
        "SELECT count(*) FROM mill.timer t WHERE extract(epoch FROM t.last - t.first) + 1 <> (SELECT count(*) FROM mill.fired d WHERE d.timer = t.id) \
         OR extract(epoch FROM t.last - t.first) + 1 <> (SELECT count(*) FROM mill.token k, mill.edge e WHERE e.from_timer = t.name AND e.id = ANY (k.delivered))",
    );
    assert_eq!(gaps, 0, "and none left out");
    balanced(&database);
}

#[test]
fn a_fire_that_was_lost_or_doubled_shows_in_the_books() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    set_clock(&database, "2030-01-01 00:00:00Z");
    declare(
        &database,
        "BEGIN; INSERT INTO mill.job (name) VALUES ('j'), ('k');
         INSERT INTO mill.timer (name, start, period) VALUES ('t', '2029-12-31Z', '1 day');
         INSERT INTO mill.edge (job, from_timer, shift) VALUES ('j', 't', '0'), ('k', 't', '1 day'); COMMIT",
    );
    mill.eventually("it has fired twice", || ended(&database, "k", "true") == 2);
    declare(&database, "UPDATE mill.timer SET enabled = false; SELECT mill.fire('t', '2029-11-01Z')");
    mill.eventually("and once by hand", || ended(&database, "k", "true") == 3);
    balanced(&database);
    let differs = |change: &str, expected: &[&str]| {
        let mut client = database.connect();
        let mut transaction = client.transaction().expect("a transaction");
        transaction.batch_execute(change).expect("the books are falsified");
        let rows = transaction.query("SELECT i.what FROM mill.integrity i ORDER BY 1", &[]).expect("the books");
        let said: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(said, expected, "{change}");
    };
    let less = "less was delivered than the timer has fired";
    differs("DELETE FROM mill.token WHERE at = '2029-12-31Z'", &[less]);
    differs("UPDATE mill.fired SET by_hand = 2 WHERE by_hand = 1", &[less, less]);
    differs(
        "UPDATE mill.token SET delivered = delivered || delivered, consumed = consumed || consumed WHERE at = '2029-11-01Z'",
        &["more was delivered than the timer has fired"],
    );
    differs(
        "UPDATE mill.fired SET live = 2, filled = -1 WHERE at = '2030-01-01Z'",
        &["timer \"t\" has fired this time 2 times by its own clock"],
    );
    // an edge that is made later owes nothing for what was fired before, and a deleted one takes its own along
    declare(
        &database,
        "INSERT INTO mill.job (name) VALUES ('l'); INSERT INTO mill.edge (job, from_timer) VALUES ('l', 't')",
    );
    balanced(&database);
    declare(&database, "DELETE FROM mill.edge WHERE job = 'j'");
    balanced(&database);
}

#[test]
fn month_ends_and_changes_of_the_clock_are_counted_on_the_wall() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    set_clock(&database, "2026-12-31 23:00Z");
    declare(
        &database,
        "BEGIN; INSERT INTO mill.job (name) VALUES ('month'), ('night');
         INSERT INTO mill.timer (name, start, period, timezone, catchup) VALUES ('month', '2026-01-31 12:00 Europe/Paris', '1 month', 'Europe/Paris', 'earliest');
         INSERT INTO mill.timer (name, start, cron, timezone, catchup) VALUES ('night', '2026-03-28Z', '30 2 * * *', 'Europe/Paris', 'none');
         INSERT INTO mill.edge (job, from_timer) VALUES ('month', 'month'), ('night', 'night'); COMMIT",
    );
    mill.eventually("a year of months", || ended(&database, "month", "true") == 12);
    let mut seen = times(&database, "month");
    seen.sort();
    let expected = [
        "2026-01-31 11:00",
        "2026-02-28 11:00",
        "2026-03-31 10:00",
        "2026-04-30 10:00",
        "2026-05-31 10:00",
        "2026-06-30 10:00",
        "2026-07-31 10:00",
        "2026-08-31 10:00",
        "2026-09-30 10:00",
        "2026-10-31 11:00",
        "2026-11-30 11:00",
        "2026-12-31 11:00",
    ];
    assert_eq!(seen, expected);
    declare(
        &database,
        "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('night', '2026-03-28Z', '2026-03-31Z'), ('night', '2026-10-24Z', '2026-10-27Z')",
    );
    mill.eventually("both nights", || ended(&database, "night", "true") == 6);
    let mut seen = times(&database, "night");
    seen.sort();
    // half past two is skipped in March, and comes twice in October: once, at the first showing
    let expected = [
        "2026-03-28 01:30",
        "2026-03-29 01:00",
        "2026-03-30 00:30",
        "2026-10-24 00:30",
        "2026-10-25 00:30",
        "2026-10-26 01:30",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_day_that_depends_on_the_day_before_waits_for_it_and_the_first_one_does_not() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    set_clock(&database, "2026-12-31 23:00Z");
    declare(
        &database,
        "CREATE TABLE bad (at timestamptz);
         INSERT INTO bad VALUES ('2026-03-30 03:00 Europe/Paris');
         BEGIN; INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name, input) VALUES ('f', 'day', 'SELECT 1 / (1 - (SELECT count(*) FROM bad WHERE bad.at = mill.at()))');
         INSERT INTO mill.timer (name, start, cron, timezone, catchup) VALUES ('daily', '2026-03-27 12:00Z', '0 3 * * *', 'Europe/Paris', 'none');
         INSERT INTO mill.edge (job, from_timer) VALUES ('day', 'daily');
         INSERT INTO mill.edge (job, from_job, shift, first) VALUES ('day', 'day', '1 day', true); COMMIT",
    );
    // latest first: every day but the first waits for the one before
    declare(
        &database,
        "INSERT INTO mill.backfill (timer, lo, hi, \"order\") VALUES ('daily', '2026-03-28Z', '2026-04-03Z', 'latest')",
    );
    mill.eventually("the third day has failed", || ended(&database, "day", "state = 'FAIL'") == 1);
    mill.eventually("the back-fill is over", || {
        one::<i64>(&database, "SELECT count(finished) FROM mill.backfill") == 1
    });
    assert_eq!(times(&database, "day"), ["2026-03-28 02:00", "2026-03-29 01:00", "2026-03-30 01:00"]);
    let missing: Vec<String> = one(&database, "SELECT missing FROM mill.waiting ORDER BY at LIMIT 1");
    assert_eq!(missing, ["job \"day\" shifted by 1 day"]);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.waiting"), 3);
    // mended, and begun anew where it failed: the rest follows
    declare(&database, "DELETE FROM bad; SELECT mill.rerun('day', '2026-03-30 01:00Z', 'failed')");
    mill.eventually("all days are through", || ended(&database, "day", "state = 'DONE'") == 6);
    assert_eq!(
        times(&database, "day")[3..],
        ["2026-03-30 01:00", "2026-03-31 01:00", "2026-04-01 01:00", "2026-04-02 01:00"]
    );
    assert_eq!(
        all::<String>(&database, "SELECT w::text FROM mill.waiting w").len(),
        1,
        "only the day after the last one"
    );
    balanced(&database);
}
