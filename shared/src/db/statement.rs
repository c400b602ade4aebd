//! Our statements, each in a file of its own under `shared/sql`, and the names that stand in them.
//!
//! A statement names its queue by placeholders, because a table's name cannot be a parameter; `Queue::fill` puts the
//! quoted names in. Nothing else is ever put into SQL text, but for the config's column defaults, as literals.

use super::identifier::{literal, qualified, quoted};
use super::lock_key;
use super::server::proof_condition;
use crate::config::ColumnDefaults;
use std::fmt::Display;

pub const LOOK_QUEUE: &str = include_str!("../../sql/task/look_queue.sql");
pub const MAKE_SCHEMA: &str = include_str!("../../sql/task/make_schema.sql");
pub const MAKE_STATE: &str = include_str!("../../sql/task/make_state.sql");
pub const MAKE_TABLE: &str = include_str!("../../sql/task/make_table.sql");
pub const MAKE_INDEXES: &str = include_str!("../../sql/task/make_indexes.sql");
const MAKE_TRIGGERS: &str = include_str!("../../sql/task/make_triggers.sql");
pub const COMMENT_TABLE: &str = include_str!("../../sql/task/comment_table.sql");
const SET_RIGHTS: &str = include_str!("../../sql/task/set_rights.sql");
const SET_FUNCTION_RIGHTS: &str = include_str!("../../sql/task/set_function_rights.sql");
pub const HOLD_QUEUE: &str = include_str!("../../sql/task/hold_queue.sql");
pub const MARK_SESSION: &str = include_str!("../../sql/task/mark_session.sql");
pub const END_LEFTOVER: &str = include_str!("../../sql/task/end_leftover.sql");
pub const READ_SETTINGS: &str = include_str!("../../sql/task/read_settings.sql");
pub const LIST_DEFAULTS: &str = include_str!("../../sql/task/list_defaults.sql");
pub const LIST_COLUMNS: &str = include_str!("../../sql/task/list_columns.sql");
pub const NAME_SESSION: &str = include_str!("../../sql/task/name_session.sql");
pub const LOOK_NAME: &str = include_str!("../../sql/task/look_name.sql");
pub const FIND_NAME: &str = include_str!("../../sql/task/find_name.sql");
pub const LIST_UNFINISHED: &str = include_str!("../../sql/task/list_unfinished.sql");
pub const TAKE_WALK: &str = include_str!("../../sql/task/take_walk.sql");
const TAKE_SEATED: &str = include_str!("../../sql/task/take_seated.sql");
pub const TAKE_ONE_GROUP: &str = include_str!("../../sql/task/take_one_group.sql");
pub const TAKE_GROUPS: &str = include_str!("../../sql/task/take_groups.sql");
pub const EXPIRE_TASKS: &str = include_str!("../../sql/task/expire_tasks.sql");
pub const EXPIRE_REFUSED: &str = include_str!("../../sql/task/expire_refused.sql");
pub const RELEASE_HELD: &str = include_str!("../../sql/task/release_held.sql");
pub const SESSION_DEFAULTS: &str = include_str!("../../sql/task/session_defaults.sql");
pub const NEXT_PLAN: &str = include_str!("../../sql/task/next_plan.sql");
pub const LOOK_RUNS: &str = include_str!("../../sql/task/look_runs.sql");
pub const LOCK_SIGN: &str = include_str!("../../sql/task/lock_sign.sql");
pub const UNLOCK_SIGN: &str = include_str!("../../sql/task/unlock_sign.sql");
pub const MEASURE_QUEUE: &str = include_str!("../../sql/task/measure_queue.sql");
pub const DELETE_OLD: &str = include_str!("../../sql/task/delete_old.sql");
pub const LOOK_TASK: &str = include_str!("../../sql/task/look_task.sql");
pub const BEGIN_REMOTE: &str = include_str!("../../sql/task/begin_remote.sql");
pub const NAME_REMOTE: &str = include_str!("../../sql/task/name_remote.sql");
pub const END_REMOTE: &str = include_str!("../../sql/task/end_remote.sql");
pub const CRASH_TASK: &str = include_str!("../../sql/task/crash_task.sql");
pub const CRASH_REFUSED: &str = include_str!("../../sql/task/crash_refused.sql");
pub const END_UNWRITTEN: &str = include_str!("../../sql/task/end_unwritten.sql");
pub const STOP_UNWRITTEN: &str = include_str!("../../sql/task/stop_unwritten.sql");
pub const MARK_UNKNOWN: &str = include_str!("../../sql/task/mark_unknown.sql");
pub const UNMARK_UNKNOWN: &str = include_str!("../../sql/task/unmark_unknown.sql");
pub const END_BACKEND: &str = include_str!("../../sql/task/end_backend.sql");
pub const RETIRE_BACKEND: &str = include_str!("../../sql/task/retire_backend.sql");
pub const PLAN_AGAIN: &str = include_str!("../../sql/task/plan_again.sql");
const BEGIN: &str = include_str!("../../sql/task/begin.sql");
const END: &str = include_str!("../../sql/task/end.sql");
const CLAIM_NEXT: &str = include_str!("../../sql/task/claim_next.sql");
pub const RETURN_BATCH: &str = include_str!("../../sql/task/return_batch.sql");
pub const REPEAT_TASK: &str = include_str!("../../sql/task/repeat_task.sql");
pub const PAUSE_GROUP: &str = include_str!("../../sql/task/pause_group.sql");
pub const DELETE_FINISHED: &str = include_str!("../../sql/task/delete_finished.sql");
pub const LOOK_SHAPE: &str = include_str!("../../sql/task/upgrade/look_shape.sql");
pub const LIST_SHAPE_COLUMNS: &str = include_str!("../../sql/task/upgrade/list_shape_columns.sql");
pub const LIST_SHAPE_TRIGGERS: &str = include_str!("../../sql/task/upgrade/list_shape_triggers.sql");
pub const LIST_SHAPE_INDEXES: &str = include_str!("../../sql/task/upgrade/list_shape_indexes.sql");
pub const LIST_WAITING_USERS: &str = include_str!("../../sql/task/upgrade/list_waiting_users.sql");
pub const FIND_UNIDENTIFIED: &str = include_str!("../../sql/task/upgrade/find_unidentified.sql");
pub const LIST_HOLDERS: &str = include_str!("../../sql/task/upgrade/list_holders.sql");
pub const LIST_PARTITIONS: &str = include_str!("../../sql/task/upgrade/list_partitions.sql");
pub const LOOK_INDEX: &str = include_str!("../../sql/task/upgrade/look_index.sql");
pub const MISS_HASH: &str = include_str!("../../sql/task/upgrade/miss_hash.sql");
pub const FILL_HASH: &str = include_str!("../../sql/task/upgrade/fill_hash.sql");
const MAKE_HASH_TRIGGER: &str = include_str!("../../sql/task/upgrade/make_hash_trigger.sql");
pub const NEXT_EVENT: &str = include_str!("../../sql/job/next_event.sql");
pub const START_JOBS: &str = include_str!("../../sql/job/start_jobs.sql");
pub const WATCH_JOBS: &str = include_str!("../../sql/job/watch_jobs.sql");
pub const LIST_UNFILLED: &str = include_str!("../../sql/job/list_unfilled.sql");
pub const FILL_NEXT_START: &str = include_str!("../../sql/job/fill_next_start.sql");
pub const DELETE_OLD_RUNS: &str = include_str!("../../sql/job/delete_old_runs.sql");
pub const LOOK_CLOCK: &str = include_str!("../../sql/job/look_clock.sql");
pub const LOOK_RUN_TRIGGERS: &str = include_str!("../../sql/job/look_run_triggers.sql");
const MAKE_RUN_TRIGGERS: &str = include_str!("../../sql/job/make_run_triggers.sql");
pub const PUT_RUNS: &str = include_str!("../../sql/job/put_runs.sql");
pub const NEXT_ORDER: &str = include_str!("../../sql/job/next_order.sql");
pub const REFUSE_RUN: &str = include_str!("../../sql/job/refuse_run.sql");
pub const NOTE_TROUBLE: &str = include_str!("../../sql/job/note_trouble.sql");
pub const RECALL_RUNS: &str = include_str!("../../sql/job/recall_runs.sql");
pub const COMPARE_RUNS: &str = include_str!("../../sql/job/compare_runs.sql");
pub const LOOK_CATALOG: &str = include_str!("../../sql/catalog/look_catalog.sql");
pub const LOOK_VERSION: &str = include_str!("../../sql/catalog/look_version.sql");
pub const HOLD_QUEUES: &str = include_str!("../../sql/catalog/hold_queues.sql");
pub const REGISTER_QUEUE: &str = include_str!("../../sql/catalog/register_queue.sql");
pub const LIST_TIMERS: &str = include_str!("../../sql/graph/list_timers.sql");
pub const SET_TIMERS: &str = include_str!("../../sql/graph/set_timers.sql");
pub const FIRE_TIMERS: &str = include_str!("../../sql/graph/fire_timers.sql");
pub const END_IDLE_RUNS: &str = include_str!("../../sql/graph/end_idle_runs.sql");
pub const LIST_BACKFILLS: &str = include_str!("../../sql/graph/list_backfills.sql");
pub const FILL_BACK: &str = include_str!("../../sql/graph/fill_back.sql");
pub const STOP_BACKFILL: &str = include_str!("../../sql/graph/stop_backfill.sql");
pub const LOOK_GRAPH: &str = include_str!("../../sql/graph/look_graph.sql");
pub const SWEEP_GRAPH: &str = include_str!("../../sql/graph/sweep_graph.sql");
pub const WATCH_GRAPH: &str = include_str!("../../sql/graph/watch_graph.sql");
pub const LOOK_CRON: &str = include_str!("../../sql/import/look_cron.sql");
pub const LIST_CRON_JOBS: &str = include_str!("../../sql/import/list_cron_jobs.sql");
pub const LOOK_IMPORT_QUEUE: &str = include_str!("../../sql/import/look_queue.sql");
pub const LIST_SAME_NAMES: &str = include_str!("../../sql/import/list_same_names.sql");
pub const INSERT_JOB: &str = include_str!("../../sql/import/insert_job.sql");
pub const WAIT_MESSAGE: &str = include_str!("../../sql/catalog/wait_message.sql");
pub const LOOK_MARKER: &str = include_str!("../../sql/catalog/look_marker.sql");
pub const FIND_MARKER: &str = include_str!("../../sql/catalog/find_marker.sql");
pub const LOOK_META: &str = include_str!("../../sql/catalog/look_meta.sql");
pub const WATCH_LOCKS: &str = include_str!("../../sql/launcher/watch_locks.sql");
pub const LIST_DATABASES: &str = include_str!("../../sql/launcher/list_databases.sql");
pub const LIST_QUEUES: &str = include_str!("../../sql/launcher/list_queues.sql");
pub const CHECK_SENDER: &str = include_str!("../../sql/launcher/check_sender.sql");
pub const GIVE_ANSWER: &str = include_str!("../../sql/launcher/give_answer.sql");
pub const TAKE_ANSWER_BACK: &str = include_str!("../../sql/launcher/take_answer_back.sql");
pub const END_BACKENDS: &str = include_str!("../../sql/launcher/end_backends.sql");
pub const CHECK_ROW: &str = include_str!("../../sql/launcher/check_row.sql");
pub const LIST_INSERTERS: &str = include_str!("../../sql/launcher/list_inserters.sql");
pub const CHECK_LAUNCHER: &str = include_str!("../../sql/launcher/check_launcher.sql");
pub const LOOK_ROW: &str = include_str!("../../sql/launcher/look_row.sql");
pub const HOLD_LEADER: &str = include_str!("../../sql/launcher/hold_leader.sql");
pub const LOOK_LEADER: &str = include_str!("../../sql/launcher/look_leader.sql");
pub const FIND_PROOF: &str = include_str!("../../sql/launcher/find_proof.sql");
pub const END_FORMER: &str = include_str!("../../sql/launcher/end_former.sql");

