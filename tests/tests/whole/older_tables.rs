//! Tables as pg_task makes them, now and in earlier versions, for tests that take them over, and comparisons of their contents.

use std::time::Duration;

use tests::{Database, Signal, Supervisor};

/// A poll that never comes: what happens within a test happens by an event.
pub const NEVER: &str = "1 hour";

pub const SOON: Duration = Duration::from_secs(20);

/// Every setting that pg_task's defaults read; without the extension only who sets them can insert.
pub const SETTINGS: &str = "SELECT set_config('pg_task.' || name, value, false) FROM (VALUES
    ('id', '0'), ('active', '1 hour'), ('live', '0'), ('repeat', '0'), ('timeout', '0'), ('count', '0'), ('max', '0'),
    ('delete', 'true'), ('drift', 'false'), ('header', 'true'), ('save', 'false'), ('string', 'true'),
    ('delimiter', ','), ('escape', ''), ('quote', ''), ('group', 'old'), ('null', '-')) AS s (name, value)";

/// The signal that pg_task's trigger sends to its sleeping worker.
pub const WAKE_UP: &str = "CREATE FUNCTION public.task_wake_up() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN
    PERFORM pg_catalog.pg_cancel_backend(pid) FROM pg_catalog.pg_locks WHERE locktype = 'userlock' AND objsubid = 3;
    RETURN NULL; END$f$;";

pub fn setting(name: &str, kind: &str) -> String {
    format!("\"{name}\" {kind} NOT NULL DEFAULT (current_setting('pg_task.{name}'))::{kind}")
}

/// The columns that pg_task's tables of all times have in common.
pub fn upstream_columns() -> String {
    let kinds = [
        ("active", "interval"),
        ("live", "interval"),
        ("repeat", "interval"),
        ("timeout", "interval"),
        ("count", "int"),
        ("max", "int"),
        ("delete", "bool"),
        ("drift", "bool"),
        ("header", "bool"),
        ("string", "bool"),
        ("delimiter", "\"char\""),
        ("escape", "\"char\""),
        ("quote", "\"char\""),
        ("group", "text"),
        ("null", "text"),
    ];
    let settings = kinds.map(|(name, kind)| setting(name, kind)).join(", ");
    format!(
        "id bigserial PRIMARY KEY, parent bigint DEFAULT NULLIF((current_setting('pg_task.id'))::bigint, 0),
         plan timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, start timestamptz, stop timestamptz, pid int,
         state public.state NOT NULL DEFAULT 'PLAN', data text, error text, input text NOT NULL, output text,
         remote text, {settings}"
    )
}

