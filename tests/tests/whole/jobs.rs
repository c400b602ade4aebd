//! Jobs: declared by an INSERT, run on time, changed by anybody, paused when they are broken.

use std::time::{Duration, Instant};

use tests::{Cluster, Supervisor, sized};

use crate::job_fixture::{self, insert, running, runs, stat, status};
use crate::queries::{all, one, refusal};

#[test]
fn a_one_second_job_runs_on_its_grid_and_no_time_twice() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let seconds: i64 = sized(6, 60);
    let job = insert(&database, "tick", "input, schedule_interval", "'SELECT 1', '1 s'");
    let long =
        format!("SELECT COALESCE(max(at) - min(at) >= interval '{seconds} s', false) FROM mill.run WHERE job = {job}");
    mill.wait("it has run for a while")
        .within(Duration::from_secs(seconds as u64 + 30))
        .until(|| one::<bool>(&database, &long));
    let row = database
        .connect()
        .query_one(
            "SELECT count(*), count(DISTINCT at), \
                 bool_and(mod(extract(epoch FROM at - j.initial_start), 1) = 0), \
                 bool_and(state = 'succeeded'), max(start - at) < '900 ms', \
                 (SELECT bool_and(total_runs = total_successes AND total_crashes = 0) FROM mill.job_stat WHERE running = 0) \
               FROM mill.run r JOIN mill.job j ON j.id = r.job WHERE r.job = $1 AND r.stop IS NOT NULL",
            &[&job],
        )
        .expect("mill.run answers");
    let (count, different): (i64, i64) = (row.get(0), row.get(1));
    assert!(count >= seconds, "{count} runs in {seconds} s");
    assert_eq!(count, different, "no time twice");
    assert!(row.get::<_, bool>(2) && row.get::<_, bool>(3), "{}", mill.describe());
    println!("{count} runs in {seconds} s, all on time: {}", row.get::<_, bool>(4));
    assert_ne!(row.get::<_, Option<bool>>(5), Some(false));
}

#[test]
fn add_job_calls_a_procedure_that_may_commit_with_its_id_and_config() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let mut client = database.connect();
    client
        .batch_execute(
            "CREATE TABLE trace (n serial, what text); \
             CREATE PROCEDURE sweep(job_id int, config jsonb) LANGUAGE plpgsql AS $$ BEGIN \
               INSERT INTO trace (what) VALUES (concat_ws(' ', job_id, config->>'keep', current_setting('mill.job'), \
                 current_setting('mill.attempt'), current_setting('mill.at')::timestamptz <= now())); COMMIT; \
               INSERT INTO trace (what) VALUES ('second'); END $$; \
             CREATE FUNCTION keep_is_positive(config jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
               IF (config->>'keep')::int <= 0 THEN RAISE EXCEPTION 'keep must be more than 0'; END IF; END $$",
        )
        .expect("the owner may make routines");
    let add = "SELECT mill.add_job('sweep', '1 hour', config => '{\"keep\": 7}', check_config => 'keep_is_positive', \
               max_runtime => '1 min', max_retries => 3, retry_period => '2 min')";
    let job: i32 = client.query_one(add, &[]).expect("add_job").get(0);
    mill.eventually("it has run", || runs(&database, job) == ["succeeded"]);
    assert_eq!(
        all::<String>(&database, "SELECT what FROM trace ORDER BY n"),
        [format!("{job} 7 {job} 1 t"), "second".into()]
    );
    assert_eq!(
        one::<String>(
            &database,
            "SELECT concat_ws(',', name, max_runtime, max_retries, retry_period, crash_wait) FROM mill.job"
        ),
        format!("sweep {job},00:01:00,3,00:02:00,00:05:00")
    );
    let refused = refusal(&mut client, &format!("SELECT mill.alter_job({job}, config => '{{\"keep\": 0}}')"));
    assert!(refused.contains("keep must be more than 0"), "{refused}");
    client
        .batch_execute(&format!("SELECT mill.alter_job({job}, config => '{{\"keep\": 8}}', next_start => now())"))
        .expect("alter_job");
    mill.eventually("it has run with the new config", || {
        one::<i64>(&database, &format!("SELECT count(*) FROM trace WHERE what LIKE '{job} 8 %'")) == 1
    });
}

