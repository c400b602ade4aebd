//! Live workers that take several short tasks at once: what they must keep to all the same.

use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tests::{Cluster, Database, Signal, Supervisor, sized};

use crate::asking::{all, all_are, most_at_once, one, running, state};

/// Who has run what, and whether he was alone with it; signed in the task's own transaction.
fn open_ledger(database: &Database) {
    let table = "CREATE TABLE ledger (number bigserial, task bigint, pid int, alone bool)";
    database.connect().batch_execute(table).expect("the owner may make tables");
}

const SIGN: &str = "INSERT INTO ledger (task, pid, alone) SELECT current_setting('pg_task.id')::bigint, \
    pg_backend_pid(), pg_try_advisory_lock(4711, current_setting('pg_task.id')::int)";

/// Tasks of one group for live workers, all visible at once. `input` is an expression over n.
fn insert(database: &Database, count: i64, max: i32, input: &str) {
    let rows = format!(
        "INSERT INTO public.task (\"group\", \"max\", live, input) \
         SELECT 'g', {max}, interval '1 hour', {input} FROM generate_series(1, {count}) AS n"
    );
    database.connect().batch_execute(&rows).expect("the owner inserts tasks");
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Every task has run exactly once, alone.
fn once_each(database: &Database, count: i64) {
    assert_eq!(one::<i64>(database, "SELECT count(DISTINCT task) FROM ledger"), count, "none is lost");
    assert_eq!(one::<i64>(database, "SELECT count(*) FROM ledger"), count, "none ran twice");
    assert!(one::<bool>(database, "SELECT bool_and(alone) FROM ledger"), "each was alone");
}

/// In how many transactions the ends were written.
fn transactions(database: &Database) -> i64 {
    one(database, "SELECT count(DISTINCT xmin::text) FROM public.task")
}

#[test]
fn short_tasks_are_recorded_together_in_their_order_and_each_runs_once() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    open_ledger(&database);
    // On a busy machine even a short task may take long: then there are no batches.
    mill.wait("short tasks are recorded together").within(Duration::from_secs(90)).until(|| {
        database.run("TRUNCATE public.task, ledger");
        let gate = database.insert_with("SELECT pg_sleep(600)", "group = 'g', max = 0, live = '1 hour'");
        let backend = running(&mill, &database, gate);
        insert(&database, 200, 0, &quoted(SIGN));
        // What counts for more comes first.
        database.run("UPDATE public.task SET priority = 5 WHERE state = 'PLAN' AND id % 50 = 0");
        database.run(&format!("SELECT pg_cancel_backend({backend})"));
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 60);
        assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'"), 200);
        once_each(&database, 200);
        let order: Vec<i64> = all(&database, "SELECT task FROM ledger ORDER BY number");
        let wanted: Vec<i64> =
            all(&database, "SELECT id FROM public.task WHERE state = 'DONE' ORDER BY priority DESC, id");
        assert_eq!(order, wanted);
        assert_eq!(most_at_once(&database, "state = 'DONE'"), 1);
        assert!(one::<bool>(&database, "SELECT bool_and(pid IS NOT NULL AND start <= stop) FROM public.task"));
        let same = "SELECT bool_and(t.pid = l.pid) FROM public.task t JOIN ledger l ON l.task = t.id";
        assert!(one::<bool>(&database, same));
        transactions(&database) < 150
    });
}

#[test]
fn without_batches_each_end_is_a_transaction_of_its_own() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", false).start();
    insert(&database, 60, 0, "'SELECT 1'");
    all_are(&mill, &database, "state = 'DONE'", 60);
    assert_eq!(transactions(&database), 60);
}

