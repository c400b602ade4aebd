//! The log: whole lines only, whoever writes them and whatever they carry, and nobody
//! depends on its reader.

use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, Database, Signal, Supervisor};

const TASKS: usize = 50;
const NOTICES: usize = 4;
const LONGEST_BYTES: usize = 4096;

/// 10 kB with newlines, control characters and quotes, made to look like a line of ours.
const NOTICE: &str = r#"DO $do$
BEGIN
    PERFORM pg_advisory_lock_shared(7);
    FOR i IN 1..COUNT LOOP
        RAISE NOTICE '%', repeat(E'x\n2026-01-01T00:00:00.000Z error   launcher[1] all is lost\r\t\x1b[2J"\\ é', 170);
    END LOOP;
END
$do$"#;

/// Tasks that all raise their notices in one moment.
fn raise_at_once(supervisor: &Supervisor<'_>, database: &Database, tasks: usize, notices: usize) {
    let mut gate = database.connect();
    gate.batch_execute("SELECT pg_advisory_lock(7)").expect("close the gate");
    let sql = "INSERT INTO public.task (input, \"group\") SELECT $1, 'g' || i FROM generate_series(1, $2::int) i";
    let input = NOTICE.replace("COUNT", &notices.to_string());
    let count = i32::try_from(tasks).expect("a small number");
    database.connect().execute(sql, &[&input, &count]).expect("insert");
    supervisor.wait("all wait at the gate").within(Duration::from_secs(30)).until(|| {
        let sql = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                   WHERE d.datname = current_database() AND locktype = 'advisory' AND objid = 7 AND NOT granted";
        database.query(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == i64::from(count))
    });
    gate.batch_execute("SELECT pg_advisory_unlock(7)").expect("open the gate");
}

#[track_caller]
fn all_are_done(supervisor: &Supervisor<'_>, database: &Database, tasks: usize) {
    supervisor.wait("all are done").within(Duration::from_secs(30)).until(|| {
        // a task without output and error is deleted when it is done
        let rows = database.tasks();
        assert!(rows.iter().all(|row| row["state"] != "FAIL"), "{}", supervisor.describe());
        rows.iter().all(|row| row["state"] == "DONE") && rows.len() <= tasks
    });
}

/// `time level who[pid] ..`: who wrote the line, and what follows.
#[track_caller]
fn parse(line: &str) -> (&str, u32, &str) {
    let parsed = || -> Option<(&str, u32, &str)> {
        let (time, rest) = line.split_at_checked(24)?;
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        let (level, rest) = rest.strip_prefix(' ')?.split_at_checked(8)?;
        let (who, rest) = rest.split_once('[')?;
        let (pid, message) = rest.split_once("] ")?;
        let known = shape == "9999-99-99T99:99:99.999Z"
            && ["error   ", "warning ", "info    ", "debug   "].contains(&level)
            && ["launcher", "scheduler", "worker"].contains(&who);
        known.then_some((who, pid.parse().ok()?, message))
    };
    parsed().unwrap_or_else(|| panic!("this is no whole line: {line:?}"))
}

#[track_caller]
fn is_whole(line: &str) {
    // with its newline
    assert!(line.len() < LONGEST_BYTES, "{} bytes: {line:?}", line.len() + 1);
    assert!(!line.contains(char::is_control), "a control character got through: {line:?}");
}

#[test]
fn fifty_workers_with_long_notices_give_only_whole_lines() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).key("max_workers", TASKS + 6).start();
    raise_at_once(&supervisor, &database, TASKS, NOTICES);
    all_are_done(&supervisor, &database, TASKS);
    supervisor.signal(Signal::SIGTERM);
    supervisor.wait_exit(Duration::from_secs(10));
    supervisor.eventually("the log is read to its end", || supervisor.log().is_closed());
    let lines = supervisor.log().lines();
    let mut notices = 0;
    for line in &lines {
        is_whole(line);
        let (who, pid, message) = parse(line);
        assert_ne!(pid, 1, "a notice has forged a line: {line}");
        if message.starts_with("notice") {
            assert_eq!(who, "worker");
            notices += 1;
        }
    }
    // on a busy machine we may read too slowly, which costs lines
    let dropped: usize = lines.iter().filter_map(|line| dropped(line)).sum();
    assert!(notices + dropped <= TASKS * NOTICES && notices >= TASKS, "{notices} and {dropped} dropped");
}

/// How many lines this line says were dropped before it.
fn dropped(line: &str) -> Option<usize> {
    let count = line.split_once("log lines dropped")?.1.split_once("count=")?.1;
    count.split(' ').next()?.parse().ok()
}

