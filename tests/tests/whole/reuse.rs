//! A worker that runs more than one task: live, count, save, and what happens when it ends in the middle.

use std::time::Duration;

use tests::database::quote_ident;
use tests::{Cluster, Database, Signal, Supervisor, eventually};

use crate::queries::{all, all_are, one, one_with, running, state, worker_of};

/// Inserts tasks so that all of them wait behind one that is then let go: the order in
/// which the worker finds them does not depend on how fast they are inserted.
fn in_one_go(mill: &Supervisor<'_>, database: &Database, group: &str, rows: &str) {
    let gate = database.insert_with("SELECT pg_sleep(600)", &format!("group = '{group}', max = 0, data = 'gate'"));
    let backend = running(mill, database, gate);
    database.run(rows);
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    mill.finished(database, gate);
}

/// How many tasks of the group each server process has run, in order of time.
fn batches(database: &Database, group: &str) -> Vec<i64> {
    all(
        database,
        &format!(
            "SELECT count(*) FROM public.task WHERE \"group\" = '{group}' AND data IS NULL GROUP BY pid ORDER BY min(start)"
        ),
    )
}

#[test]
fn a_worker_goes_on_as_the_next_rows_own_live_and_count_allow() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("pool", false).start();
    // group, columns of its five rows, tasks per server process
    let groups: [(&str, &str, &[i64]); 6] = [
        ("none", "0, '0'", &[1, 1, 1, 1, 1]),
        ("count", "3, '0'", &[3, 2]),
        ("live", "0, '1 hour'", &[5]),
        ("both and count first", "2, '1 hour'", &[2, 2, 1]),
        ("both and live first", "9, '1 microsecond'", &[1, 1, 1, 1, 1]),
        ("either is not both", "0, '1 microsecond'", &[1, 1, 1, 1, 1]),
    ];
    for (group, columns, expected) in groups {
        let rows = format!(
            "INSERT INTO public.task (input, \"group\", count, live) SELECT 'SELECT 1', '{group}', {columns} \
             FROM generate_series(1, 5)"
        );
        in_one_go(&mill, &database, group, &rows);
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 20);
        assert_eq!(batches(&database, group), expected, "{group}");
    }

    // the candidate's own values decide, not those of the task before
    in_one_go(
        &mill,
        &database,
        "own",
        "INSERT INTO public.task (input, \"group\", count) VALUES ('SELECT 1', 'own', 5), ('SELECT 1', 'own', 1), \
         ('SELECT 1', 'own', 5)",
    );
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 20);
    let pids: Vec<i32> =
        all(&database, "SELECT pid FROM public.task WHERE \"group\" = 'own' AND data IS NULL ORDER BY id");
    assert_eq!(pids[0], pids[2], "the third is still good for the first one's worker");
    assert_ne!(pids[0], pids[1], "the second wants a worker that has run none yet");
}

#[test]
fn a_worker_claims_no_row_with_a_smaller_max_than_it_was_started_for() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("run", 1).queue_key("pool", false).start();
    in_one_go(
        &mill,
        &database,
        "g",
        "INSERT INTO public.task (input, \"group\", max, live) VALUES ('SELECT 1', 'g', 2, '1 hour'), \
         ('SELECT 1', 'g', 1, '1 hour'), ('SELECT 1', 'g', 2, '1 hour'), ('SELECT 1', 'g', 1, '1 hour')",
    );
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 20);
    let pids: Vec<i32> = all(&database, "SELECT pid FROM public.task WHERE data IS NULL ORDER BY id");
    assert_eq!((pids[0], pids[1]), (pids[2], pids[3]));
    assert_ne!(pids[0], pids[1]);
}

const MESS: &str = "SET work_mem = '77MB'; SET search_path = pg_catalog; SET statement_timeout = 12345; \
    CREATE TEMP TABLE mess (a int); PREPARE mess AS SELECT 1; SELECT pg_advisory_lock(4711); LISTEN mess; \
    DECLARE mess CURSOR WITH HOLD FOR SELECT 1; SET mess.y = 'set'; SELECT nextval('public.s')";

const PROBE: &str = "SELECT current_setting('work_mem'), current_setting('search_path'), \
    current_setting('statement_timeout'), to_regclass('pg_temp.mess'), (SELECT count(*) FROM pg_prepared_statements), \
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 4711), \
    (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE name = 'mess'), \
    current_setting('mess.y', true), current_user";

