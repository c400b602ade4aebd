//! What stands before an input: a server that refuses it is sent no input, or skips it, on every kind of session.

use std::time::Duration;

use tests::{Cluster, Proxy, Supervisor};

use crate::job_fixture;
use crate::queries::one;

/// What opens the block of an atomic task, and statements of the same length that the server refuses.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const CANCELLED: &str = "DO 'BEGIN RAISE query_canceled; END'           ";
const NO_MEMORY: &str = "DO 'BEGIN RAISE SQLSTATE ''53200''; END'       ";

#[test]
fn an_atomic_input_does_not_run_where_the_server_has_refused_to_open_its_block() {
    let database = Cluster::shared().database();
    database.run("CREATE TABLE public.effect (task bigint); GRANT ALL ON public.effect TO PUBLIC");
    database.set_password("pw");
    let proxy = Proxy::before(database.server().port);
    let connect = format!("host=127.0.0.1 port={} user={} password=pw", proxy.port(), database.login());
    let mill = Supervisor::of(&database).key("connect", connect).start();
    let input = "INSERT INTO public.effect SELECT current_setting('pg_task.id')::bigint; SELECT 'one more'";
    for live in ["0", "1 hour"] {
        let run = |refusal: Option<&'static str>| {
            // our other transactions have their COMMIT in the same write
            if let Some(refusal) = refusal {
                proxy.swap_at(BEGIN, "\0COMMIT\0", refusal);
            }
            let id = database.insert_with(input, &format!("atomic = true, live = '{live}', group = '{live}'"));
            let row = mill.finished(&database, id);
            assert!(refusal.is_none() || proxy.has_swapped(), "{}", mill.describe());
            let effects: i64 = one(&database, &format!("SELECT count(*) FROM public.effect WHERE task = {id}"));
            (row["state"].clone(), row["reason"].clone(), row["attempt"].clone(), effects)
        };
        assert_eq!(run(None), ("DONE".into(), ().into(), 1.into(), 1));
        assert_eq!(run(Some(CANCELLED)), ("FAIL".into(), "cancelled".into(), 1.into(), 0));
        assert_eq!(run(Some(NO_MEMORY)), ("DONE".into(), ().into(), 2.into(), 1));
    }
}

/// Each input writes down what it finds set in its session.
const FOUND: &str = "INSERT INTO public.found SELECT current_setting('application_name'), current_setting('pg_task.id', true), \
     current_setting('pg_task.group', true), current_setting('statement_timeout'), current_setting('mill.job', true)";

#[test]
fn inputs_of_every_kind_find_their_settings_or_do_not_run_however_often_their_set_up_is_cancelled() {
    for pooled in [true, false] {
        let database = Cluster::shared().database();
        database.run(
            "CREATE TABLE public.found (name text, id text, \"group\" text, timeout text, job text); GRANT ALL ON public.found TO PUBLIC",
        );
        let mill = Supervisor::of(&database).queue_key("pool", pooled).start();
        job_fixture::open(&mill, &database);
        let count: i32 = tests::sized(300, 3000);
        let insert = "INSERT INTO public.task (input, timeout, \"group\", live, atomic, count, max) \
             SELECT $1, '77 s', kind || ' ' || n % 4, CASE WHEN kind IN ('live', 'batch') THEN interval '1 minute' ELSE '0' END, \
                    kind = 'atomic', CASE kind WHEN 'counted' THEN 3 ELSE 0 END, CASE kind WHEN 'batch' THEN 1 ELSE 2 END \
               FROM generate_series(1, $2) AS n, unnest(ARRAY['pooled', 'live', 'batch', 'counted', 'atomic']) AS kind";
        database.connect().execute(insert, &[&FOUND, &(count / 5)]).expect("insert");
        let jobs = "INSERT INTO mill.job (name, input, schedule_interval, timeout, atomic, max_retries, retry_period, crash_wait) \
             SELECT 'job ' || n, $1, '100 ms', '77 s', n % 2 = 0, 0, '10 ms', '10 ms' FROM generate_series(1, 4) AS n";
        database.connect().execute(jobs, &[&FOUND]).expect("jobs");
        let cancels = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                        WHERE datname = current_database() AND application_name LIKE 'pg_task %' AND pid <> pg_backend_pid()";
        let mut canceller = database.connect_superuser();
        let open = "SELECT count(*) FROM public.task WHERE job IS NULL AND state IN ('PLAN', 'TAKE', 'WORK')";
        mill.wait("all have ended").within(Duration::from_secs(90)).until(|| {
            for _ in 0..50 {
                let _ = canceller.query(cancels, &[]);
            }
            one::<i64>(&database, open) == 0
        });
        let bare = "SELECT count(*) FROM public.found \
             WHERE timeout <> '77s' OR COALESCE(id, '') = '' OR COALESCE(\"group\", '') = '' OR name NOT LIKE 'pg_task public task %' \
                OR (name LIKE '%job %') <> (COALESCE(job, '') <> '')";
        assert_eq!(
            one::<i64>(&database, bare),
            0,
            "pool {pooled}: {:?}",
            database.query("SELECT * FROM public.found", &[])
        );
        let kept = "SELECT count(*) FROM public.task t WHERE t.atomic AND t.state = 'FAIL' \
                     AND EXISTS (SELECT FROM public.found f WHERE f.id = t.id::text)";
        assert_eq!(one::<i64>(&database, kept), 0, "pool {pooled}: an atomic task that has failed has left something");
        // The cancels may have hit every run so far; the jobs go on.
        let of_jobs = mill.eventually("a run of a job comes through", || {
            let found: i64 = one(&database, "SELECT count(*) FROM public.found WHERE job <> ''");
            (found > 0).then_some(found)
        });
        let failed: i64 = one(&database, "SELECT count(*) FROM public.task WHERE state = 'FAIL'");
        println!("pool {pooled}: {failed} were cancelled, {of_jobs} runs of jobs came through");
    }
}
