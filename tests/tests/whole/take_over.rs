//! Tables that somebody else has made: by the extension pg_task, then and now, by hand, with other types, in
//! partitions. They are served in place, with their rows, or refused with all that is wrong.

use std::time::Duration;

use serde_json::json;
use tests::{Cluster, Supervisor};

use crate::older_tables::{
    NEVER, SOON, count, dump, fill, fingerprint, make, make_old, make_todays, starts_without_ddl, stop, text,
    wait_repaired, watch_ddl,
};

#[test]
fn an_older_table_of_pg_task_is_taken_over_with_its_rows() {
    let database = Cluster::shared().database();
    make_old(&database, ", note text DEFAULT 'mine'");
    make(&database, "ALTER TABLE public.task ALTER COLUMN max SET DEFAULT 5");
    fill(
        &database,
        "INSERT INTO public.task (state, start, stop, pid, input, output, error, \"group\")
             SELECT 'DONE', now() - interval '1 day', now(), 4711, 'SELECT ' || n, n, CASE WHEN n % 7 = 0 THEN 'ERROR:  x' END,
                    'g' || n % 13 FROM generate_series(1, 1200) n;
         INSERT INTO public.task (state, input, data) VALUES ('STOP', 'SELECT 1', 'stopped');
         INSERT INTO public.task (state, input, data) VALUES ('PLAN', 'SELECT ''planned''', 'PLAN'), ('TAKE', 'SELECT 2', 'TAKE');
         INSERT INTO public.task (state, start, pid, input, data) VALUES ('WORK', now(), 4000000, 'SELECT 3', 'WORK')",
    );
    let before = fingerprint(&database, "state IN ('DONE', 'STOP')");
    let old = "id <= 1201";
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    supervisor
        .wait("what waited is done")
        .within(SOON)
        .until(|| count(&database, "data <> 'stopped' AND state = 'DONE'") == 3);
    wait_repaired(&supervisor);
    assert_eq!(fingerprint(&database, old), before);

    // A new session knows none of pg_task's settings, and is heard at once.
    let id = database.insert("SELECT 1 AS a, 2 AS b");
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["output"], &row["max"], &row["note"]), (&"a\tb\n1\t2".into(), &5.into(), &"mine".into()));
    let failed = database.insert("SELECT 1/0");
    assert_eq!(supervisor.finished(&database, failed)["state"], "FAIL");
    make(&database, "UPDATE public.task SET state = 'PLAN' WHERE data = 'stopped'");
    supervisor.eventually("the stopped one goes on", || count(&database, "data = 'stopped' AND state = 'DONE'") == 1);

    let upstream = "SELECT count(*)::text FROM pg_proc p FULL JOIN pg_trigger g ON g.tgfoid = p.oid
                     WHERE p.proname = 'task_wake_up' OR g.tgname = 'wake_up'";
    assert_eq!(text(&database, upstream).as_deref(), Some("0"));
    stop(&supervisor);
    starts_without_ddl(&database);
}

#[test]
fn todays_table_of_pg_task_is_taken_over_with_its_rows() {
    let database = Cluster::shared().database();
    make_todays(&database);
    fill(
        &database,
        "INSERT INTO public.task (state, start, stop, input, output) SELECT 'DONE', now(), now(), 'SELECT 1', n
             FROM generate_series(1, 1000) n;
         INSERT INTO public.task (input, count) SELECT 'SELECT ' || n, 10 FROM generate_series(1, 20) n",
    );
    let before = fingerprint(&database, "id <= 1000");
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    // Their worker goes from one to the next, PLAN to WORK, which pg_task's guard would refuse.
    supervisor
        .wait("what waited is done")
        .within(SOON)
        .until(|| count(&database, "id > 1000 AND state = 'DONE'") == 20);
    wait_repaired(&supervisor);
    assert_eq!(fingerprint(&database, "id <= 1000"), before);
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    let ours = "SELECT string_agg(tgname, ',' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'public.task'::regclass";
    assert_eq!(
        text(&database, ours).as_deref(),
        Some(
            "mill_claimed,mill_hold,mill_job_after,mill_job_before,mill_job_change,mill_job_delete,mill_job_insert,mill_wakeup_delete,mill_wakeup_insert,mill_wakeup_update"
        )
    );
    stop(&supervisor);
    starts_without_ddl(&database);
}