/// A task table, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub schema: String,
    pub table: String,
}

/// Whose rows a statement ends or begins, and what it does about a locked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One, as single values: a long text need not be copied into an array. Waits for a lock.
    One,
    /// Many, as arrays. Waits for locks.
    Many,
    /// Many, as arrays, but for the locked ones.
    ManyUnlocked,
}

/// From where on a claim scans the waiting rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scan {
    FromStart,
    BehindLast,
    /// The same, and other workers of the group claim at the same time.
    Contended,
}

/// What a claim of a worker sets up the session for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setup {
    /// Nothing: the session is set up with the input.
    Later,
    /// One plain task.
    Task,
    /// One run of a job.
    Run,
}

/// The error of a run that a person has stopped; an end with it is not tried again.
pub(super) const CANCELLED: &str = "ERROR:  task cancelled";

/// Not started within `active`. An `active` of 200,000 years and more never ends (and must not overflow).
const EXPIRED: &str = r#"(t."max" >= 0 AND t.plan <= statement_timestamp() AND CASE WHEN t.active < interval '200000 years'
    THEN t.plan + t.active <= statement_timestamp() ELSE false END)"#;

/// Younger than the candidate's `live`: $4 is the start of the worker's first task, in seconds.
const YOUNG: &str = "(CASE WHEN t.live < interval '200000 years'
    THEN pg_catalog.to_timestamp($4::float8) + t.live > statement_timestamp() ELSE true END)";