#[test]
fn any_change_by_any_client_takes_effect_at_once() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 60_000).start();
    job_fixture::open(&mill, &database);
    let job = insert(
        &database,
        "rare",
        "input, schedule_interval, initial_start",
        "'SELECT 1', '1 day', now() + interval '1 day'",
    );
    let mut client = database.connect();
    let began = Instant::now();
    client
        .batch_execute("UPDATE mill.job SET schedule_interval = '1 s', initial_start = now() - interval '1 day'")
        .expect("UPDATE");
    mill.eventually("it runs by its new schedule", || runs(&database, job).len() >= 2);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    client.batch_execute("UPDATE mill.job SET scheduled = false").expect("UPDATE");
    mill.eventually("what ran has ended", || stat::<i32>(&database, job, "running") == 0);
    assert_eq!(status(&database, job).0, "Paused");
    let before = runs(&database, job).len();
    tests::steadily("a paused job starts nothing", Duration::from_millis(2500), || {
        runs(&database, job).len() == before
    });
    assert!(status(&database, job).1.contains("paused"), "{:?}", status(&database, job));
    let run: i64 = client.query_one(&format!("SELECT mill.run_job({job})"), &[]).expect("run_job").get(0);
    mill.finished(&database, job_fixture::task_of(&mill, &database, run));
    assert_eq!(runs(&database, job).len(), before + 1, "run_job runs also a paused job");
    client.batch_execute(&format!("SELECT mill.alter_job({job}, scheduled => true)")).expect("alter_job");
    mill.eventually("it goes on", || runs(&database, job).len() > before + 1);
    client.batch_execute("UPDATE mill.job SET scheduled = false").expect("UPDATE");
    // Of a job that is just starting or ending a run nothing is waited for.
    mill.eventually("what ran has ended", || stat::<i32>(&database, job, "running") == 0);
    client.batch_execute(&format!("SELECT mill.delete_job({job})")).expect("delete_job");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.job_stat"), 0);
}

#[test]
fn bad_values_are_refused_with_the_reason() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let mut client = database.connect();
    for (columns, values, reason) in [
        ("schedule_interval", "'0'", "must be more than 0"),
        ("schedule_interval", "'1 month 1 day'", "months cannot be mixed"),
        ("cron", "'0 0 31 2 *'", "never fires"),
        ("cron", "'nonsense'", "cron \"nonsense\""),
        ("cron, timezone", "'* * * * *', 'Moon/Base'", "time zone \"Moon/Base\" does not exist"),
        ("cron, schedule_interval", "'* * * * *', '1 s'", "choose one"),
        ("queue", "'public.nowhere'", "table \"public.nowhere\" does not exist"),
        ("queue", "'pg_catalog.pg_class'", "is not a task table"),
        ("max_retries", "-2", "max_retries"),
        ("owner", "'postgres'", "member of"),
    ] {
        let sql = format!("INSERT INTO mill.job (name, input, {columns}) VALUES ('bad', 'SELECT 1', {values})");
        let said = refusal(&mut client, &sql);
        assert!(said.contains(reason), "{sql}: {said}");
    }
    let long = refusal(&mut client, "INSERT INTO mill.job (name, input) VALUES (repeat('x', 201), 'SELECT 1')");
    assert!(long.contains("1 to 200 characters"), "{long}");
}

