//! Connections that one worker leaves and the next inherits: nothing of a task is found by the next one, no answer
//! comes one too late, and whatever is not in order is ended.

use std::collections::BTreeSet;
use std::time::Duration;
use tests::{Cluster, Database, ShutdownMode, Signal, Supervisor, sized};

/// What a session can show of those who used it before.
const PROBE: &str = "SELECT concat_ws('|', current_user, session_user, current_setting('search_path'), \
    current_setting('work_mem'), current_setting('client_encoding'), current_setting('TimeZone'), \
    current_setting('statement_timeout'), NULLIF(current_setting('app.secret', true), ''), current_setting('transaction_read_only'), \
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors WHERE is_holdable), \
    (SELECT count(*) FROM pg_listening_channels()), \
    (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()), \
    (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'))";

/// Ends of a task after which its connection may be lent again, if it is made as new.
const ORDERLY: [&str; 13] = [
    "SET work_mem = '77MB'; SET app.secret = 'x'; SET TimeZone = 'Asia/Tokyo'; SET search_path = nowhere",
    "PREPARE left_over AS SELECT 1",
    "LISTEN somebody; LISTEN somebody_else",
    "CREATE TEMP TABLE left_over (a int); INSERT INTO left_over VALUES (1)",
    "SELECT pg_advisory_lock(42), pg_advisory_lock_shared(43)",
    "BEGIN; DECLARE left_over CURSOR WITH HOLD FOR SELECT generate_series(1, 10); COMMIT",
    "BEGIN; SELECT 1",
    "SELECT 1/0",
    "BEGIN; SELECT 1/0",
    "DISCARD ALL",
    "SET client_encoding = 'LATIN1'",
    "COPY (SELECT generate_series(1, 20000)) TO STDOUT",
    "SET default_transaction_read_only = on; SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
];

/// Ends after which it may not.
const DISORDERLY: [(&str, &str); 4] = [
    ("CREATE TEMP TABLE half (a int); COPY half FROM STDIN", ""),
    ("SELECT pg_terminate_backend(pg_backend_pid())", ""),
    ("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5)", ""),
    ("SELECT pg_sleep(30)", "timeout = '200 ms'"),
];

fn probe(mill: &Supervisor<'_>, database: &Database) -> (String, i64) {
    let row = mill.finished(database, database.insert(PROBE));
    assert_eq!(row["state"], "DONE", "{row}");
    (row["output"].as_str().unwrap_or_default().to_owned(), row["pid"].as_i64().unwrap_or_default())
}

#[test]
fn the_next_worker_finds_an_inherited_session_as_new_whatever_the_one_before_did() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("lend", true).start();
    let (new, mut backend) = probe(&mill, &database);
    let mut inherited = 0;
    for input in ORDERLY {
        let row = mill.finished(&database, database.insert(input));
        assert_eq!(row["attempt"], 1, "{row}");
        let (found, next) = probe(&mill, &database);
        assert_eq!(found, new, "after {input}");
        inherited += usize::from(next == backend);
        backend = next;
    }
    assert!(inherited >= ORDERLY.len() - 2, "only {inherited} of {} were inherited", ORDERLY.len());
    for (input, columns) in DISORDERLY {
        let row = mill.finished(&database, database.insert_with(input, columns));
        assert_eq!(row["attempt"], 1, "{row}");
        assert_eq!(probe(&mill, &database).0, new, "after {input}");
    }
}

#[test]
fn without_lending_every_task_has_a_session_of_its_own() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let backends: BTreeSet<i64> = (0..5).map(|_| probe(&mill, &database).1).collect();
    assert_eq!(backends.len(), 5);
    mill.eventually("none is kept", || {
        database.sessions().iter().all(|session| !session.application_name.starts_with("pg_task"))
    });
}

#[test]
fn a_connection_that_was_cut_while_nobody_used_it_costs_no_attempt() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).row_key("lend", true).start();
    for round in 0..5 {
        let (_, backend) = probe(&mill, &database);
        if round == 2 {
            cluster.restart(ShutdownMode::Fast);
        } else {
            let backend = i32::try_from(backend).unwrap();
            database.look("SELECT pg_terminate_backend($1)", &[&backend]);
        }
        let row = mill.finished(&database, database.insert("SELECT 1"));
        assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{row}");
    }
}

#[test]
fn a_task_planned_again_by_its_owner_does_not_wait_for_the_backend_that_is_kept() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("lend", true).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    database.run(&format!("UPDATE public.task SET state = 'PLAN' WHERE id = {id}"));
    mill.eventually("it has run again", || database.finished(id).is_some_and(|row| row["attempt"] == 2));
}

#[test]
fn random_kills_leave_no_session_behind_and_no_answer_out_of_step() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("lend", true).start();
    let tasks = sized(150, 10_000);
    database.run(&format!(
        "INSERT INTO public.task (\"group\", input, \"max\") \
         SELECT 'g' || n % 7, 'SELECT ' || n || ', pg_sleep(' || random() / 3 || ')', 2 FROM generate_series(1, {tasks}) n"
    ));
    let count = |sql: &str| database.look(sql, &[]).map_or(-1, |rows| rows[0].get::<_, i64>(0));
    let mut turn = 0;
    mill.wait("all tasks are done").within(Duration::from_secs(sized(60, 1800))).until(|| {
        turn += 1;
        // Some of them, and then no more, so that it comes to an end.
        if let (true, Some(victim)) = (turn < tasks, mill.workers().first()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim.pid), Signal::SIGKILL);
        }
        count("SELECT count(*) FROM public.task WHERE state IN ('DONE', 'FAIL')") == tasks
    });
    let wrong = "SELECT count(*) FROM public.task WHERE state <> 'DONE' \
                     OR split_part(split_part(output, E'\\n', 2), E'\\t', 1) <> split_part(split_part(input, ' ', 2), ',', 1)";
    assert_eq!(count(wrong), 0, "{}", mill.describe());
    assert!(count("SELECT count(*) FROM public.task WHERE attempt > 1") > 0, "somebody was killed");
    // What is kept is idle, and not more than could be used.
    mill.eventually("what was lent to the dead is ended", || {
        let kept = database.sessions().into_iter().filter(|session| session.application_name.starts_with("pg_task"));
        let kept: Vec<_> = kept.collect();
        kept.len() <= 16 && kept.iter().all(|session| session.state == "idle")
    });
    mill.signal(Signal::SIGTERM);
    mill.wait_gone(Duration::from_secs(20));
    tests::eventually("no session is left", || database.sessions().is_empty());
}
