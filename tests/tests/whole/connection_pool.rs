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

/// Ends of a task after which its connection may be used again, if it is reset.
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

/// A connection has been left, and is as new: the next plain task gets it.
fn pooled_soon(mill: &Supervisor<'_>, database: &Database) -> i64 {
    let (_, backend) = probe(mill, database);
    let kept = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' \
        AND application_name = 'pg_task public task' AND query LIKE 'SELECT%' AND state_change < clock_timestamp() - interval '50 ms'";
    mill.eventually("a connection is kept", || {
        database.query(kept, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) > 0)
    });
    backend
}

#[test]
fn the_next_worker_finds_an_inherited_session_as_new_whatever_the_one_before_did() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
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
fn without_the_pool_every_task_has_a_session_of_its_own() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", false).start();
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
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    for round in 0..5 {
        let (_, backend) = probe(&mill, &database);
        if round == 2 {
            cluster.restart(ShutdownMode::Fast);
        } else {
            let backend = i32::try_from(backend).unwrap();
            database.query("SELECT pg_terminate_backend($1)", &[&backend]);
        }
        let row = mill.finished(&database, database.insert("SELECT 1"));
        assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{row}");
    }
}

#[test]
fn a_task_planned_again_by_its_owner_does_not_wait_for_the_backend_that_is_kept() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    database.run(&format!("UPDATE public.task SET state = 'PLAN' WHERE id = {id}"));
    mill.eventually("it has run again", || database.finished(id).is_some_and(|row| row["attempt"] == 2));
}

/// Seventeen ways in which a task may leave its session; `{n}` is the number that must come out as its own result.
const KINDS: [&str; 17] = [
    "SELECT {n}",
    "SELECT {n}, pg_sleep(0.4)",
    "SELECT {n}; SELECT 1/0",
    "BEGIN; SELECT {n}",
    "BEGIN; SELECT {n}; SELECT 1/0",
    "SELECT {n}; SET work_mem = '77MB'; SET search_path = nowhere; SET client_min_messages = debug5",
    "SELECT {n}; SET client_encoding = 'LATIN1'",
    "SELECT {n}; PREPARE left_over AS SELECT 1",
    "SELECT {n}; LISTEN somebody; NOTIFY somebody, 'x'; NOTIFY somebody, 'y'",
    "SELECT {n}; CREATE TEMP TABLE left_over (a int)",
    "SELECT {n}, pg_advisory_lock(10000 + {n})",
    "SELECT {n}; BEGIN; DECLARE left_over CURSOR WITH HOLD FOR SELECT 1; COMMIT",
    "SELECT {n}; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SELECT {n}; DISCARD ALL",
    "DO $do$ BEGIN FOR i IN 1..150 LOOP RAISE NOTICE 'pouring %', i; END LOOP; END $do$; SELECT {n}",
    "COPY (SELECT {n}) TO STDOUT; COPY (SELECT repeat('x', 100) FROM generate_series(1, 500)) TO STDOUT",
    "SELECT {n}; CREATE TEMP TABLE half (a int) ON COMMIT DROP; COPY half FROM STDIN",
];

/// A row says what its own task said, and the task said what its number is: whatever the worker before it left behind.
const OUT_OF_STEP: &str = r"SELECT count(*) FROM public.task WHERE state NOT IN ('DONE', 'FAIL')
    OR output !~ ('(^|\n)' || data || '(\n|\t|$)') OR (state = 'FAIL') <> (input LIKE '%1/0%' OR input LIKE '%STDIN' OR input LIKE '%DISCARD ALL')";

#[test]
fn seventeen_ways_to_end_and_random_kills_leave_nothing_behind_and_nothing_out_of_step() {
    storm(true, sized(17 * 8, 10_000));
}

#[test]
fn the_same_ways_and_kills_do_no_harm_where_every_task_has_a_connection_of_its_own() {
    storm(false, sized(17 * 4, 2_000));
}