#[test]
fn a_cron_job_gets_its_next_start_at_once_and_runs_when_its_time_comes() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 60_000).start();
    job_fixture::open(&mill, &database);
    let job = insert(&database, "nightly", "input, cron, timezone", "'SELECT 1', '30 3 * * *', 'Europe/Paris'");
    let began = Instant::now();
    mill.eventually("its next start is filled in", || stat::<bool>(&database, job, "next_start IS NOT NULL"));
    println!("filled in after {:?}", began.elapsed());
    let at: String = stat(&database, job, "to_char(next_start AT TIME ZONE 'Europe/Paris', 'HH24:MI:SS')");
    assert_eq!(at, "03:30:00");
    job_fixture::skip_to_next_start(&database, job);
    mill.eventually("it has run", || runs(&database, job) == ["succeeded"]);
    mill.eventually("the next night is planned", || {
        stat::<bool>(&database, job, "COALESCE(next_start - last_start > interval '20 hours', false)")
    });
    drop(mill);
    let mill = Supervisor::of(&database).start();
    mill.eventually("a moved clock is warned about", || mill.log_contains("clock of jobs is moved"));
}

#[test]
fn more_due_jobs_than_slots_run_all_of_them_the_oldest_due_first() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).key("max_workers", 4).start();
    job_fixture::open(&mill, &database);
    let jobs = 12;
    // inserted in another order than they are due
    database
        .connect()
        .batch_execute(&format!(
            "INSERT INTO mill.job (name, input, schedule_interval, initial_start) \
             SELECT 'j' || i, 'SELECT pg_sleep(0.3)', '1 day', now() - interval '1 hour' + (i * 7 % {jobs}) * interval '1 min' \
             FROM generate_series(1, {jobs}) AS i"
        ))
        .expect("insert jobs");
    mill.wait("all have run")
        .within(Duration::from_secs(60))
        .until(|| one::<i64>(&database, "SELECT count(*) FROM mill.run WHERE state = 'succeeded'") == jobs);
    let order: Vec<f64> = all(&database, "SELECT extract(epoch FROM at)::float8 FROM mill.run ORDER BY task");
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.run"), jobs, "none failed, none twice");
    let said = mill.log().lines().iter().filter(|line| line.contains("due jobs wait for a free slot")).count();
    assert!((1..=2).contains(&said), "said once per episode, not {said} times");
}

#[test]
fn many_jobs_due_in_one_second_all_run() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let jobs: i64 = sized(100, 1000);
    database
        .connect()
        .batch_execute(&format!(
            "INSERT INTO mill.job (name, input, schedule_interval, initial_start) SELECT 'j' || i, 'SELECT 1', '1 day', \
             now() + interval '1 s' FROM generate_series(1, {jobs}) AS i"
        ))
        .expect("insert jobs");
    let began = Instant::now();
    mill.wait("all have run").within(Duration::from_secs(240)).until(|| {
        one::<i64>(&database, "SELECT count(*) FROM mill.job_stat WHERE total_successes = 1 AND running = 0") == jobs
    });
    println!("{jobs} jobs due in one second took {:?}", began.elapsed());
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.run WHERE state = 'succeeded'"), jobs);
    assert_eq!(one::<i64>(&database, "SELECT sum(total_runs)::bigint FROM mill.job_stat"), jobs);
}

#[test]
fn deleting_a_job_whose_run_is_blocked_returns_at_once_and_ends_the_run() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let mut blocker = database.connect();
    blocker.batch_execute("CREATE TABLE wanted ()").expect("a table");
    blocker.batch_execute("BEGIN; LOCK TABLE wanted").expect("a lock");
    let job = insert(&database, "blocked", "input, schedule_interval", "'SELECT * FROM wanted', '1 day'");
    let (task, backend, _) = running(&mill, &database, job);
    let began = Instant::now();
    database.connect().batch_execute(&format!("SELECT mill.delete_job({job})")).expect("delete_job");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    mill.eventually("the run is over", || database.finished(task).is_some());
    let row = database.task(task).expect("the row stays");
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"cancelled".into()), "{row}");
    mill.eventually("its backend is free", || {
        one::<bool>(
            &database,
            &format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {backend} AND state = 'active')"),
        )
    });
    assert_eq!(
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state NOT IN ('FAIL')"),
        0,
        "no successor"
    );
}

