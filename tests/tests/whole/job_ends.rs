//! How runs of jobs end: failures with their waits, crashes that are counted once, interruptions that count nowhere.

use std::time::Duration;

use tests::{Cluster, Database, ShutdownMode, Signal, Supervisor, sized, steadily};

use crate::job_fixture::{self, insert, running, runs, stat, status};
use crate::queries::{one, refusal};

/// total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes
#[track_caller]
fn counters(database: &Database, job: i32) -> [i64; 6] {
    let sql = "SELECT ARRAY[total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes] \
               FROM mill.job_stat WHERE job = $1";
    let counts: Vec<i64> = crate::queries::one_with(database, sql, &[&job]);
    counts.try_into().expect("six numbers")
}

/// A job whose run sleeps until it is ended, the first time; afterwards it does nothing.
fn sleeper(database: &Database, more_columns: &str, more_values: &str) -> i32 {
    database.connect().batch_execute("CREATE TABLE slept ()").expect("a table");
    insert(
        database,
        "sleeper",
        &format!("input, schedule_interval{more_columns}"),
        &format!(
            "'BEGIN; INSERT INTO slept DEFAULT VALUES; COMMIT; SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM slept) = 1 THEN 600 ELSE 0 END)', \
             '1 day'{more_values}"
        ),
    )
}

/// Waits until the sleeper sleeps, so that its next run will know that it has slept already.
#[track_caller]
fn asleep(mill: &Supervisor<'_>, database: &Database, job: i32) -> (i64, i32, i32) {
    let run = running(mill, database, job);
    mill.eventually("it has left its mark", || one::<bool>(database, "SELECT EXISTS (SELECT FROM slept)"));
    run
}

#[test]
fn the_waits_of_a_failing_job_double_within_the_jitter_and_stop_at_max_retries() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let tries: i64 = sized(4, 8);
    let job = insert(
        &database,
        "failing",
        "input, schedule_interval, retry_period, max_retries, fixed_schedule",
        &format!("'SELECT 1/0', '1 hour', '1 min', {tries}, false"),
    );
    for failure in 1..tries {
        mill.eventually("it has failed once more", || counters(&database, job)[2] == failure);
        let wait: f64 = stat(&database, job, "extract(epoch FROM next_start - last_finish)::float8");
        let wanted = (60.0 * f64::from(1 << (failure - 1))).min(5.0 * 3600.0);
        assert!((wanted * 0.875..=wanted * 1.125).contains(&wait), "after failure {failure}: {wait} s");
        // it waits outside of the queue, and nothing but its time keeps it back
        let sql = format!(
            "SELECT r.failures::bigint, r.attempt::bigint, \
                    r.ordered AND NOT r.held AND r.due > mill.now() AND NOT EXISTS (SELECT FROM public.task t WHERE t.run = r.id) \
               FROM mill_private.run r WHERE r.job = {job} AND r.outcome IS NULL"
        );
        let rows = database.query(&sql, &[]).expect("an answer");
        let found: Vec<(i64, i64, bool)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        assert_eq!(found, [(failure, failure, true)]);
        job_fixture::skip_to_next_start(&database, job);
    }
    mill.eventually("it is paused", || status(&database, job).0 == "Paused");
    assert_eq!(counters(&database, job), [tries, 0, tries, 0, tries, 0]);
    assert!(status(&database, job).1.contains(&format!("failed {tries} time")), "{:?}", status(&database, job));
    // one activation: the same time, the attempts counted on
    let (times, rows, last): (i64, i64, i32) = {
        let sql = format!("SELECT count(DISTINCT at), count(*), max(attempt) FROM mill.run WHERE job = {job}");
        let rows = database.query(&sql, &[]).expect("an answer");
        (rows[0].get(0), rows[0].get(1), rows[0].get(2))
    };
    assert_eq!((times, rows, i64::from(last)), (1, tries, tries));
    database
        .connect()
        .batch_execute(&format!("UPDATE mill.job SET scheduled = true, input = 'SELECT 1' WHERE id = {job}"))
        .expect("resumed");
    assert_eq!(counters(&database, job)[4], 0, "from zero");
    job_fixture::skip_to_next_start(&database, job);
    mill.eventually("it succeeds", || counters(&database, job)[1] == 1);
}

#[test]
fn a_fixed_schedule_never_retries_later_than_its_next_slot() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = insert(&database, "fixed", "input, schedule_interval", "'SELECT 1/0', '30 s'");
    let cron = insert(&database, "cron", "input, cron", "'SELECT 1/0', '*/30 * * * * *'");
    job_fixture::skip_to_next_start(&database, job);
    mill.eventually("its next start is known", || stat::<bool>(&database, cron, "next_start IS NOT NULL"));
    job_fixture::skip_to_next_start(&database, cron);
    for job in [job, cron] {
        mill.eventually("it has failed", || counters(&database, job)[2] >= 1);
        mill.eventually("it is tried again at its next slot", || {
            stat::<bool>(&database, job, "COALESCE(next_start - last_finish <= interval '30 s', false)")
        });
    }
}