fn storm(pooled: bool, tasks: i64) {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", pooled).start();
    for (kind, input) in KINDS.iter().enumerate() {
        // Some of them are workers that write their results themselves.
        database.run(&format!(
            "INSERT INTO public.task (\"group\", input, data, \"max\", count) \
             SELECT 'g' || n % 5, replace($in${input}$in$, '{{n}}', n::text), n, 2, (n / 17 % 4 = 3)::int \
               FROM generate_series(1, {tasks}) n WHERE n % 17 = {kind} ORDER BY random()"
        ));
    }
    // One that is surely hit, before the others, on a pooled connection.
    let hit = database.insert_with("SELECT pg_sleep(2)", "group = 'hit', max = 9");
    crate::queries::running(&mill, &database, hit);
    mill.kill9(mill.eventually("its worker has a title", || crate::queries::worker_of(&mill, hit)));
    let count = |sql: &str| database.query(sql, &[]).map_or(-1, |rows| rows[0].get::<_, i64>(0));
    let mut killed = 0;
    mill.wait("all tasks have ended").within(Duration::from_secs(sized(90, 3600))).until(|| {
        crate::queries::forgive(&database);
        let ended = count("SELECT count(*) FROM public.task WHERE state IN ('DONE', 'FAIL')");
        // A fifth of them, and then no more, so that it comes to an end; one that sleeps is surely at work.
        let asleep = "SELECT id::bigint FROM public.task WHERE state = 'WORK' AND input LIKE '%pg_sleep%' LIMIT 1";
        let asleep = database.query(asleep, &[]).and_then(|rows| Some(rows.first()?.get::<_, i64>(0)));
        let asleep = asleep.and_then(|task| crate::queries::worker_of(&mill, task));
        let victims = mill.workers();
        let any = || victims.get(killed as usize % victims.len().max(1)).map(|victim| victim.pid);
        if let (true, Some(victim)) = (killed < tasks / 5, asleep.or_else(any)) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim), Signal::SIGKILL);
            killed += 1;
        }
        ended == tasks + 1
    });
    assert_eq!(count(OUT_OF_STEP), 0, "{}", mill.describe());
    assert!(count("SELECT count(*) FROM public.task WHERE attempt > 1") > 0, "somebody was killed");
    // What is kept is idle, has nothing of anybody, and is not more than could be used.
    mill.eventually("the connections of the dead are ended", || {
        let kept = database.sessions().into_iter().filter(|session| session.application_name.starts_with("pg_task"));
        let kept: Vec<_> = kept.collect();
        kept.len() <= 16 && kept.iter().all(|session| session.state == "idle")
    });
    let locks = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                  WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 1";
    assert_eq!(count(locks), 0, "no lock of a task is left");
    mill.signal(Signal::SIGTERM);
    mill.wait_gone(Duration::from_secs(20));
    tests::eventually("no session is left", || database.sessions().is_empty());
}

#[test]
fn a_result_that_was_left_counts_though_its_worker_dies() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).fault("worker.after_result:kill").start();
    let first = pooled_soon(&mill, &database);
    let row = mill.finished(&database, database.insert("SELECT 42"));
    assert_eq!((&row["state"], &row["attempt"], &row["output"]), (&"DONE".into(), &1.into(), &"42".into()), "{row}");
    assert_eq!(row["pid"], first, "it ran on the pooled connection");
    mill.eventually("the connection of the dead is not used again", || {
        database.sessions().iter().all(|session| i64::from(session.pid) != first)
    });
}

#[test]
fn a_scheduler_that_dies_before_it_has_written_a_result_has_the_task_run_again() {
    let database = Cluster::shared().database();
    let fault = "scheduler.before_recording:kill@1";
    let mill = Supervisor::of(&database).queue_key("pool", true).fault(fault).start();
    pooled_soon(&mill, &database);
    let row = mill.finished(&database, database.insert("SELECT 42"));
    assert_eq!((&row["state"], &row["attempt"], &row["output"]), (&"DONE".into(), &2.into(), &"42".into()), "{row}");
}

#[test]
fn whatever_dies_around_a_task_on_a_pooled_connection_costs_one_attempt_and_nothing_else() {
    // The second fork and the second task: the first worker has made the connection.
    let faults = ["scheduler.before_fork", "scheduler.after_fork", "worker.after_begin", "worker.before_finish"];
    for (point, action) in faults.into_iter().flat_map(|point| [(point, "kill"), (point, "panic")]) {
        let database = Cluster::shared().database();
        let mill = Supervisor::of(&database).queue_key("pool", true).fault(&format!("{point}:{action}@2")).start();
        pooled_soon(&mill, &database);
        let row = mill.finished(&database, database.insert("SELECT 42"));
        assert!(mill.log_contains("fault point="), "{point} was never met:\n{}", mill.describe());
        assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"42".into()), "{point}:{action} {row}");
        assert_eq!(row["attempt"], 2, "{point}:{action} {row}");
        crate::ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
    }
}

#[test]
fn a_change_of_what_sessions_begin_with_reaches_the_next_task() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    let (role, name) = (database.owner(), database.name());
    let changes = [
        (format!("ALTER ROLE {role} SET work_mem = '11MB'"), "11MB"),
        (format!("ALTER ROLE {role} IN DATABASE {name} SET work_mem = '12MB'"), "12MB"),
        (format!("ALTER ROLE {role} IN DATABASE {name} RESET work_mem"), "11MB"),
        (format!("ALTER ROLE {role} RESET work_mem; ALTER DATABASE {name} SET work_mem = '13MB'"), "13MB"),
    ];
    for (change, expected) in changes {
        let before = pooled_soon(&mill, &database);
        database.run(&change);
        let row = mill.finished(&database, database.insert("SHOW work_mem"));
        assert_eq!(row["output"], expected, "after {change}");
        assert_ne!(row["pid"], before, "after {change}");
        tests::eventually("the old connection is given up", || {
            database.sessions().iter().all(|session| i64::from(session.pid) != before)
        });
    }
}