/// An earlier attempt still runs: somebody planned the row again before its worker had let go of it ($2, what live workers
/// are at or have in their batches). A backend that has a row in WORK is at that one, and one that is kept for the next worker ($3) is at none. Of a remote task's backend nothing is seen here: its worker holds the task's lock as
/// long as it is at it, and the scheduler another one while nobody knows.
const BUSY: &str = "(t.pid IS NOT NULL AND CASE WHEN t.remote_session IS NULL
    THEN t.id = ANY ($2::bigint[]) OR EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
        WHERE a.pid = t.pid AND a.backend_start <= t.start AND a.pid <> pg_catalog.pg_backend_pid()
          AND a.pid <> ALL ($3::int[])
          AND NOT EXISTS (SELECT FROM {queue} w WHERE w.state = 'WORK' AND w.remote_session IS NULL AND w.pid = t.pid))
    ELSE EXISTS (SELECT FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND (l.pid <> pg_catalog.pg_backend_pid() OR l.classid = {unknown_key}::oid)
          AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
          AND l.classid IN ({task_key}::oid, {unknown_key}::oid) AND l.objid = pg_catalog.hashtext(pg_catalog.concat(
              {queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id))::oid) END)";

/// A server process `a` is one of ours for the task `t`, and no innocent session whose pid stands in the row: it shows the
/// lock of that task, or it shows none and bears the name of this queue's sessions.
const OURS: &str = "CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory'
                         AND l.objsubid = 2 AND l.granted AND l.classid = {task_key}::oid)
    THEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.objsubid = 2
                    AND l.granted AND l.classid = {task_key}::oid AND l.objid = pg_catalog.hashtext(pg_catalog.concat(
                        {queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id))::oid)
    ELSE pg_catalog.starts_with(a.application_name,
             pg_catalog.\"left\"(pg_catalog.concat('pg_task ', {schema_text}, ' ', {table_text}), 63)) END";

/// One more; a row that somebody inserted with the largest number begins anew, or it would fail the take of all.
const NEXT_ATTEMPT: &str = "CASE WHEN t.attempt < 2147483647 THEN t.attempt + 1 ELSE 1 END";

/// How many run, per group. A group is the pair (group, remote), compared exactly. $2 are the tasks that workers
/// are at: one that was stopped counts until its worker has let go of it, and so does one that was deleted, by what is
/// known of it ({known}: ids, groups, remotes, as bytes: a SQL_ASCII database has texts that it would not take back as
/// such; the ids stand there twice, or the server might look through the whole table for them). Of a batch one task runs at a time: all rows of one backend are one.
const RUNNING: &str = r#"running AS (SELECT "group", remote, count(*) FILTER (WHERE pid IS NULL) + count(DISTINCT pid) AS others FROM (
        SELECT "group", remote, CASE WHEN state = 'WORK' AND remote IS NULL THEN pid END AS pid
          FROM {queue} WHERE state IN ('TAKE', 'WORK')
        UNION ALL
        SELECT "group", remote, NULL FROM {queue} WHERE id = ANY ($2::bigint[])
           AND (state IN ('STOP', 'PLAN') OR (job IS NOT NULL AND state NOT IN ('TAKE', 'WORK')))
        UNION ALL
        SELECT pg_catalog.convert_from(k."group", pg_catalog.getdatabaseencoding()),
               pg_catalog.convert_from(k.remote, pg_catalog.getdatabaseencoding()), NULL
          FROM unnest({known}) AS k (id, "group", remote)
         WHERE NOT EXISTS (SELECT FROM {queue} d WHERE d.id = ANY ({known_ids}) AND d.id = k.id)) AS r
    GROUP BY "group", remote)"#;