#[test]
fn max_runtime_ends_a_run_and_one_that_resists_loses_its_backend() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let columns = "input, schedule_interval, max_runtime, max_retries";
    let meek = insert(&database, "meek", columns, "'SELECT pg_sleep(1000)', '1 day', '500 ms', 0");
    let resisting = "$a$DO $x$ BEGIN LOOP BEGIN PERFORM pg_sleep(1000); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $x$ $a$";
    let stubborn = insert(&database, "stubborn", columns, &format!("{resisting}, '1 day', '500 ms', 0"));
    for job in [meek, stubborn] {
        mill.wait("the run has failed").within(Duration::from_secs(30)).until(|| runs(&database, job) == ["failed"]);
        let (reason, error): (String, String) = {
            let sql = format!("SELECT reason, error FROM public.task WHERE job = {job}");
            let rows = database.query(&sql, &[]).expect("a row");
            (rows[0].get(0), rows[0].get(1))
        };
        assert_eq!(reason, "timeout");
        assert!(error.contains("max_runtime"), "{error}");
        assert_eq!(stat::<i64>(&database, job, "total_failures"), 1);
        assert_eq!(stat::<i64>(&database, job, "total_crashes"), 0);
        let (paused, why) = status(&database, job);
        assert_eq!(paused, "Paused");
        assert!(why.contains("max_retries"), "{why}");
    }
    assert!(mill.log_contains("terminating its backend"), "{}", mill.describe());
    mill.eventually("no backend is left at it", || {
        one::<bool>(&database, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1000)%' AND pid <> pg_backend_pid())")
    });
}

#[test]
fn a_broken_job_pauses_itself_with_its_reason_and_hurts_no_other() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let good = insert(&database, "good", "input, schedule_interval", "'SELECT 1', '1 s'");
    let stranger = format!("{}_stranger", database.owner());
    database.run(&format!(
        "CREATE ROLE \"{stranger}\" LOGIN; GRANT INSERT ON public.task TO \"{stranger}\"; \
         INSERT INTO mill.job (name, input, schedule_interval, owner) VALUES ('orphan', 'SELECT 1', '1 s', '{stranger}')"
    ));
    let orphan: i32 = one(&database, "SELECT id FROM mill.job WHERE name = 'orphan'");
    mill.eventually("it runs", || !runs(&database, orphan).is_empty());
    database.run(&format!("REVOKE INSERT ON public.task FROM \"{stranger}\""));
    mill.eventually("it is paused", || status(&database, orphan).0 == "Paused");
    let why = status(&database, orphan).1;
    assert!(why.contains("may not INSERT into public.task"), "{why}");
    database.run(&format!(
        "GRANT INSERT ON public.task TO \"{stranger}\"; UPDATE mill.job SET scheduled = true WHERE id = {orphan}"
    ));
    let before = runs(&database, orphan).len();
    mill.eventually("it runs again", || runs(&database, orphan).len() > before);
    database.run(&format!("DROP OWNED BY \"{stranger}\"; DROP ROLE \"{stranger}\""));
    mill.eventually("it is paused again", || {
        one::<bool>(&database, &format!("SELECT NOT scheduled FROM mill.job WHERE id = {orphan}"))
    });
    let why: String = stat(&database, orphan, "reason");
    assert!(why.contains("does not exist any more"), "{why}");
    // a procedure that has vanished, one that kills its own session, one that wants to change its own counters
    let mut client = database.connect();
    client
        .batch_execute(
            "CREATE PROCEDURE gone(int, jsonb) LANGUAGE sql AS ''; SELECT mill.add_job('gone', '1 s', initial_start => now() + interval '1 h'); \
             DROP PROCEDURE gone; SELECT mill.alter_job(id, next_start => now()) FROM mill.job WHERE name LIKE 'gone%'",
        )
        .expect("a job without its procedure");
    let hostile = insert(
        &database,
        "hostile",
        "input, schedule_interval",
        "'SET pg_task.header = ''nonsense''; SET pg_task.max = ''nonsense''; SET search_path = nowhere; SET default_transaction_read_only = on; \
          SELECT pg_terminate_backend(pg_backend_pid())', '1 s'",
    );
    let gone: i32 = one(&database, "SELECT id FROM mill.job WHERE name LIKE 'gone%'");
    for job in [gone, hostile] {
        mill.eventually("it has failed", || {
            runs(&database, job).iter().any(|state| state == "failed" || state == "cancelled")
        });
    }
    mill.eventually("it is tried again", || stat::<i64>(&database, hostile, "total_failures") >= 2);
    let before = runs(&database, good).len();
    mill.eventually("the good one runs on", || runs(&database, good).len() >= before + 2);
    assert!(
        runs(&database, good).iter().all(|state| state == "succeeded" || state == "running"),
        "{}",
        mill.describe()
    );
}