#[test]
fn a_result_is_written_in_the_end_though_its_row_is_locked_or_has_come_to_repeat() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    pooled_soon(&mill, &database);
    let (locked, repeats) =
        (database.insert("SELECT pg_sleep(1)"), database.insert_with("SELECT pg_sleep(1)", "group = 'r'"));
    for id in [locked, repeats] {
        mill.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    }
    let mut owner = database.connect();
    let mut hold = owner.transaction().expect("begin");
    hold.execute("SELECT FROM public.task WHERE id = $1 FOR UPDATE", &[&locked]).expect("lock a row");
    database.run(&format!("UPDATE public.task SET repeat = '1 hour' WHERE id = {repeats}"));
    let row = mill.finished(&database, repeats);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{row}");
    let again = format!("SELECT count(*) FROM public.task WHERE parent = {repeats} AND state = 'PLAN'");
    assert_eq!(database.query(&again, &[]).expect("rows")[0].get::<_, i64>(0), 1, "it is repeated");
    // Nobody else waits for the row that is locked.
    assert_eq!(mill.finished(&database, database.insert_with("SELECT 1", "group = 'o'"))["state"], "DONE");
    hold.rollback().expect("let go");
    let row = mill.finished(&database, locked);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{row}");
}

/// A hundred tasks, of which every tenth has a result that the database refuses: only those fail.
fn only_what_is_refused_fails(refusal: &str) {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    pooled_soon(&mill, &database);
    database.run(refusal);
    database.run("INSERT INTO public.task (input, \"max\") SELECT 'SELECT ' || n, 9 FROM generate_series(1, 100) n");
    mill.wait("all have ended").within(Duration::from_secs(60)).until(|| {
        let sql = "SELECT count(*) FROM public.task WHERE state IN ('DONE', 'FAIL') AND input ~ '^SELECT \\d+$'";
        database.query(sql, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 100)
    });
    let sql = "SELECT string_agg(DISTINCT state || reason, ',') || count(*) FROM public.task WHERE input ~ '7$'";
    assert_eq!(database.query(sql, &[]).expect("rows")[0].get::<_, String>(0), "FAILcompletion10");
    let sql = "SELECT count(*) FROM public.task WHERE state = 'DONE' AND attempt = 1 AND input = 'SELECT ' || output";
    assert_eq!(database.query(sql, &[]).expect("rows")[0].get::<_, i64>(0), 90);
}

#[test]
fn what_the_database_refuses_of_one_result_does_not_hold_up_the_others() {
    only_what_is_refused_fails(
        "ALTER TABLE public.task ADD CONSTRAINT no_seven CHECK (output !~ '7$' OR error IS NOT NULL)",
    );
}

#[test]
fn what_the_database_refuses_only_at_the_commit_does_not_hold_up_the_others() {
    only_what_is_refused_fails(
        "CREATE FUNCTION public.no_seven() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN RAISE EXCEPTION 'no seven'; END$$; \
         CREATE CONSTRAINT TRIGGER no_seven AFTER UPDATE ON public.task DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
             WHEN (NEW.output ~ '7$' AND NEW.error IS NULL) EXECUTE FUNCTION public.no_seven()",
    );
}

#[test]
fn an_end_waits_for_the_disk_whatever_the_claim_behind_it_finds() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    pooled_soon(&mill, &database);
    database.run(
        "CREATE TABLE public.wait (how text); GRANT ALL ON public.wait TO PUBLIC; \
         CREATE FUNCTION public.note_wait() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN INSERT INTO public.wait VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$; \
         CREATE CONSTRAINT TRIGGER note_wait AFTER UPDATE ON public.task DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
             WHEN (NEW.state = 'DONE') EXECUTE FUNCTION public.note_wait()",
    );
    // Every other eight are not begun by their takes, whose own commits would not wait.
    let rows = "SELECT 'SELECT 1', (n / 8) % 2, 9 FROM generate_series(1, 600) AS n";
    database.run(&format!("INSERT INTO public.task (input, count, \"max\") {rows}"));
    mill.wait("they have ended").within(Duration::from_secs(60)).until(|| {
        let rows = database.query("SELECT count(*) FROM public.wait", &[]);
        rows.is_some_and(|rows| rows[0].get::<_, i64>(0) == 600)
    });
    let rows = database.query("SELECT string_agg(DISTINCT how, ', ') FROM public.wait", &[]);
    assert_eq!(rows.expect("rows")[0].get::<_, String>(0), "on");
}

#[test]
fn a_long_task_on_a_pooled_connection_is_cancelled_stopped_and_timed_out_like_any_other() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", true).start();
    pooled_soon(&mill, &database);
    let row = mill.finished(&database, database.insert_with("SELECT pg_sleep(30)", "timeout = '200 ms'"));
    assert_eq!((&row["state"], &row["attempt"]), (&"FAIL".into(), &1.into()), "{row}");
    pooled_soon(&mill, &database);
    let id = database.insert("SELECT pg_sleep(600)");
    mill.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {id}"));
    mill.eventually("its worker is gone", || mill.workers().is_empty());
    pooled_soon(&mill, &database);
    let id = database.insert("SELECT pg_sleep(600)");
    mill.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    mill.signal(Signal::SIGINT);
    mill.wait_gone(Duration::from_secs(20));
    assert_eq!(database.task(id).expect("the row")["state"], "PLAN");
    tests::eventually("no session is left", || database.sessions().is_empty());
}