/// What a worker must know of its task, in the order that its `book` reads. Times as numbers: a task may change how
/// its session writes and reads dates.
const TASK_ROW: &str = r#"t.id, t.attempt, t.input, t."group", t.remote, t.atomic, t.header,
    t.string, t.delimiter, t.escape, t.quote, t."null", ceil(extract(epoch FROM t.timeout) * 1000)::bigint AS timeout_ms,
    pg_catalog.current_setting('log_error_verbosity') AS verbosity,
    extract(epoch FROM pg_catalog.pg_postmaster_start_time()) AS postmaster, extract(epoch FROM t.start) AS start,
    t."max", (t."max" >= 0 AND (t.count > 0 OR t.live > interval '0')) AS reuse, t.save,
    (t.repeat > interval '0' OR t."max" < 0) AS consequences, t.job,
    {at} AS at, t.priority"#;

/// The same of the rows of a batch: what is the same for all of them, its worker knows.
const BATCH_ROW: &str = r#"t.id, t.attempt, t.input, t.atomic, t.header, t.string, t.delimiter, t.escape, t.quote, t."null",
    CASE WHEN t.timeout > interval '0' THEN ceil(extract(epoch FROM t.timeout) * 1000)::bigint END, t."max",
    (t."max" >= 0 AND (t.count > 0 OR t.live > interval '0')), t.save, (t.repeat > interval '0' OR t."max" < 0), t.priority"#;

/// Its place among those that wait; where all have the same max and priority, the id tells.
const BATCH_KEY: &str = r#"ARRAY[- t."max"::bigint, - t.priority::bigint, t.id]"#;

/// The logical time of a run, whatever the session's zone is.
const AT: &str = r#"pg_catalog.to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"#;

/// A row that is known by its id, looked at once more. As a CASE, because the server does not see through it: an index of
/// all rows in that state, of which it believes that they are few, is no way to a row whose id is known.
const STILL_WAITS: &str = "CASE WHEN t.state = 'PLAN' THEN NOT t.held ELSE false END";
const STILL_TAKEN: &str = "CASE WHEN t.state = 'TAKE' THEN true ELSE false END";
const STILL_RUNS: &str = "CASE WHEN t.state = 'WORK' THEN true ELSE false END";

/// A task whose end is a change of its own row, and which can be handed down by a fork. A delimiter may be a "char" or, in
/// a table made by hand, a text: one byte over 127 (the comparison of "char" knows no sign) is no text and not handed down. Nor
/// is anything of a database whose texts may be any bytes: the scheduler's session speaks UTF-8, and refuses them.
const PLAIN: &str = r#"t.remote IS NULL AND NOT t.atomic AND t.job IS NULL AND t."max" >= 0 AND t.repeat = interval '0'
       AND t.count = 0 AND t.live = interval '0' AND t.delimiter <= '~' AND t.escape <= '~' AND t.quote <= '~'
       AND pg_catalog.getdatabaseencoding() <> 'SQL_ASCII'"#;

/// What `TASK_ROW` returns, as one array of texts.
const ROW_TEXTS: &str = r#"ARRAY[t.id::text, t.attempt::text, t.input::text, t."group"::text, t.remote::text, t.atomic::text,
           t.header::text, t.string::text, t.delimiter::text, t.escape::text, t.quote::text, t."null"::text, t.timeout_ms::text,
           t.verbosity::text, t.postmaster::text, t.start::text, t."max"::text, t.reuse::text, t.save::text,
           t.consequences::text, t.job::text, t.at::text, t.priority::text]"#;

const GROUP_BYTES: &str = r#"pg_catalog.convert_to(t."group"::text, pg_catalog.getdatabaseencoding()) AS "group",
       pg_catalog.convert_to(t.remote::text, pg_catalog.getdatabaseencoding()) AS remote"#;

/// What a take of the scheduler tells of the rows that have begun with it, and of plain ones that will. Its commit waits for
/// the disk only if it has to: {lazy} says that nothing else is in its transaction.
const BEGUN: &str = "(SELECT pg_catalog.set_config('synchronous_commit', 'off', true)
          WHERE {lazy}::bool AND NOT EXISTS (SELECT FROM taken j WHERE j.job IS NOT NULL OR j.backend IS NOT NULL)),
       {told}";