#[test]
fn a_job_may_set_its_own_next_start_while_it_runs() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = insert(
        &database,
        "selfish",
        "input, schedule_interval",
        "'SELECT mill.alter_job(current_setting(''mill.job'')::int, next_start => ''2099-01-01 00:00+00'')', '1 s'",
    );
    mill.eventually("it has run", || runs(&database, job) == ["succeeded"]);
    assert_eq!(stat::<String>(&database, job, "to_char(next_start AT TIME ZONE 'UTC', 'YYYY-MM-DD')"), "2099-01-01");
}

#[test]
fn a_drifting_job_counts_from_the_end_of_its_last_run() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = insert(
        &database,
        "drifting",
        "input, schedule_interval, fixed_schedule",
        "'SELECT pg_sleep(0.4)', '700 ms', false",
    );
    mill.eventually("it has run three times", || {
        runs(&database, job).iter().filter(|state| *state == "succeeded").count() >= 3
    });
    let gaps: Vec<f64> = all(
        &database,
        &format!(
            "SELECT extract(epoch FROM at - lag(stop) OVER (ORDER BY task))::float8 FROM mill.run \
             WHERE job = {job} AND state = 'succeeded' ORDER BY task OFFSET 1"
        ),
    );
    assert!(gaps.iter().all(|gap| (0.65..0.95).contains(gap)), "{gaps:?}");
}

#[test]
fn old_runs_are_deleted_by_number_and_by_age() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    // runs that have come to their end, with their rows: of one job too many, of another too old ones, and of the last an
    // activation whose end is too old, behind a crash that is not
    let owner = database.owner();
    let [busy, old, crashed] = ["busy", "old", "crashed"].map(|name| insert(&database, name, "input", "'SELECT 1'"));
    database.run(&format!(
        "WITH ends AS (
             SELECT {busy} AS job, CASE WHEN i % 2 = 0 THEN 'succeeded' ELSE 'failed' END AS outcome, now() AS stop, i FROM generate_series(1, 2500) AS i
             UNION ALL SELECT {old}, 'succeeded', now() - i * interval '20 days', i FROM generate_series(0, 3) AS i)
         INSERT INTO mill_private.run (job, owner, queue, at, due, ordered, start, stop, outcome)
         SELECT e.job, '{owner}', 'public.task'::regclass, now(), now(), false, e.stop, e.stop, e.outcome FROM ends e ORDER BY e.job, e.i;
         WITH first AS (
             INSERT INTO mill_private.run (job, owner, queue, at, due, ordered, start, stop, outcome, reason)
             VALUES ({crashed}, '{owner}', 'public.task'::regclass, now(), now(), false, now(), now(), 'crashed', 'crashed')
             RETURNING id, owner, queue)
         INSERT INTO mill_private.run (job, owner, queue, activation, at, due, ordered, start, stop, outcome)
         SELECT {crashed}, f.owner, f.queue, f.id, now(), now(), false, now(), now() - interval '2 months', 'succeeded' FROM first f;
         INSERT INTO public.task (input, state, job, run, run_of, at, start, stop, reason)
         SELECT 'SELECT 1', CASE WHEN r.outcome = 'succeeded' THEN 'DONE' ELSE 'FAIL' END::public.state, r.job, r.id,
                COALESCE(r.activation, r.id), r.at, r.start, r.stop, r.reason FROM mill_private.run r ORDER BY r.id;
         UPDATE mill_private.run r SET task = t.id FROM public.task t WHERE t.run = r.id;
         -- a task of a person's own is none of them
         INSERT INTO public.task (input, state, start, stop) VALUES ('SELECT 1', 'DONE', now(), now() - interval '2 months')"
    ));
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill_private.run WHERE task IS NOT NULL"), 2506);
    drop(mill);
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    // the history and the rows
    for (table, success, failure) in [
        ("mill_private.run", "outcome = 'succeeded'", "outcome = 'failed'"),
        ("public.task", "state = 'DONE'", "state = 'FAIL'"),
    ] {
        let sql = format!(
            "SELECT count(*) FILTER (WHERE job = {busy} AND {success}) = 1000 AND count(*) FILTER (WHERE job = {busy} AND {failure}) = 1000 \
             AND count(*) FILTER (WHERE job = {old}) = 2 AND count(*) FILTER (WHERE job = {crashed}) = 0 FROM {table}"
        );
        mill.wait("what is too much has gone").within(Duration::from_secs(60)).until(|| one::<bool>(&database, &sql));
    }
    let apart = "SELECT (SELECT count(*) FROM public.task t WHERE t.job IS NOT NULL AND NOT EXISTS (SELECT FROM mill_private.run r WHERE r.id = t.run)) \
         + (SELECT count(*) FROM mill_private.run r WHERE NOT EXISTS (SELECT FROM public.task t WHERE t.run = r.id))";
    assert_eq!(one::<i64>(&database, apart), 0, "rows go with their runs");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE job IS NULL"), 1);
    // it is said behind the commit
    mill.eventually("that is said", || mill.log_contains("old runs deleted"));
}