/// Whatever a task does to its session, the next one of its batch finds it as new.
#[test]
fn the_tasks_of_a_batch_do_not_see_each_others_sessions() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    let input = "CASE n % 8 WHEN 0 THEN 'SET search_path = nowhere; SET statement_timeout = 60000; SELECT 1' \
        WHEN 1 THEN 'SELECT pg_advisory_lock(99)' WHEN 2 THEN 'CREATE TEMP TABLE t AS SELECT 1 AS a' \
        WHEN 3 THEN 'BEGIN; SELECT 2' WHEN 4 THEN 'SELECT 1/0' WHEN 5 THEN 'COPY ledger FROM STDIN' \
        WHEN 6 THEN 'SET client_encoding = LATIN1; SELECT ''grün''' \
        ELSE 'SELECT current_setting(''search_path''), current_setting(''pg_task.id''), current_setting(''pg_task.group''), \
                (SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND classid = 0 AND objid = 99)' END";
    open_ledger(&database);
    insert(&database, 160, 0, input);
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 60);
    let of = |kind: i64| -> Vec<String> {
        let what = "CASE WHEN error IS NULL THEN output ELSE split_part(error, chr(10), 1) END";
        all(&database, &format!("SELECT DISTINCT {what} FROM public.task WHERE id % 8 = {kind}"))
    };
    // The first id is 1.
    assert_eq!(of(0), ["SET\nSET\n1"]);
    assert_eq!(of(1), [""]);
    assert_eq!(of(2), ["SELECT 1"]);
    assert_eq!(of(3), ["BEGIN\n2"]);
    assert_eq!(of(4), ["ERROR:  division by zero"]);
    let copy = of(5);
    assert!(copy.len() == 1 && copy[0].contains("COPY FROM STDIN is not supported"), "{copy:?}");
    assert_eq!(of(6), ["SET\ngrün"]);
    let ids: Vec<i64> = all(&database, "SELECT id FROM public.task WHERE id % 8 = 7");
    for id in ids {
        let row = database.task(id).expect("the row is there");
        let output = format!("current_setting\tcurrent_setting\tcurrent_setting\tlocks\n\"$user\", public\t{id}\tg\t0");
        assert_eq!(row["output"], output, "{row}");
    }
}

/// Our own prepared statements stay on the session of a batch; what tasks do with theirs must not show all the same.
#[test]
fn prepared_statements_are_of_no_consequence_to_the_other_tasks_of_a_batch() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    open_ledger(&database);
    database
        .connect()
        .batch_execute(
            "CREATE FUNCTION leaves() RETURNS int LANGUAGE plpgsql AS \
             $$ BEGIN EXECUTE 'PREPARE left_behind AS SELECT 1'; RETURN 1; END $$",
        )
        .expect("the owner may make functions");
    let kinds = [
        ("PREPARE p AS SELECT 1; EXECUTE p", "PREPARE\n1"),
        ("DEALLOCATE ALL; SELECT 2", "DEALLOCATE ALL\n2"),
        ("DISCARD ALL", "DISCARD ALL"),
        ("SELECT leaves()", "1"),
        ("SELECT 3", "3"),
    ];
    for (input, output) in kinds {
        // Behind others, so that a batch is on its way when they come.
        database.run("TRUNCATE public.task, ledger");
        let rows = format!("CASE WHEN n % 40 < 35 THEN {} ELSE {} END", quoted(SIGN), quoted(input));
        insert(&database, 120, 0, &rows);
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 60);
        let (input, what) = (quoted(input), "coalesce(nullif(error, ''), split_part(output, chr(10), -1))");
        let found: Vec<String> =
            all(&database, &format!("SELECT DISTINCT {what} FROM public.task WHERE input = {input}"));
        assert_eq!(found, [output.rsplit('\n').next().unwrap_or_default()], "{input}");
        once_each(&database, 105);
    }
}

/// Long and short tasks, mixed: the short ones behind a long one go back, others take them, and none runs twice.
#[test]
fn what_goes_back_from_batches_runs_once_and_is_not_lost() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).key("max_workers", 8).start();
    open_ledger(&database);
    let (returns, rows) = sized((30, 400), (20_000, 40_000));
    let mut inserted = 0;
    loop {
        let sleeping = format!("{SIGN}; SELECT pg_sleep(0.07)");
        let input = format!("CASE WHEN n % 20 = 19 THEN {} ELSE {} END", quoted(&sleeping), quoted(SIGN));
        insert(&database, rows, 3, &input);
        inserted += rows;
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", sized(60, 1200));
        if one::<i64>(&database, "SELECT sum(attempt - 1)::bigint FROM public.task") >= returns || inserted >= rows * 8
        {
            break;
        }
    }
    once_each(&database, inserted);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'"), inserted);
    let returned: i64 = one(&database, "SELECT sum(attempt - 1)::bigint FROM public.task");
    println!("{inserted} tasks, {returned} returns");
    assert!(most_at_once(&database, "true") <= 4, "no more than its max lets run");
}