const TOLD: &str = "t.backend, t.reuse AS reuse, CASE WHEN t.plain THEN {row_texts} END AS task_row,
       CASE WHEN t.plain THEN {sign} END AS sign";

/// The second key of a running task's lock.
const SIGN: &str = "pg_catalog.hashtext(pg_catalog.concat(
           {queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id::pg_catalog.text))";

/// What a task finds set in its session, set by the claim of one row itself, for a session that is reset: a round trip less
/// than a setup of its own, and it is planned once (`worker::session::setup` has the list).
const SETUP: &str = r#", pg_catalog.set_config('pg_task.id', t.id::pg_catalog.text, false),
    pg_catalog.set_config('pg_task.group', $1, false), pg_catalog.set_config('pg_task.schema', {schema_text}, false),
    pg_catalog.set_config('pg_task.table', {table_text}, false),
    pg_catalog.set_config('application_name', pg_catalog.concat('pg_task ', {schema_text}, ' ', {table_text}, ' ', $1), false),
    pg_catalog.pg_try_advisory_lock({task_key}, pg_catalog.hashtext(
        pg_catalog.concat({queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id::pg_catalog.text)))"#;

/// The same for the run of a job: what else it may read.
const RUN_SETUP: &str = r#", pg_catalog.set_config('mill.job', t.job::pg_catalog.text, false),
    pg_catalog.set_config('mill.at', COALESCE({at}, ''), false),
    pg_catalog.set_config('mill.attempt', t.attempt::pg_catalog.text, false)"#;

/// Behind the last row claimed.
const BEHIND_LAST: &str = r#"AND t."max" = $10::int AND t.priority = $11::int AND t.id > $12::bigint"#;
/// And where others of the group claim at the same time. The rows that they are just claiming are skipped anyway, but to try
/// to lock one costs more than the row does that is found at last; the last transaction that locked a row is in its xmax, also
/// for a while afterwards, so only recent ones count. A row that is skipped so and was free already (a claim has locked it
/// and left it, because it has to be alone) is found by one of the next claims, or by the scheduler.
const CONTENDED: &str = "\n       AND (t.xmax = '0'::xid OR age(t.xmax) > 100)";

/// The next time of a repeating row: from now (drift), or the first of plan + k * repeat after now. A task that has waited
/// after crashes keeps its own plan in `at`. k is bounded from
/// both sides by arithmetic (a month has 28 to 31 days, a day may be an hour longer or shorter), never by a loop from 1.
const NEXT_TIME: &str =
    "CASE WHEN t.drift OR {base} = '-infinity' THEN statement_timestamp() + t.repeat ELSE COALESCE((
    SELECT {base} + k * t.repeat FROM (
        SELECT extract(epoch FROM statement_timestamp() - {base}) AS elapsed,
               extract(year FROM t.repeat) * 12 + extract(month FROM t.repeat) AS months,
               extract(day FROM t.repeat) * 86400 + extract(hour FROM t.repeat) * 3600
                   + extract(minute FROM t.repeat) * 60 + extract(second FROM t.repeat) AS seconds,
               CASE WHEN extract(day FROM t.repeat) = 0 AND extract(month FROM t.repeat) = 0 AND extract(year FROM t.repeat) = 0
                    THEN 0 ELSE 14400 END AS slack) AS part,
        LATERAL (SELECT GREATEST(1, floor((elapsed - slack) / GREATEST(months * 2678400 + seconds, 0.000001))) AS low,
                        floor((elapsed + slack) / GREATEST(months * 2419200 + seconds, 0.000001)) + 1 AS high) AS bound,
        LATERAL generate_series(low::bigint, LEAST(GREATEST(high, low), low + 100000)::bigint) AS k
     WHERE {base} + k * t.repeat > statement_timestamp() ORDER BY k LIMIT 1), statement_timestamp() + t.repeat) END";

impl Queue {
    /// The statement with this queue's names in it and without its head comment.
    pub fn fill(&self, statement: &str) -> String {
        self.fill_with(statement, [])
    }

    /// `MAKE_TABLE` with the config's column defaults in it.
    pub fn fill_make_table(&self, defaults: &ColumnDefaults) -> String {
        let defaults = column_defaults(defaults).into_iter();
        self.fill_with(MAKE_TABLE, defaults.map(|(column, value)| (format!("{{default_{column}}}"), literal(&value))))
    }

    /// `TAKE_WALK` over at most `rows`. A literal: as a parameter it would be planned anew each time.
    pub fn fill_take_walk(&self, rows: usize) -> String {
        let known = self.running("$6::bigint[]", "$7::bytea[], $8::bytea[]");
        let walk = ("{walk}".to_owned(), rows.to_string());
        self.fill_with(TAKE_WALK, [walk, self.seated("$4"), known, self.begun("$9"), plain("$4", "$5", "$10")])
    }

    pub fn fill_take_groups(&self) -> String {
        let known = self.running("$9::bigint[]", "$10::bytea[], $11::bytea[]");
        self.fill_with(TAKE_GROUPS, [self.seated("$7"), known, self.begun("$12"), plain("$7", "$8", "$13")])
    }

    pub fn fill_take_one_group(&self) -> String {
        self.fill_with(
            TAKE_ONE_GROUP,
            [("{told}".to_owned(), self.told()), ("{plain_row}".to_owned(), PLAIN.to_owned())],
        )
    }

