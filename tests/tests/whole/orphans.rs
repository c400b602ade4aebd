//! Workers killed, sessions ended, launchers restarted: what ran is ended before it runs again, and nothing is lost.

use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tests::database::Session;
use tests::{Cluster, Database, ShutdownMode, Signal, Supervisor, sized, steadily};

use crate::queries::{all, forgive, linger, one, running, worker_of};

#[test]
fn the_backend_of_a_killed_worker_is_gone_and_its_task_runnable_within_a_second() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert_with("SELECT pg_sleep(3600)", "active = '1 day'");
    let mut measured = Vec::new();
    for _ in 0..sized(20, 200) {
        forgive(&database);
        let backend = running(&mill, &database, id);
        let worker = mill.eventually("the worker says what it runs", || worker_of(&mill, id));
        let attempt = database.task(id).expect("it is there")["attempt"].clone();
        mill.kill9(worker);
        let began = Instant::now();
        // planned again, or already taken by the next worker
        let sql = format!(
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {backend}) \
             AND (state = 'PLAN' OR attempt > {attempt}) FROM public.task WHERE id = {id}"
        );
        mill.eventually("the backend is gone and the task runnable", || one::<bool>(&database, &sql));
        measured.push(began.elapsed());
    }
    measured.sort();
    let p99 = measured[(measured.len() * 99).div_ceil(100) - 1];
    println!("from kill to runnable: {measured:.0?}");
    assert!(p99 <= Duration::from_secs(1), "p99 {p99:?} of {measured:?}");
}

/// Each attempt holds a lock while it runs, so that two at once would be seen; its first
/// line is committed before the work and stays also when the attempt is killed.
fn with_ledger(database: &Database, tasks: usize) {
    database.run(
        "CREATE TABLE public.ledger (task bigint, attempt int, pid int DEFAULT pg_backend_pid(), alone bool, \
         at timestamptz DEFAULT clock_timestamp()); CREATE TABLE public.work (task bigint); \
         GRANT ALL ON public.ledger, public.work TO PUBLIC",
    );
    let input = "BEGIN; INSERT INTO public.ledger (task, attempt, alone) SELECT id, attempt, pg_try_advisory_lock(77, id::int) \
         FROM public.task WHERE id = current_setting('pg_task.id')::bigint; COMMIT; \
         BEGIN; INSERT INTO public.work VALUES (current_setting('pg_task.id')::bigint); \
         SELECT pg_sleep(random() * 0.1); COMMIT; SELECT pg_advisory_unlock(77, current_setting('pg_task.id')::int)";
    database.run(&format!(
        "INSERT INTO public.task (input, \"group\", max, live, active) SELECT {}, 'g' || i % 6, i % 2, \
         CASE WHEN i % 6 < 3 THEN interval '1 hour' ELSE '0' END, '1 day' FROM generate_series(1, {tasks}) AS i",
        postgres_literal(input)
    ));
}

fn postgres_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn unfinished(database: &Database) -> i64 {
    one(database, "SELECT count(*) FROM public.task WHERE state NOT IN ('DONE', 'FAIL')")
}

#[test]
fn attempts_of_one_task_never_overlap_and_no_task_is_lost_however_many_workers_are_killed() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let kills = sized(60, 1000);
    with_ledger(&database, kills * 5);
    let mut killed = 0;
    while killed < kills && unfinished(&database) > 0 {
        let workers = mill.workers();
        if let Some(worker) = workers.get(rand::random_range(0..workers.len().max(1))) {
            // it may have ended since
            killed += usize::from(kill(Pid::from_raw(worker.pid), Signal::SIGKILL).is_ok());
        }
        linger(Duration::from_millis(rand::random_range(0..60)), "kills come at random moments");
    }
    mill.wait("all tasks are done").within(Duration::from_secs(sized(60, 300))).until(|| {
        forgive(&database);
        unfinished(&database) == 0
    });
    let again: i64 = one(&database, "SELECT count(*) FROM public.task WHERE attempt > 1");
    println!("{killed} kills, {again} tasks needed more than one attempt");
    assert_eq!(
        one::<i64>(&database, "SELECT count(*) FROM ledger WHERE NOT alone"),
        0,
        "attempts that met an earlier one"
    );
    let lost: Vec<String> = all(
        &database,
        "SELECT concat_ws(' ', id, state, attempt, error) FROM public.task t WHERE state <> 'DONE' \
         OR NOT EXISTS (SELECT FROM work w WHERE w.task = t.id)",
    );
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    mill.eventually("no slot is lost", || mill.status().is_some_and(|status| status["slots"]["used"] == 2));
}