/// The run has been counted as one crash, and its successor waits for crash_wait.
#[track_caller]
fn assert_one_crash(mill: &Supervisor<'_>, database: &Database, job: i32) {
    mill.wait("the crash is found").within(Duration::from_secs(30)).until(|| runs(database, job) == ["crashed"]);
    assert_eq!(counters(database, job), [1, 0, 0, 1, 0, 1], "{}", mill.describe());
    let wait: f64 = stat(database, job, "extract(epoch FROM next_start - last_finish)::float8");
    assert!((299.0..=340.0).contains(&wait), "{wait} s");
    let row =
        database.query(&format!("SELECT error, reason FROM public.task WHERE job = {job} AND state = 'FAIL'"), &[]);
    let row = &row.expect("an answer")[0];
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("ERROR:  task crashed", "crashed"));
}

/// When its time has come it runs again, as another attempt of the same time.
#[track_caller]
fn assert_runs_again(mill: &Supervisor<'_>, database: &Database, job: i32, first: &str, counters_then: [i64; 6]) {
    mill.wait("it has run again").within(Duration::from_secs(30)).until(|| runs(database, job) == [first, "succeeded"]);
    assert_eq!(counters(database, job), counters_then);
    let sql = format!(
        "SELECT count(DISTINCT at) = 1 AND max(attempt) = 2 AND count(DISTINCT run_of) = 1 FROM mill.run WHERE job = {job}"
    );
    assert!(one::<bool>(database, &sql));
}

const AFTER_A_CRASH: [i64; 6] = [2, 1, 0, 1, 0, 0];
const AFTER_AN_INTERRUPTION: [i64; 6] = [1, 1, 0, 0, 0, 0];

#[test]
fn a_killed_worker_is_one_crash_and_its_wait_is_kept_over_restarts() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = sleeper(&database, "", "");
    let (_, _, worker) = asleep(&mill, &database, job);
    assert_eq!(counters(&database, job), [1, 0, 0, 1, 0, 1], "a running job shows its run as a crash until it ends");
    mill.kill9(worker);
    assert_one_crash(&mill, &database, job);
    assert!(status(&database, job).1.contains("crashed"), "{:?}", status(&database, job));
    let next: String = stat(&database, job, "next_start::text");
    drop(mill);
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    steadily("the wait is kept", Duration::from_secs(1), || {
        stat::<String>(&database, job, "next_start::text") == next && runs(&database, job) == ["crashed"]
    });
    job_fixture::skip_to_next_start(&database, job);
    assert_runs_again(&mill, &database, job, "crashed", AFTER_A_CRASH);
}

#[test]
fn a_killed_scheduler_and_a_killed_launcher_are_one_crash_of_what_ran() {
    for who in ["scheduler", "launcher"] {
        let database = Cluster::shared().database();
        let mut mill = Supervisor::of(&database).start();
        job_fixture::open(&mill, &database);
        let job = sleeper(&database, "", "");
        let (_, backend, _) = asleep(&mill, &database, job);
        if who == "launcher" {
            mill.signal(Signal::SIGKILL);
            mill.wait_gone(Duration::from_secs(10));
            drop(mill);
            mill = Supervisor::of(&database).start();
        } else {
            mill.kill9(mill.schedulers()[0].pid);
        }
        assert_one_crash(&mill, &database, job);
        assert!(!crate::ledger::is_connected(&database, backend), "the orphan's backend was ended first");
        job_fixture::skip_to_next_start(&database, job);
        assert_runs_again(&mill, &database, job, "crashed", AFTER_A_CRASH);
    }
}

#[test]
fn a_server_that_crashes_is_one_crash_and_one_that_is_stopped_in_order_an_interruption() {
    for (mode, first, after) in [
        (ShutdownMode::Immediate, "crashed", AFTER_A_CRASH),
        (ShutdownMode::Fast, "interrupted", AFTER_AN_INTERRUPTION),
    ] {
        let cluster = Cluster::start();
        let database = cluster.database();
        let mill = Supervisor::of(&database).start();
        job_fixture::open(&mill, &database);
        let job = sleeper(&database, "", "");
        asleep(&mill, &database, job);
        cluster.restart(mode);
        if first == "crashed" {
            assert_one_crash(&mill, &database, job);
            job_fixture::skip_to_next_start(&database, job);
        }
        assert_runs_again(&mill, &database, job, first, after);
    }
}

#[test]
fn an_orderly_stop_interrupts_what_runs_and_it_is_due_at_once() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let database = Cluster::shared().database();
        let mill = Supervisor::of(&database).queue_key("close", 300).start();
        job_fixture::open(&mill, &database);
        let job = sleeper(&database, "", "");
        asleep(&mill, &database, job);
        mill.signal(signal);
        mill.wait_exit(Duration::from_secs(20));
        assert_eq!(runs(&database, job), ["interrupted"], "{}", mill.describe());
        assert_eq!(counters(&database, job), [0; 6], "an interruption counts nowhere");
        drop(mill);
        let mill = Supervisor::of(&database).start();
        assert_runs_again(&mill, &database, job, "interrupted", AFTER_AN_INTERRUPTION);
    }
}