    fn running(&self, ids: &str, groups: &str) -> (String, String) {
        let running = RUNNING.replace("{known}", &format!("{ids}, {groups}")).replace("{known_ids}", ids);
        ("{running}".to_owned(), running.replace("{queue}", &qualified(&self.schema, &self.table)))
    }

    fn begun(&self, lazy: &str) -> (String, String) {
        ("{begun}".to_owned(), BEGUN.replace("{told}", &self.told()).replace("{lazy}", lazy))
    }

    fn told(&self) -> String {
        let sign = SIGN.replace("{queue_text}", &literal(&qualified(&self.schema, &self.table)));
        TOLD.replace("{row_texts}", ROW_TEXTS).replace("{sign}", &sign)
    }

    fn seated(&self, lent: &str) -> (String, String) {
        ("{seated}".to_owned(), self.fill_with(TAKE_SEATED, [("{lent}".to_owned(), lent.to_owned())]))
    }

    /// `CLAIM_NEXT` of one row (`many`: of several), for a session that is set up so. `proof`: it finds nothing where the
    /// scheduler's session is not.
    pub fn fill_claim_next(&self, many: bool, scan: Scan, setup: Setup, proof: Option<i64>) -> String {
        let setup = match setup {
            Setup::Later => String::new(),
            Setup::Task => SETUP.to_owned(),
            Setup::Run => format!("{SETUP}{}", RUN_SETUP.replace("{at}", AT)),
        };
        let names = [("{task_key}", lock_key::TASK.to_string())];
        let setup = self.fill_with(&setup, names.map(|(name, value)| (name.to_owned(), value)));
        let (key, scan) = match scan {
            Scan::FromStart => (BATCH_KEY, String::new()),
            Scan::BehindLast => ("t.id", BEHIND_LAST.to_owned()),
            Scan::Contended => ("t.id", format!("{BEHIND_LAST}{CONTENDED}")),
        };
        let returned = if many { BATCH_ROW.to_owned() } else { TASK_ROW.replace("{at}", AT) };
        let values = [
            ("{setup}", setup),
            ("{key}", key.to_owned()),
            ("{scan_start}", scan),
            ("{returned}", returned),
            ("{beside}", beside(proof)),
        ];
        self.fill_with(CLAIM_NEXT, values.map(|(name, value)| (name.to_owned(), value)))
    }

    /// `END` for these rows.
    pub fn fill_end(&self, rows: Rows) -> String {
        let values = "$1::bigint AS id, $2::int AS attempt, $3::bool AS failed, $4::text AS output, $5::text AS error, \
                      $6::text AS reason, $7::bigint AS began, $8::bigint AS ended";
        let arrays = "unnest($1::bigint[], $2::int[], $3::bool[], $4::text[], $5::text[], $6::text[], $7::bigint[], \
                      $8::bigint[]) AS e (id, attempt, failed, output, error, reason, began, ended)";
        let condition = "{still_runs} AND (t.repeat > interval '0' OR t.\"max\" < 0) IS NOT TRUE";
        self.fill_rows(END, "{ended}", rows, [values, arrays, condition], [("{returned}", "")])
    }

    /// `BEGIN` of one row by its worker, or of many by the scheduler.
    pub fn fill_begin(&self, rows: Rows) -> String {
        let values = "$1::bigint AS id, $2::int AS attempt, pg_catalog.pg_backend_pid() AS backend";
        let arrays = "unnest($1::bigint[], $2::int[], $3::int[]) AS e (id, attempt, backend)";
        let condition = "{still_taken} AND t.remote IS NULL";
        let returned = if rows == Rows::One { "{task_row}" } else { "t.id::bigint AS id" };
        self.fill_rows(BEGIN, "{beginning}", rows, [values, arrays, condition], [("{returned}", returned)])
    }

    /// The rows of a statement, where it names them, under a lock where it skips locked ones.
    fn fill_rows(
        &self,
        statement: &str,
        name: &str,
        rows: Rows,
        [values, arrays, condition]: [&str; 3],
        more: [(&str, &str); 1],
    ) -> String {
        let source = match rows {
            Rows::One => format!("SELECT {values}"),
            Rows::Many => format!("SELECT e.* FROM {arrays}"),
            Rows::ManyUnlocked => format!(
                "SELECT e.* FROM {{queue}} t, {arrays} WHERE t.id = ANY ($1::bigint[]) AND t.id = e.id \
                 AND t.attempt = e.attempt AND {condition} FOR UPDATE OF t SKIP LOCKED"
            ),
        };
        let among = if rows == Rows::One { "" } else { "AND t.id = ANY ($1::bigint[])" };
        let names = [(name, source.as_str()), ("{among}", among)].into_iter().chain(more);
        self.fill_with(statement, names.map(|(name, value)| (name.to_owned(), self.fill(value))).collect::<Vec<_>>())
    }

    /// A statement that calls the entry points of this queue, whose table has that OID.
    pub fn fill_of_jobs(&self, statement: &str, relid: u32) -> String {
        self.fill_with(statement, [("{oid}".to_owned(), relid.to_string())])
    }