#[test]
fn sessions_ended_or_cancelled_at_random_lose_no_task() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let blows = sized(40, 1000);
    with_ledger(&database, blows * 8);
    let mut client = database.connect_superuser();
    let mut struck = 0;
    while struck < blows && unfinished(&database) > 0 {
        let sessions: Vec<Session> = database.sessions();
        if let Some(session) = sessions.get(rand::random_range(0..sessions.len().max(1))) {
            let how = ["pg_terminate_backend", "pg_cancel_backend"][rand::random_range(0..2)];
            client.batch_execute(&format!("SELECT {how}({})", session.pid)).expect("a superuser may");
            struck += 1;
        }
        linger(Duration::from_millis(rand::random_range(0..120)), "blows come at random moments");
    }
    mill.wait("all tasks have ended").within(Duration::from_secs(sized(90, 300))).until(|| unfinished(&database) == 0);
    assert_eq!(
        one::<i64>(&database, "SELECT count(*) FROM ledger WHERE NOT alone"),
        0,
        "attempts that met an earlier one"
    );
    // whoever was hit in the middle says so, everybody else has done the work
    let wrong: Vec<String> = all(
        &database,
        "SELECT concat_ws(' ', id, state, attempt, reason, error) FROM public.task t \
         WHERE CASE state::text WHEN 'FAIL' THEN reason IS DISTINCT FROM 'cancelled' \
               OR error !~ '(due to user request|due to administrator command)' \
               ELSE NOT EXISTS (SELECT FROM work w WHERE w.task = t.id) END",
    );
    let failed: i64 = one(&database, "SELECT count(*) FROM public.task WHERE state = 'FAIL'");
    println!("{struck} sessions struck, {failed} tasks of {} hit in the middle", blows * 8);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let next = database.insert("SELECT 1");
    mill.finished(&database, next);
    mill.eventually("no slot is lost", || mill.status().is_some_and(|status| status["slots"]["used"] == 2));
}

#[test]
fn a_launcher_restarted_during_a_dump_serves_without_waiting_and_changes_nothing() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.signal(Signal::SIGTERM);
    assert!(mill.wait_exit(Duration::from_secs(10)).success());
    drop(mill);
    database.run(
        "CREATE TABLE public.changes (tag text); \
         CREATE FUNCTION public.changed() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS \
         'BEGIN INSERT INTO public.changes VALUES (tg_tag); END'; \
         CREATE EVENT TRIGGER changed ON ddl_command_end EXECUTE FUNCTION public.changed()",
    );
    // what pg_dump holds while it runs
    let mut dump = database.connect_superuser();
    dump.batch_execute(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE public.task, mill.queue, mill.meta IN ACCESS SHARE MODE; \
         SELECT count(*) FROM public.task",
    )
    .expect("locks as pg_dump takes them");
    let mill = Supervisor::of(&database).start();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database \
                   WHERE datname = current_database())";
    for _ in 0..3 {
        let id = database.insert("SELECT 1");
        mill.finished(&database, id);
        steadily("nobody waits for a lock", Duration::from_millis(200), || one::<i64>(&database, waiting) == 0);
    }
    assert_eq!(all::<String>(&database, "SELECT tag FROM public.changes"), Vec::<String>::new());
    drop(dump);
}