/// An older table: five states, a generated hash, one trigger.
pub fn make_old(database: &Database, more: &str) {
    let columns = upstream_columns();
    make(
        database,
        &format!(
            "CREATE TYPE public.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'STOP');
             CREATE TABLE public.task ({columns},
                 hash int NOT NULL GENERATED ALWAYS AS (hashtext(\"group\" || COALESCE(remote, ''))) STORED{more},
                 CHECK (active > '0'), CHECK (live >= '0'));
             CREATE INDEX ON public.task (hash); CREATE INDEX ON public.task (input); CREATE INDEX ON public.task (state);
             {WAKE_UP}
             CREATE TRIGGER wake_up AFTER INSERT ON public.task EXECUTE FUNCTION public.task_wake_up();"
        ),
    );
}

/// Today's: seven states, no hash, rows that name their author, guards over the states and the columns.
pub fn make_todays(database: &Database) {
    let columns = upstream_columns();
    let save = setting("save", "bool");
    make(
        database,
        &format!(
            "CREATE TYPE public.state AS ENUM ('PLAN', 'GONE', 'TAKE', 'WORK', 'DONE', 'FAIL', 'STOP');
             CREATE TABLE public.task ({columns}, {save}, \"user\" name NOT NULL DEFAULT CURRENT_USER);
             CREATE INDEX ON public.task (hashtext(\"group\" || COALESCE(remote, '')));
             {WAKE_UP}
             CREATE TRIGGER task_wake_up AFTER INSERT OR DELETE OR UPDATE OF plan ON public.task
                 EXECUTE FUNCTION public.task_wake_up();
             CREATE FUNCTION public.task_state() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN
                 IF OLD.state = 'PLAN' AND NEW.state NOT IN ('PLAN', 'TAKE', 'GONE', 'STOP')
                     OR OLD.state = 'STOP' AND NEW.state <> 'STOP' THEN RAISE EXCEPTION 'invalid state transition'; END IF;
                 RETURN NEW; END$f$;
             CREATE TRIGGER task_state BEFORE UPDATE OF state ON public.task FOR EACH ROW
                 EXECUTE FUNCTION public.task_state();
             CREATE FUNCTION public.task_repeat() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN
                 IF OLD.state <> 'PLAN' AND NEW.repeat IS DISTINCT FROM OLD.repeat THEN
                     RAISE EXCEPTION 'repeat column is immutable once task left PLAN state'; END IF;
                 RETURN NEW; END$f$;
             CREATE TRIGGER task_repeat BEFORE UPDATE OF repeat ON public.task FOR EACH ROW
                 EXECUTE FUNCTION public.task_repeat();
             CREATE POLICY task_user ON public.task USING (\"user\" = CURRENT_USER);
             ALTER TABLE public.task ENABLE ROW LEVEL SECURITY;"
        ),
    );
}

#[track_caller]
pub fn make(database: &Database, sql: &str) {
    database.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// As the row user where pg_task's settings are known.
#[track_caller]
pub fn fill(database: &Database, sql: &str) {
    let mut client = database.connect();
    client.batch_execute(SETTINGS).expect("settings");
    client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

pub fn count(database: &Database, condition: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM public.task WHERE {condition}");
    database.look(&sql, &[]).map_or(-1, |rows| rows[0].get(0))
}

pub fn text(database: &Database, sql: &str) -> Option<String> {
    database.look(sql, &[])?.first()?.get(0)
}

/// What the rows of a condition say, in the columns that they had before.
pub fn fingerprint(database: &Database, condition: &str) -> String {
    let sql = format!(
        "SELECT count(*) || ' ' || md5(string_agg(concat_ws('|', id, parent, plan, start, stop, active, \"max\", pid, state,
             \"delete\", data, error, output, \"group\", input, remote, delimiter, \"null\"), E'\\n' ORDER BY id))
         FROM public.task WHERE {condition}"
    );
    text(database, &sql).expect("rows")
}

/// Waits until the table has all that it should have.
#[track_caller]
pub fn wait_repaired(supervisor: &Supervisor<'_>) {
    supervisor.wait("the table is mended").within(SOON).until(|| supervisor.log_contains("table repaired"));
}

pub fn stop(supervisor: &Supervisor<'_>) {
    supervisor.signal(Signal::SIGTERM);
    assert!(supervisor.wait_exit(Duration::from_secs(10)).success());
}

/// A session that holds what pg_dump holds while it runs.
pub fn dump(database: &Database) -> postgres::Client {
    let mut dump = database.connect_superuser();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE public.task IN ACCESS SHARE MODE";
    dump.batch_execute(begin).expect("its locks");
    dump
}

/// From here on every DDL of this database is written down.
pub fn watch_ddl(database: &Database) {
    database.run(
        "CREATE TABLE public.ddl (tag text, object text);
         CREATE FUNCTION public.watch_ddl() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $f$BEGIN
             INSERT INTO public.ddl VALUES (TG_TAG, current_query()); END$f$;
         CREATE EVENT TRIGGER watch_ddl ON ddl_command_end EXECUTE FUNCTION public.watch_ddl();",
    );
}

/// A second start, beside a dump, that serves a task and changes nothing.
#[track_caller]
pub fn starts_without_ddl(database: &Database) {
    watch_ddl(database);
    let _dump = dump(database);
    let supervisor = Supervisor::of(database).row_key("sleep", NEVER).start();
    let id = database.insert("SELECT 'again'");
    assert_eq!(supervisor.finished(database, id)["output"], "again");
    stop(&supervisor);
    let ddl = text(database, "SELECT string_agg(tag || ': ' || left(object, 300), E'\\n') FROM public.ddl");
    assert_eq!(ddl, None, "{}", supervisor.describe());
}