#[test]
fn between_tasks_the_session_is_as_new_unless_the_finished_one_had_save() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let role = format!("{}_other", database.name());
    let (role, owner) = (quote_ident(&role), quote_ident(database.owner()));
    database.run(&format!(
        "CREATE ROLE {role}; GRANT {role} TO {owner}; CREATE SEQUENCE s; GRANT ALL ON SEQUENCE s TO PUBLIC"
    ));
    for save in [false, true] {
        let group = format!("save {save}");
        let mess = format!("{MESS}; SET ROLE {role}").replace('\'', "''");
        let probe = PROBE.replace('\'', "''");
        in_one_go(
            &mill,
            &database,
            &group,
            &format!(
                "INSERT INTO public.task (input, \"group\", save, live, header) VALUES \
                 ('{mess}', '{group}', {save}, '1 hour', false), \
                 ('{probe}', '{group}', {save}, '1 hour', false), \
                 ('SELECT currval(''public.s'')', '{group}', {save}, '1 hour', false)"
            ),
        );
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 20);
        assert_eq!(batches(&database, &group), [3], "one session");
        let sql = format!(
            "SELECT coalesce(error, output) FROM public.task WHERE \"group\" = '{group}' AND data IS NULL ORDER BY id"
        );
        let said: Vec<String> = all(&database, &sql);
        let probed: Vec<&str> = said[1].split('\t').collect();
        let owner = database.owner();
        // the path and the time limit are each task's own in any case
        if save {
            let role = role.trim_matches('"');
            assert_eq!(probed, ["77MB", "\"$user\", public", "0", "mess", "1", "1", "1", "1", "set", role], "{said:?}");
            assert_eq!(said[2], "2");
        } else {
            let unset = if probed[8].is_empty() { "" } else { "\\N" };
            assert_eq!(probed, ["4MB", "\"$user\", public", "0", "\\N", "0", "0", "0", "0", unset, owner], "{said:?}");
            assert!(said[2].contains("is not yet defined in this session"), "{said:?}");
        }
    }
    drop(mill);
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_terminated_launcher_lets_a_live_worker_finish_its_task_and_no_more() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run(
        "INSERT INTO public.task (input, live) SELECT 'SELECT pg_sleep(0.3)', '1 hour' FROM generate_series(1, 30)",
    );
    mill.eventually("some are done", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'") >= 2
    });
    mill.signal(Signal::SIGTERM);
    assert!(mill.wait_exit(Duration::from_secs(10)).success());
    let states: Vec<String> = all(&database, "SELECT DISTINCT state::text FROM public.task ORDER BY 1");
    assert_eq!(states, ["DONE", "PLAN"]);
    let pids: i64 = one(&database, "SELECT count(DISTINCT pid) FROM public.task WHERE state = 'DONE'");
    assert_eq!(pids, 1);
    let tried: i64 = one(&database, "SELECT count(*) FROM public.task WHERE state = 'PLAN' AND attempt > 0");
    assert_eq!(tried, 0, "none was begun that was not finished");
}

#[test]
fn a_live_worker_killed_in_its_third_task_costs_that_task_one_more_attempt_and_nothing_else() {
    let database = Cluster::shared().database();
    // In a batch those behind the third one would have been taken, too, and given back.
    let mill = Supervisor::of(&database).queue_key("batch", false).start();
    database.run("CREATE TABLE ledger (task bigint); GRANT ALL ON ledger TO PUBLIC");
    let first = database.insert_with("SELECT pg_sleep(600)", "live = '1 hour', data = 'gate'");
    let backend = running(&mill, &database, first);
    let third = first + 3;
    // the third stays until it is killed, however late that is
    database.run(&format!(
        "INSERT INTO public.task (input, live) SELECT 'INSERT INTO public.ledger SELECT current_setting(''pg_task.id'')::bigint; \
         SELECT pg_sleep(600) FROM public.task WHERE id = current_setting(''pg_task.id'')::bigint AND id = {third} AND attempt = 1', \
         '1 hour' FROM generate_series(1, 6)",
    ));
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    let worker = eventually("the worker is at its third task", || {
        worker_of(&mill, third).filter(|_| state(&database, third) == "WORK")
    });
    mill.kill9(worker);
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 20);
    let attempts: Vec<i32> = all(&database, "SELECT attempt FROM public.task WHERE data IS NULL ORDER BY id");
    assert_eq!(attempts, [1, 1, 2, 1, 1, 1]);
    let ran: i64 = one_with(&database, "SELECT count(*) FROM ledger WHERE task <> $1", &[&0i64]);
    assert_eq!(ran, 6, "each committed once");
}

#[test]
fn a_finished_task_planned_again_while_its_worker_is_at_others_costs_no_worker_and_no_slot() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let first = database.insert_with("SELECT pg_sleep(0.3)", "live = '1 hour', max = 1");
    database.insert_with("SELECT pg_sleep(2)", "live = '1 hour', max = 1, plan = now() + interval '0.1 s'");
    mill.finished(&database, first);
    let worker = eventually("the worker is at the second", || worker_of(&mill, first + 1));
    database.run(&format!("UPDATE public.task SET state = 'PLAN', live = '0' WHERE id = {first}"));
    running(&mill, &database, first);
    assert!(mill.workers().iter().any(|process| process.pid == worker), "both run");
    all_are(&mill, &database, "state = 'DONE'", 20);
    mill.eventually("no worker is left, dead or alive", || mill.children().len() == 1);
    mill.eventually("nor a slot", || mill.status().is_some_and(|status| status["slots"]["used"] == 2));
}