#[test]
fn runs_that_follow_each_other_on_one_session_each_find_their_own_settings_and_nothing_of_the_one_before() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let mut client = database.connect();
    client
        .batch_execute("CREATE TABLE trace (n serial, pid int, id text, job text, at timestamptz, attempt text, path text, strange bigint)")
        .expect("a table");
    let input = "INSERT INTO public.trace (pid, id, job, at, attempt, path, strange) SELECT pg_backend_pid(), current_setting('pg_task.id'), \
         current_setting('mill.job'), mill.at(), current_setting('mill.attempt'), current_setting('search_path'), \
         (SELECT count(*) FROM pg_prepared_statements WHERE name = 'left_over') + (SELECT count(*) FROM pg_locks \
           WHERE locktype = 'advisory' AND objid = 77 AND pid = pg_backend_pid()); \
         SET search_path = nowhere; SET mill.at = '2000-01-01'; SET mill.attempt = '99'; SET ROLE NONE; \
         SELECT pg_advisory_lock(77, 77); PREPARE left_over AS SELECT 1";
    let sql = "INSERT INTO mill.job (name, input, live) VALUES ('live', $1, '1 hour') RETURNING id";
    let job: i32 = client.query_one(sql, &[&input]).expect("a job").get(0);
    client.batch_execute(&format!("SELECT mill.run_job({job}) FROM generate_series(1, 20)")).expect("twenty runs");
    mill.eventually("all have run", || runs(&database, job) == ["succeeded"; 20]);
    let wrong = format!(
        "SELECT count(*) FROM trace t LEFT JOIN public.task q ON q.id = t.id::bigint AND q.job = {job} AND q.at = t.at \
          AND q.attempt = t.attempt::int WHERE q.id IS NULL OR t.job <> '{job}' OR t.path ~ 'nowhere' OR t.strange <> 0"
    );
    assert_eq!(one::<i64>(&database, &wrong), 0);
    assert_eq!(one::<i64>(&database, "SELECT count(DISTINCT id) FROM trace"), 20);
    assert!(one::<i64>(&database, "SELECT count(DISTINCT pid) FROM trace") < 10, "they follow each other");
}