#[test]
fn the_short_tasks_behind_a_long_one_do_not_wait_for_it() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    insert(&database, 200, 1, "CASE n WHEN 100 THEN 'SELECT pg_sleep(600)' ELSE 'SELECT 1' END");
    let long: i64 = one(&database, "SELECT id FROM public.task WHERE input LIKE '%600%'");
    let backend = running(&mill, &database, long);
    // One may stand on the wire behind it.
    let left = "SELECT count(*) <= 1 FROM public.task WHERE state <> 'DONE' AND input = 'SELECT 1'";
    mill.wait("the others are done").within(Duration::from_secs(30)).until(|| one::<bool>(&database, left));
    assert_eq!(state(&database, long), "WORK");
    // The cancel that ends it does not hit what stands behind it.
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 30);
    let failed: Vec<i64> = all(&database, "SELECT id FROM public.task WHERE state = 'FAIL'");
    assert_eq!(failed, [long]);
}

/// The same with a cancel of ours: the owner stops the row.
#[test]
fn a_stop_in_a_batch_hits_the_task_that_is_meant_and_no_other() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    for round in 0..sized(3, 30) {
        database.run("TRUNCATE public.task");
        insert(&database, 120, 0, "CASE n WHEN 60 THEN 'SELECT pg_sleep(600)' ELSE 'SELECT 1' END");
        let long: i64 = one(&database, "SELECT id FROM public.task WHERE input LIKE '%600%'");
        running(&mill, &database, long);
        database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {long}"));
        all_are(&mill, &database, "state IN ('DONE', 'FAIL', 'STOP')", 30);
        let odd: Vec<i64> = all(&database, "SELECT id FROM public.task WHERE state <> 'DONE'");
        assert_eq!(odd, [long], "round {round}");
    }
}

/// Workers are killed in the middle of their batches: what was not recorded runs again, nothing at the same time.
#[test]
fn killed_in_a_batch_nothing_is_lost_and_no_two_attempts_overlap() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).key("max_workers", 8).start();
    open_ledger(&database);
    let (count, kills) = sized((1_500, 12), (40_000, 300));
    insert(&database, count, 3, &quoted(&format!("{SIGN}; SELECT pg_sleep(0.001)")));
    let waiting = "SELECT count(*) FROM public.task WHERE state NOT IN ('DONE', 'FAIL')";
    let mut killed = 0;
    while killed < kills && one::<i64>(&database, waiting) > 0 {
        let workers = mill.workers();
        if let Some(worker) = workers.get(rand::random_range(0..workers.len().max(1))) {
            // it may have ended since
            killed += usize::from(kill(Pid::from_raw(worker.pid), Signal::SIGKILL).is_ok());
        }
        crate::asking::linger(Duration::from_millis(40), "kills are spread over the work");
    }
    crate::asking::forgive(&database);
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", sized(60, 600));
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'"), count);
    assert_eq!(one::<i64>(&database, "SELECT count(DISTINCT task) FROM ledger"), count);
    assert!(one::<bool>(&database, "SELECT bool_and(alone) FROM ledger"), "two attempts at once");
    // Only what was at hand in a killed worker may have run again.
    let again: i64 = one(&database, "SELECT count(*) FROM ledger");
    assert!(again - count <= killed as i64 * 16, "{again} runs of {count} tasks, {killed} kills");
}

/// A worker that is told to end gives back what it has not sent; nothing of its batch is left in its hands.
#[test]
fn told_to_end_a_worker_gives_the_rest_of_its_batch_back() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    open_ledger(&database);
    insert(&database, 3_000, 1, &quoted(SIGN));
    mill.eventually("some are done", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'") > 50
    });
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(30));
    let held: i64 = one(&database, "SELECT count(*) FROM public.task WHERE state IN ('TAKE', 'WORK')");
    assert_eq!(held, 0, "{}", mill.describe());
    assert!(one::<bool>(
        &database,
        "SELECT count(*) = (SELECT count(*) FROM public.task WHERE state = 'DONE') FROM ledger"
    ));
    once_each(&database, one(&database, "SELECT count(*) FROM ledger"));
}