    /// `MAKE_RUN_TRIGGERS` for the table and the role with these OIDs, or what is later replaced by them.
    pub fn fill_run_triggers(&self, relid: impl Display, user: impl Display) -> String {
        let name = |what: &str| (format!("{{run_{what}}}"), format!("mill_run_{relid}_{user}_{what}"));
        let own = [
            ("{oid}".to_owned(), relid.to_string()),
            ("{user}".to_owned(), user.to_string()),
            ("{cancelled_text}".to_owned(), literal(CANCELLED)),
        ];
        let made =
            self.fill_with(MAKE_RUN_TRIGGERS, ["guard", "before", "after", "delete"].map(name).into_iter().chain(own));
        format!("{made}\n{}", self.fill(SET_FUNCTION_RIGHTS))
    }

    /// What a new table has beside its columns, indexes and comments: wake-up triggers, and rights for its owner alone.
    pub fn fill_make_guarded(&self) -> String {
        format!("{}\n{}", self.fill_make_triggers(), self.fill(SET_RIGHTS))
    }

    pub fn fill_make_triggers(&self) -> String {
        format!("{}\n{}", self.fill(MAKE_TRIGGERS), self.fill(SET_FUNCTION_RIGHTS))
    }

    pub fn fill_make_hash_trigger(&self) -> String {
        format!("{}\n{}", self.fill(MAKE_HASH_TRIGGER), self.fill(SET_FUNCTION_RIGHTS))
    }

    /// A statement that makes repetitions, with the columns that they copy.
    pub fn fill_repeating(&self, statement: &str, copied: &[String]) -> String {
        let copied: Vec<String> = copied.iter().map(|column| quoted(column)).collect();
        let values: Vec<String> = copied.iter().map(|column| format!(", t.{column}")).collect();
        let columns = ("{repeat_columns}".to_owned(), format!("parent, plan, {}", copied.join(", ")));
        let values = (
            "{repeat_values}".to_owned(),
            format!("t.id, {}{}", NEXT_TIME.replace("{base}", "COALESCE(t.at, t.plan)"), values.concat()),
        );
        self.fill_with(statement, [columns, values])
    }