#[test]
fn tasks_of_other_roles_are_not_run_as_the_queues_user_until_somebody_says_so() {
    let database = Cluster::shared().database();
    make_todays(&database);
    fill(&database, "INSERT INTO public.task (input, \"user\") VALUES ('SELECT current_user', 'reporter')");
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).launch();
    supervisor.eventually("it is refused", || supervisor.log_contains("tasks of reporter wait"));
    assert_eq!(count(&database, "state = 'PLAN'"), 1);
    make(&database, "ALTER TABLE public.task DROP COLUMN \"user\" CASCADE");
    supervisor.wait("it is run").within(SOON).until(|| count(&database, "state = 'DONE'") == 1);
}

#[test]
fn a_table_made_by_hand_with_other_types_is_served() {
    let database = Cluster::shared().database();
    make(
        &database,
        "CREATE DOMAIN public.sql AS text CHECK (VALUE <> 'nonsense');
         CREATE DOMAIN public.number AS int;
         CREATE DOMAIN public.moment AS timestamptz;
         CREATE TABLE public.task (
             id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent int, plan public.moment NOT NULL DEFAULT now(),
             state varchar(10) NOT NULL DEFAULT 'PLAN', input public.sql NOT NULL, \"group\" varchar(30) NOT NULL DEFAULT 'g',
             max public.number NOT NULL DEFAULT 1, delimiter varchar(1) NOT NULL DEFAULT ';', output varchar, error varchar,
             remote varchar, pid bigint, repeat interval NOT NULL DEFAULT '0', hash bigint, customer int NOT NULL DEFAULT 7,
             length int GENERATED ALWAYS AS (length(input)) STORED, serial bigint GENERATED ALWAYS AS IDENTITY);
         INSERT INTO public.task (input) SELECT 'SELECT 1 AS a, 2 AS b' FROM generate_series(1, 50);
         INSERT INTO public.task (input, repeat, customer) VALUES ('SELECT 3', '1 hour', 8);",
    );
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    supervisor.wait("all are done").within(SOON).until(|| count(&database, "state = 'DONE'") == 51);
    wait_repaired(&supervisor);
    assert_eq!(count(&database, "output = E'a;b\\n1;2'"), 50);
    // The repetition has the owner's column, and the server's own anew.
    assert_eq!(count(&database, "state = 'PLAN' AND parent = 51 AND customer = 8 AND length = 8 AND serial = 52"), 1);
    make(
        &database,
        "INSERT INTO public.task (input, \"group\", live) VALUES ('SELECT 1/0', 'h', '1 minute'), ('SELECT 4', 'h', '1 minute')",
    );
    supervisor.eventually("both are done", || count(&database, "\"group\" = 'h' AND state IN ('DONE', 'FAIL')") == 2);
    make(&database, "INSERT INTO public.task (input, \"group\") VALUES ('SELECT pg_sleep(60)', 'stop')");
    supervisor.eventually("it runs", || count(&database, "\"group\" = 'stop' AND state = 'WORK'") == 1);
    make(&database, "UPDATE public.task SET state = 'STOP' WHERE \"group\" = 'stop'");
    supervisor.eventually("it is ended", || supervisor.workers().is_empty());
    let hashes = "hash IS DISTINCT FROM hashtext(\"group\" || COALESCE(remote, '')) AND state NOT IN ('DONE', 'FAIL')";
    assert_eq!(count(&database, hashes), 0);
    stop(&supervisor);
    watch_ddl(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    make(&database, "INSERT INTO public.task (input, \"group\") VALUES ('SELECT 5', 'last')");
    supervisor.eventually("it is done", || count(&database, "\"group\" = 'last' AND state = 'DONE'") == 1);
    stop(&supervisor);
    assert_eq!(text(&database, "SELECT string_agg(object, E'\\n') FROM public.ddl"), None);
}

#[test]
fn a_table_that_cannot_be_served_is_refused_with_all_that_is_missing() {
    let database = Cluster::shared().database();
    make(
        &database,
        "CREATE SCHEMA a; CREATE TABLE a.task (title text, plan date, state text);
         CREATE SCHEMA b; CREATE VIEW b.task AS SELECT 1 AS id, 'SELECT 1' AS input;
         CREATE SCHEMA c; CREATE TABLE c.task (id bigint, plan timestamptz, state text, input text);",
    );
    let mut launch = Supervisor::bare().key("connect", database.server().conninfo(database.login()));
    for schema in ["a", "b", "c"] {
        launch = launch.queue(json!({"data": database.name(), "user": database.owner(), "schema": schema}));
    }
    let supervisor = launch.launch();
    for reason in [
        "it lacks id, input; plan is date, not timestamp with time zone",
        "is a view",
        "it lacks a primary key or unique index on id;",
    ] {
        supervisor.eventually(reason, || supervisor.log_contains(reason));
    }
    // Repaired by its owner, it is served without a restart.
    make(
        &database,
        "ALTER TABLE c.task ADD PRIMARY KEY (id); INSERT INTO c.task VALUES (1, now(), 'PLAN', 'SELECT 1')",
    );
    let done = "SELECT state FROM c.task";
    supervisor.wait("it is served").within(SOON).until(|| text(&database, done).as_deref() == Some("DONE"));
}

#[test]
fn a_dump_that_holds_its_locks_is_neither_waited_for_nor_in_anybodys_way() {
    let database = Cluster::shared().database();
    make_old(&database, "");
    fill(&database, "INSERT INTO public.task (input) VALUES ('SELECT 1')");
    let mut dump = dump(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).launch();
    let said = "cannot take over table";
    supervisor.eventually("it says who is in the way", || supervisor.log_contains(said));
    let waiting = "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'public.task'::regclass";
    tests::steadily("nobody waits for a lock", Duration::from_secs(3), || {
        fill(
            &database,
            "SET statement_timeout = 1000; INSERT INTO public.task (input, state) VALUES ('SELECT 1', 'DONE')",
        );
        text(&database, waiting).as_deref() == Some("0")
    });
    assert_eq!(supervisor.log().lines().iter().filter(|line| line.contains(said)).count(), 1);
    dump.batch_execute("COMMIT").expect("end");
    supervisor.wait("it is taken over").within(SOON).until(|| count(&database, "id = 1 AND state = 'DONE'") == 1);
    assert!(supervisor.log_contains("table taken over"));
}

#[test]
fn what_can_wait_is_repaired_when_the_dump_has_ended_and_the_queue_is_served_meanwhile() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    stop(&supervisor);
    make(
        &database,
        "DROP TRIGGER mill_wakeup_insert ON public.task; ALTER TABLE public.task DROP CONSTRAINT task_active_check;
         COMMENT ON COLUMN public.task.max IS 'ours'; COMMENT ON COLUMN public.task.input IS NULL;
         DROP INDEX public.task_plan_idx;",
    );
    let mut dump = dump(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 200).start();
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    supervisor.eventually("the check is left for later", || supervisor.log_contains("not repaired completely"));
    // A reader is not in the way of these.
    assert!(supervisor.log_contains("wake-up triggers, index held, comments"), "{}", supervisor.describe());
    dump.batch_execute("COMMIT").expect("end");
    supervisor.wait("the check is there").within(SOON).until(|| supervisor.log_contains("check of active"));
    let comment = "SELECT col_description('public.task'::regclass, attnum) FROM pg_attribute
                    WHERE attrelid = 'public.task'::regclass AND attname = 'max'";
    assert_eq!(text(&database, comment).as_deref(), Some("ours"));
    stop(&supervisor);
    starts_without_ddl(&database);
}