/// A task whose function deallocates our statements behind our back takes away what would make the session new for the next
/// one. That one is on the wire already: the server passes over it, it goes back, and runs once, in its own clothes.
#[test]
fn a_task_whose_session_cannot_be_made_new_does_not_run_on_it() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    open_ledger(&database);
    let spoil = "CREATE FUNCTION spoil() RETURNS void LANGUAGE plpgsql AS \
        $$ BEGIN SET search_path = nowhere; EXECUTE 'DEALLOC' || 'ATE ALL'; END $$";
    database.connect().batch_execute(spoil).expect("the owner may make functions");
    let sign =
        format!("{SIGN}, current_setting('search_path')").replace("(task, pid, alone)", "(task, pid, alone, path)");
    database.connect().batch_execute("ALTER TABLE ledger ADD path text").expect("the owner changes his table");
    // Until it has hit one on the wire: on a busy machine there may be no batches for a while.
    mill.wait("the server has passed over a task").within(Duration::from_secs(90)).until(|| {
        database.run("TRUNCATE public.task, ledger");
        let input = format!("CASE n % 20 WHEN 0 THEN 'SELECT spoil()' ELSE {} END", quoted(&sign));
        insert(&database, 400, 0, &input);
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 60);
        let failed: Vec<String> = all(&database, "SELECT error FROM public.task WHERE state = 'FAIL'");
        assert_eq!(failed, [""; 0]);
        once_each(&database, 380);
        assert!(one::<bool>(&database, "SELECT bool_and(path <> 'nowhere') FROM ledger"), "each found a new session");
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE attempt > 1") > 0
    });
}

/// Rows that want to be alone are, and run in their turn.
#[test]
fn atomic_and_saving_tasks_are_in_no_batch_and_keep_their_place() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("batch", true).start();
    open_ledger(&database);
    let gate = database.insert_with("SELECT pg_sleep(600)", "group = 'g', max = 0, live = '1 hour'");
    let backend = running(&mill, &database, gate);
    database.run(&format!(
        "INSERT INTO public.task (\"group\", live, input, atomic, save, repeat) \
         SELECT 'g', interval '1 hour', {}, n % 10 = 3, n % 10 = 6, CASE WHEN n = 95 THEN interval '1 hour' ELSE '0' END \
           FROM generate_series(1, 100) AS n",
        quoted(SIGN)
    ));
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    all_are(&mill, &database, "state IN ('DONE', 'FAIL') OR plan > now()", 60);
    once_each(&database, 100);
    let order: Vec<i64> = all(&database, "SELECT task FROM ledger ORDER BY number");
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'PLAN'"), 1, "it repeats");
    // What an atomic task has signed was written with its end, and nothing else was.
    let alone = "SELECT bool_and(t.xmin::text = l.xmin::text AND (SELECT count(*) FROM public.task o WHERE o.xmin::text = t.xmin::text) = 1) \
         FROM public.task t JOIN ledger l ON l.task = t.id WHERE t.atomic";
    assert!(one::<bool>(&database, alone));
}

/// Only the books are lazy, never the task itself, and only where the config says so.
#[test]
fn the_ends_of_tasks_wait_for_the_disk_unless_the_config_says_otherwise() {
    for (lazy, expected) in [(false, "on"), (true, "off")] {
        let database = Cluster::shared().database();
        let mill = Supervisor::of(&database).row_key("batch", true).row_key("synchronous_commit", !lazy).start();
        database.run(
            "CREATE FUNCTION public.witness() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN NEW.data := pg_catalog.current_setting('synchronous_commit'); RETURN NEW; END $$; \
             CREATE TRIGGER witness BEFORE UPDATE ON public.task FOR EACH ROW WHEN (NEW.state = 'DONE') \
             EXECUTE FUNCTION public.witness()",
        );
        insert(&database, 40, 0, "'SELECT current_setting(''synchronous_commit'')'");
        database.insert("SELECT current_setting('synchronous_commit')");
        database.insert_with("SELECT current_setting('synchronous_commit')", "atomic = true");
        all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 60);
        let seen: Vec<String> = all(&database, "SELECT DISTINCT data FROM public.task WHERE NOT atomic");
        assert_eq!(seen, [expected]);
        let atomic: Vec<String> = all(&database, "SELECT DISTINCT data FROM public.task WHERE atomic");
        assert_eq!(atomic, ["on"], "what a task does is never lost");
        let outputs: Vec<String> = all(&database, "SELECT DISTINCT output FROM public.task");
        assert_eq!(outputs, ["on"]);
    }
}