#[test]
fn a_launcher_told_to_end_under_load_leaves_every_task_finished_or_runnable() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    with_ledger(&database, 400);
    database.insert_with("SELECT pg_sleep(3600)", "group = 'long', active = '1 day'");
    drop(mill);
    // signals, the timeout of the row, how long it may take
    let ends: [(&[Signal], &str, u64); 4] = [
        (&[Signal::SIGTERM], "1 s", 5),
        (&[Signal::SIGINT], "1 min", 3),
        (&[Signal::SIGTERM, Signal::SIGTERM], "1 min", 3),
        (&[Signal::SIGQUIT], "1 min", 2),
    ];
    for (signals, close, seconds) in ends {
        let mill = Supervisor::of(&database).queue_key("close", close).start();
        let done = "SELECT count(*) FROM public.task WHERE state = 'DONE'";
        let before: i64 = one(&database, done);
        mill.eventually("some more are done", || one::<i64>(&database, done) > before + 10);
        mill.eventually("the long one runs", || {
            one::<i64>(&database, "SELECT count(*) FROM public.task WHERE \"group\" = 'long' AND state = 'WORK'") == 1
        });
        for (number, signal) in signals.iter().enumerate() {
            if number > 0 {
                mill.eventually("it has heard the signal before", || mill.log_contains("finishing tasks"));
            }
            mill.signal(*signal);
        }
        let status = mill.wait_exit(Duration::from_secs(seconds));
        mill.wait_gone(Duration::from_secs(2));
        if signals[0] == Signal::SIGQUIT {
            continue;
        }
        assert!(status.success(), "{signals:?}: {status}");
        let claimed =
            "SELECT COALESCE(string_agg(t::text, ' '), '') FROM public.task t WHERE state IN ('TAKE', 'WORK')";
        assert_eq!(one::<String>(&database, claimed), "", "{signals:?}: {}", mill.describe());
    }
    let mill = Supervisor::of(&database).start();
    database.run("UPDATE public.task SET input = 'SELECT 1' WHERE \"group\" = 'long'");
    mill.wait("all tasks are done").within(Duration::from_secs(60)).until(|| {
        // the attempt that the last launcher left may still have the old input
        let stop = "UPDATE public.task SET state = 'STOP' WHERE \"group\" = 'long' AND state = 'WORK'";
        database.run(stop);
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state <> 'DONE' AND \"group\" <> 'long'") == 0
    });
    assert_eq!(
        one::<i64>(&database, "SELECT count(*) FROM ledger WHERE NOT alone"),
        0,
        "attempts that met an earlier one"
    );
    let lost = "SELECT count(*) FROM public.task t WHERE \"group\" <> 'long' AND NOT EXISTS (SELECT FROM work w WHERE w.task = t.id)";
    assert_eq!(one::<i64>(&database, lost), 0);
}

#[test]
fn a_task_that_loses_its_server_is_planned_again_and_has_not_failed() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    let single = database.insert_with("SELECT pg_sleep(3600)", "active = '1 day'");
    let live = database.insert_with("SELECT pg_sleep(3600)", "active = '1 day', live = '1 hour', group = 'live'");
    let done = database.insert_with("SELECT 1", "group = 'done'");
    mill.finished(&database, done);
    for (round, mode) in [ShutdownMode::Fast, ShutdownMode::Immediate].into_iter().enumerate() {
        for id in [single, live] {
            mill.wait("it runs on the new server")
                .within(Duration::from_secs(30))
                .until(|| database.task(id).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == round + 1));
        }
        cluster.restart(mode);
    }
    for id in [single, live] {
        mill.wait("it runs again").within(Duration::from_secs(30)).until(|| {
            database.task(id).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == 3 && row["error"].is_null())
        });
    }
}