#[test]
fn rows_that_break_a_rule_are_served_without_it() {
    let database = Cluster::shared().database();
    make(
        &database,
        "CREATE TABLE public.task (id bigserial PRIMARY KEY, plan timestamptz NOT NULL DEFAULT now(), state text NOT NULL
             DEFAULT 'PLAN', input text NOT NULL, repeat interval NOT NULL DEFAULT '-1 hour');
         INSERT INTO public.task (input) VALUES ('SELECT 1');",
    );
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    supervisor.wait("it is done").within(SOON).until(|| count(&database, "state = 'DONE'") == 1);
    let why = "rows violate the check \\\"repeat\\\" >= '0'";
    supervisor.eventually("it says why", || {
        supervisor.log().lines().iter().any(|line| line.replace("\\\"", "\"").contains(&why.replace("\\\"", "\"")))
    });
}

#[test]
fn a_large_table_is_taken_over_without_being_rewritten() {
    let database = Cluster::shared().database();
    make_todays(&database);
    fill(
        &database,
        "INSERT INTO public.task (state, start, stop, input, output)
             SELECT 'DONE', now(), now(), 'SELECT 1', repeat(md5(n::text), 60) FROM generate_series(1, 12000) n;
         INSERT INTO public.task (input, \"group\", count) SELECT 'SELECT ' || n, 'g' || n % 2, 100 FROM generate_series(1, 10) n;
         INSERT INTO public.task (input, \"group\", plan) VALUES ('SELECT 1', 'later', now() + interval '1 day')",
    );
    make(
        &database,
        "ALTER TABLE public.task ALTER COLUMN output SET STORAGE PLAIN; UPDATE public.task SET output = output || ''",
    );
    let file = "SELECT pg_relation_filenode('public.task')::text";
    let (before, finished) = (text(&database, file), fingerprint(&database, "id <= 12000"));
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    supervisor
        .wait("what waited is done")
        .within(SOON)
        .until(|| count(&database, "id > 12000 AND state = 'DONE'") == 10);
    wait_repaired(&supervisor);
    assert_eq!((text(&database, file), fingerprint(&database, "id <= 12000")), (before, finished));
    let id = database.insert_with("SELECT 1", "count = 2");
    let row = supervisor.finished(&database, id);
    assert!(row["hash"].is_i64(), "{row}");
    assert_eq!(count(&database, "state = 'PLAN' AND hash = hashtext(\"group\")"), 1);
    let valid = "SELECT count(*)::text FROM pg_index WHERE indrelid = 'public.task'::regclass AND indpred IS NOT NULL AND indisvalid";
    assert_eq!(text(&database, valid).as_deref(), Some("6"));
    stop(&supervisor);
    starts_without_ddl(&database);
}

#[test]
fn wake_up_triggers_by_an_earlier_name_are_replaced() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    stop(&supervisor);
    make(
        &database,
        "ALTER TRIGGER mill_wakeup_insert ON public.task RENAME TO mill_ring_insert;
         ALTER TRIGGER mill_wakeup_update ON public.task RENAME TO mill_ring_update;",
    );
    let supervisor = Supervisor::of(&database).queue_key("sleep", NEVER).start();
    wait_repaired(&supervisor);
    let names = "SELECT string_agg(tgname, ',' ORDER BY tgname) FROM pg_trigger
                  WHERE tgrelid = 'public.task'::regclass AND (tgname LIKE 'mill_wakeup%' OR tgname LIKE 'mill_ring%')";
    assert_eq!(text(&database, names).as_deref(), Some("mill_wakeup_delete,mill_wakeup_insert,mill_wakeup_update"));
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
}