    /// All at once: a queue or a column that is named like a placeholder keeps its name.
    fn fill_with(&self, statement: &str, more: impl IntoIterator<Item = (String, String)>) -> String {
        let queue = qualified(&self.schema, &self.table);
        let own = [
            ("{schema}", quoted(&self.schema)),
            ("{state}", qualified(&self.schema, "state")),
            ("{schema_text}", literal(&self.schema)),
            ("{table_text}", literal(&self.table)),
            ("{queue_text}", literal(&queue)),
            ("{expired}", EXPIRED.to_owned()),
            ("{young}", YOUNG.to_owned()),
            ("{busy}", busy(&queue)),
            ("{ours}", ours(&self.schema, &self.table)),
            ("{task_row}", TASK_ROW.replace("{at}", AT)),
            ("{batch_row}", BATCH_ROW.to_owned()),
            ("{group_bytes}", GROUP_BYTES.to_owned()),
            ("{still_waits}", STILL_WAITS.to_owned()),
            ("{still_taken}", STILL_TAKEN.to_owned()),
            ("{still_runs}", STILL_RUNS.to_owned()),
            ("{next_attempt}", NEXT_ATTEMPT.to_owned()),
            ("{bell_key}", lock_key::BELL.to_string()),
            ("{queue}", queue),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        fill(statement, &own.into_iter().chain(more).collect::<Vec<_>>())
    }
}

/// The condition of a worker's claim that its session is on the scheduler's server.
fn beside(proof: Option<i64>) -> String {
    proof.map(|proof| format!("AND {}", proof_condition(proof))).unwrap_or_default()
}

/// Whether a row can be handed down by a fork, where that is asked for: because there are connections to lend, or because
/// workers with a connection of their own want it so.
fn plain(lent: &str, longest: &str, handed: &str) -> (String, String) {
    let plain = format!(
        "CASE WHEN cardinality({lent}::int[]) > 0 OR {handed}::bool \
              THEN {PLAIN} AND octet_length(t.input) <= {longest}::int ELSE false END AS plain"
    );
    ("{plain}".to_owned(), plain)
}

fn busy(queue: &str) -> String {
    let names = [
        ("{task_key}", lock_key::TASK.to_string()),
        ("{unknown_key}", lock_key::UNKNOWN.to_string()),
        ("{queue_text}", literal(queue)),
        ("{queue}", queue.to_owned()),
    ];
    fill(BUSY, &names.map(|(name, value)| (name.to_owned(), value)))
}

fn ours(schema: &str, table: &str) -> String {
    let names = [
        ("{task_key}", lock_key::TASK.to_string()),
        ("{queue_text}", literal(&qualified(schema, table))),
        ("{schema_text}", literal(schema)),
        ("{table_text}", literal(table)),
    ];
    fill(OURS, &names.map(|(name, value)| (name.to_owned(), value)))
}

/// A statement that names no queue, without its head comment.
pub fn bare(statement: &str) -> String {
    fill(statement, &[])
}

/// Replaces in one pass: a name that itself looks like a placeholder is left alone.
pub(super) fn fill(statement: &str, names: &[(String, String)]) -> String {
    let body: Vec<&str> = statement.lines().skip_while(|line| line.starts_with("--")).collect();
    let body = body.join("\n");
    let mut filled = String::with_capacity(body.len() + 256);
    let mut rest = body.as_str();
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        match names.iter().find(|(name, _)| rest.starts_with(name.as_str())) {
            Some((name, value)) => {
                filled.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// Every column whose default is a setting, with the value that holds when nobody sets it.
pub fn column_defaults(config: &ColumnDefaults) -> Vec<(&'static str, String)> {
    let text = |value: &Option<String>, built_in: &str| value.clone().unwrap_or_else(|| built_in.to_owned());
    let flag = |value: Option<bool>, built_in: bool| value.unwrap_or(built_in).to_string();
    let number = |value: Option<i32>| value.unwrap_or(0).to_string();
    vec![
        ("active", text(&config.active, "1 hour")),
        ("live", text(&config.live, "0")),
        ("repeat", text(&config.repeat, "0")),
        ("timeout", text(&config.timeout, "0")),
        ("count", number(config.count)),
        ("max", number(config.max)),
        ("delete", flag(config.delete, true)),
        ("drift", flag(config.drift, false)),
        ("header", flag(config.header, true)),
        ("save", flag(config.save, false)),
        ("string", flag(config.string, true)),
        ("delimiter", text(&config.delimiter, "\t")),
        ("escape", text(&config.escape, "")),
        ("quote", text(&config.quote, "")),
        ("group", text(&config.group, "group")),
        ("null", text(&config.null, "\\N")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_placeholders_stay_names() {
        let queue = Queue { schema: "{queue}".into(), table: "{state}".into() };
        assert_eq!(queue.fill("-- head\nSELECT 1 FROM {queue}"), r#"SELECT 1 FROM "{queue}"."{state}""#);
        let queue = Queue { schema: "public".into(), table: "{default_active}".into() };
        let made = queue.fill_make_table(&ColumnDefaults::default());
        assert!(made.starts_with(r#"CREATE TABLE "public"."{default_active}" ("#), "{made}");
    }

    #[test]
    fn no_statement_keeps_a_placeholder_once_it_is_filled() {
        let queue = Queue { schema: "public".into(), table: "task".into() };
        let all = [
            LOOK_QUEUE,
            MAKE_SCHEMA,
            MAKE_STATE,
            MAKE_INDEXES,
            MAKE_TRIGGERS,
            COMMENT_TABLE,
            HOLD_QUEUE,
            READ_SETTINGS,
            LIST_COLUMNS,
            END_UNWRITTEN,
            STOP_UNWRITTEN,
            LIST_UNFINISHED,
            LOOK_NAME,
            FIND_NAME,
            NAME_SESSION,
            EXPIRE_REFUSED,
            RELEASE_HELD,
            NEXT_PLAN,
            LOOK_RUNS,
            LOCK_SIGN,
            UNLOCK_SIGN,
            MEASURE_QUEUE,
            DELETE_OLD,
            LOOK_TASK,
            END_BACKEND,
            PLAN_AGAIN,
            RETIRE_BACKEND,
            BEGIN_REMOTE,
            NAME_REMOTE,
            END_REMOTE,
            CRASH_REFUSED,
            MARK_UNKNOWN,
            UNMARK_UNKNOWN,
            PAUSE_GROUP,
            DELETE_FINISHED,
            RETURN_BATCH,
            LOOK_SHAPE,
            LIST_SHAPE_COLUMNS,
            LIST_SHAPE_TRIGGERS,
            LIST_SHAPE_INDEXES,
            LIST_WAITING_USERS,
            FIND_UNIDENTIFIED,
            LIST_HOLDERS,
            LIST_PARTITIONS,
            LOOK_INDEX,
            MISS_HASH,
            FILL_HASH,
            MAKE_HASH_TRIGGER,
            LOOK_RUN_TRIGGERS,
            SET_RIGHTS,
            SET_FUNCTION_RIGHTS,
            LOOK_CLOCK,
        ];
        for statement in all {
            let filled = queue.fill(statement);
            assert!(!filled.contains('{') && !filled.is_empty(), "{filled}");
        }
        let of_jobs = [
            NEXT_EVENT,
            START_JOBS,
            PUT_RUNS,
            NEXT_ORDER,
            REFUSE_RUN,
            RECALL_RUNS,
            NOTE_TROUBLE,
            COMPARE_RUNS,
            WATCH_JOBS,
            LIST_UNFILLED,
            FILL_NEXT_START,
            DELETE_OLD_RUNS,
        ];
        for statement in of_jobs {
            let filled = queue.fill_of_jobs(statement, 16400);
            assert!(!filled.contains('{') && filled.contains("q16400_"), "{filled}");
        }
        assert!(!queue.fill_run_triggers(16400, 10).contains('{'));
        assert!(!queue.fill_make_table(&ColumnDefaults::default()).contains('{'));
        assert!(!queue.fill_take_walk(64).contains('{') && !queue.fill_take_groups().contains('{'));
        for scan in [Scan::FromStart, Scan::BehindLast, Scan::Contended] {
            for setup in [Setup::Later, Setup::Task, Setup::Run] {
                for many in [false, true] {
                    assert!(!queue.fill_claim_next(many, scan, setup, Some(7)).contains('{'));
                }
            }
        }
        for rows in [Rows::One, Rows::Many, Rows::ManyUnlocked] {
            assert!(!queue.fill_end(rows).contains('{') && !queue.fill_begin(rows).contains('{'));
        }
        for statement in [EXPIRE_TASKS, REPEAT_TASK, CRASH_TASK] {
            assert!(!queue.fill_repeating(statement, &["data".to_owned()]).contains('{'));
        }
    }
}