#[test]
fn a_json_log_is_json_in_every_line() {
    const TASKS: usize = 10;
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).arg("--log").arg("json").arg("--log-level").arg("debug").start();
    raise_at_once(&supervisor, &database, TASKS, NOTICES);
    all_are_done(&supervisor, &database, TASKS);
    let failed = database.insert("SELECT 'no such column', \"there\"");
    supervisor.finished(&database, failed);
    supervisor.signal(Signal::SIGTERM);
    supervisor.wait_exit(Duration::from_secs(10));
    supervisor.eventually("the log is read to its end", || supervisor.log().is_closed());
    let (mut notices, mut failures) = (0, 0);
    for line in supervisor.log().lines() {
        is_whole(&line);
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["time", "level", "process", "message"] {
            assert!(said[key].is_string(), "no {key}: {line}");
        }
        assert!(said["pid"].as_u64().is_some_and(|pid| pid > 1), "{line}");
        assert!(said["task"].is_null() || said["task"].is_i64(), "a task that is no number: {line}");
        failures += usize::from(said["message"] == "task failed" && said["task"] == failed);
        notices += usize::from(said["message"] == "notice");
    }
    assert!((TASKS..=TASKS * NOTICES).contains(&notices) && failures == 1, "{notices} {failures}");
}

#[test]
fn of_many_failed_tasks_some_are_logged_and_the_rest_is_counted() {
    const FAILED: i32 = 300;
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let sql =
        "INSERT INTO public.task (input, \"group\") SELECT 'SELECT 1 / 0', 'g' || i % 4 FROM generate_series(1, $1) i";
    database.connect().execute(sql, &[&FAILED]).expect("insert");
    let counted = |key: &str| -> i32 {
        let lines = supervisor.log().lines();
        let numbers = lines.iter().filter_map(|line| line.split_once(key)?.1.split(' ').next()?.parse::<i32>().ok());
        numbers.sum()
    };
    supervisor.wait("all are logged or counted").within(Duration::from_secs(60)).until(|| {
        let logged = supervisor.log().lines().iter().filter(|line| line.contains("task failed queue=")).count();
        let more = counted("more tasks failed: not logged one by one count=") + counted(" not_logged=");
        more > 0 && logged + usize::try_from(more).unwrap_or(0) == FAILED as usize
    });
    let lines = supervisor.log().lines();
    let first = lines.iter().find(|line| line.contains("task failed queue=")).expect("one of them");
    assert!(first.contains(r#"error="ERROR:  division by zero""#), "{first}");
}

#[test]
fn a_failed_job_and_its_pause_are_logged() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let sql = "INSERT INTO mill.job (name, input, schedule_interval, max_retries, retry_period) \
               VALUES ('sums', 'SELECT 1 / 0', '1 hour', 2, '10 ms')";
    database.connect().batch_execute(sql).expect("a job");
    supervisor.eventually("both are logged", || {
        let lines = supervisor.log().lines();
        let has = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        has(&["job failed queue=", "job=", "division by zero"])
            && has(&["warning", "job paused queue=", "name=sums", "failed 2 times in a row, max_retries = 2"])
    });
}

#[test]
fn task_text_is_logged_at_no_level_above_debug() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let id = database.insert("SELECT 'a secret of the task', 1 / 0");
    assert_eq!(supervisor.finished(&database, id)["state"], "FAIL");
    supervisor.signal(Signal::SIGTERM);
    supervisor.wait_exit(Duration::from_secs(10));
    assert!(!supervisor.log_contains("a secret of the task"));
}

#[test]
fn a_closed_log_ends_nothing() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).closed_log().launch();
    assert_eq!(supervisor.command(&["status", "--wait", "30"]).status.code(), Some(0));
    raise_at_once(&supervisor, &database, 5, NOTICES);
    all_are_done(&supervisor, &database, 5);
    let scheduler = supervisor.schedulers()[0].pid;
    supervisor.kill9(scheduler);
    supervisor.eventually("another scheduler works", || {
        supervisor.schedulers().first().is_some_and(|process| process.pid != scheduler)
    });
    let id = database.insert("SELECT 42");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(Duration::from_secs(10)).code(), Some(0));
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_tasks_nor_the_end() {
    const TASKS: usize = 30;
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).key("max_workers", TASKS + 6).stalled_log().launch();
    assert_eq!(supervisor.command(&["status", "--wait", "30"]).status.code(), Some(0));
    // sixteen long lines fill the pipe
    raise_at_once(&supervisor, &database, TASKS, 50);
    all_are_done(&supervisor, &database, TASKS);
    let id = database.insert("SELECT 42");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    assert!(supervisor.status().is_some());

    // whoever comes late finds whole lines, and is told that some are missing
    supervisor.read_log();
    let id = database.insert("DO $$ BEGIN RAISE NOTICE 'somebody reads again'; END $$");
    supervisor.eventually("it is logged again", || supervisor.log_contains("somebody reads again"));
    supervisor.eventually("the task is gone", || database.task(id).is_none_or(|row| row["state"] == "DONE"));
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(Duration::from_secs(10)).code(), Some(0));
    supervisor.eventually("the log is read to its end", || supervisor.log().is_closed());
    for line in supervisor.log().lines() {
        is_whole(&line);
        parse(&line);
    }
}

#[test]
fn a_log_that_nobody_reads_does_not_keep_the_launcher_from_its_end() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).stalled_log().launch();
    assert_eq!(supervisor.command(&["status", "--wait", "30"]).status.code(), Some(0));
    raise_at_once(&supervisor, &database, 5, 20);
    all_are_done(&supervisor, &database, 5);
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(Duration::from_secs(10)).code(), Some(0));
    supervisor.wait_gone(Duration::from_secs(5));
}