#[test]
fn quit_is_a_crash() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = sleeper(&database, ", crash_wait", ", '5 min'");
    asleep(&mill, &database, job);
    mill.signal(Signal::SIGQUIT);
    mill.wait_exit(Duration::from_secs(10));
    drop(mill);
    let mill = Supervisor::of(&database).start();
    assert_one_crash(&mill, &database, job);
}

#[test]
fn a_person_who_stops_or_deletes_a_run_cancels_it_for_good() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let input = "input, schedule_interval, max_retries, fixed_schedule";
    let values = "'SELECT pg_sleep(600)', '1 day', 5, false";
    let (stopped, deleted) = (insert(&database, "stopped", input, values), insert(&database, "deleted", input, values));
    let (task, backend, _) = running(&mill, &database, stopped);
    let (gone, other, _) = running(&mill, &database, deleted);
    let mut client = database.connect();
    client.batch_execute(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {task}")).expect("STOP");
    client.batch_execute(&format!("DELETE FROM public.task WHERE id = {gone}")).expect("DELETE");
    assert_eq!(runs(&database, stopped), ["cancelled"]);
    for (job, backend) in [(stopped, backend), (deleted, other)] {
        assert_eq!(counters(&database, job), [1, 0, 1, 0, 1, 0], "a failure, no crash");
        assert!(
            stat::<bool>(&database, job, "next_start - last_finish = interval '1 day'"),
            "no retry, the next regular start"
        );
        mill.eventually("what ran is ended", || {
            one::<bool>(
                &database,
                &format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {backend} AND state = 'active')"),
            )
        });
    }
    let said = refusal(&mut client, &format!("UPDATE public.task SET state = 'PLAN' WHERE id = {task}"));
    assert!(said.contains("has ended and cannot be changed"), "{said}");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task"), 1, "no successor");
}

#[test]
fn a_user_who_cancels_or_terminates_a_runs_session_makes_it_fail_and_it_is_tried_again() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    for (name, end) in [("cancelled", "pg_cancel_backend"), ("terminated", "pg_terminate_backend")] {
        let job = insert(&database, name, "input, schedule_interval", "'SELECT pg_sleep(600)', '1 day'");
        let (_, backend, _) = running(&mill, &database, job);
        // A cancel that comes between its begin and its input would hit nothing.
        let asleep =
            format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'PgSleep')");
        mill.eventually("it sleeps", || one::<bool>(&database, &asleep));
        database.run(&format!("SELECT {end}({backend})"));
        mill.eventually("it has failed", || counters(&database, job) == [1, 0, 1, 0, 1, 0]);
        assert!(stat::<bool>(&database, job, "next_start - last_finish BETWEEN '260 s' AND '340 s'"), "tried again");
    }
}

#[test]
fn a_run_that_was_claimed_and_never_began_is_no_crash() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).fault("scheduler.after_take:kill@3").queue_key("sleep", 200).start();
    job_fixture::open(&mill, &database);
    let job = insert(&database, "claimed", "input, schedule_interval", "'SELECT 1', '1 day'");
    mill.eventually("it has run", || runs(&database, job) == ["succeeded"]);
    assert_eq!(counters(&database, job), AFTER_AN_INTERRUPTION);
}

#[test]
fn a_scheduler_that_is_told_to_stop_now_interrupts_what_runs() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = sleeper(&database, "", "");
    asleep(&mill, &database, job);
    // what a stop, a restart and a DROP DATABASE come down to
    let scheduler = mill.schedulers()[0].pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(scheduler), Signal::SIGINT).expect("it is there");
    assert_runs_again(&mill, &database, job, "interrupted", AFTER_AN_INTERRUPTION);
}

#[test]
fn a_stop_message_and_a_database_that_somebody_wants_to_drop_interrupt_what_runs() {
    for how in ["stop", "drop"] {
        let database = Cluster::shared().database();
        let mill = Supervisor::of(&database).start();
        job_fixture::open(&mill, &database);
        let job = sleeper(&database, "", "");
        asleep(&mill, &database, job);
        if how == "stop" {
            assert!(one::<bool>(&database, "SELECT mill.stop()"), "{}", mill.describe());
            assert_eq!(runs(&database, job), ["interrupted"], "{}", mill.describe());
            assert_eq!(counters(&database, job), [0; 6]);
            assert!(one::<bool>(&database, "SELECT mill.start()"), "{}", mill.describe());
        } else {
            // a session of somebody else is in the way, so that the database stays
            let _client = database.connect();
            let mut client = database.server().connect("postgres");
            let said = refusal(&mut client, &format!("DROP DATABASE \"{}\"", database.name()));
            assert!(said.contains("is being accessed by other users"), "{said}");
        }
        assert_runs_again(&mill, &database, job, "interrupted", AFTER_AN_INTERRUPTION);
    }
}
