-- The plan and the numbers of every job.
-- `job_state` has one row per job: when its scheduler starts it next (`due`), and its counters. A success does not update that
-- row, or runs of one job would wait for each other's commits: it inserts a row into `job_delta`, which is added later. An end that
-- does more than add (a failure, a crash, a schedule's own run) and a change of the job lock the row of `job_state` first and add
-- the deltas. The deltas of a job that has a row in `job_state` are deleted only under the lock of that row.
--   job_state      plan and counters, without the deltas
--   job_delta      successes that have not been added
--   job_counters   the sum of both
--   job_live       the sum, and the runs under way; mill.job_stat shows each role the rows of its own jobs
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill_private.job_state (
    job int PRIMARY KEY,
    last_start timestamptz,
    last_finish timestamptz,
    last_successful_finish timestamptz,
    last_run_success bool,
    next_start timestamptz,
    total_runs bigint NOT NULL DEFAULT 0,
    total_successes bigint NOT NULL DEFAULT 0,
    total_failures bigint NOT NULL DEFAULT 0,
    total_crashes bigint NOT NULL DEFAULT 0,
    consecutive_failures int NOT NULL DEFAULT 0,
    consecutive_crashes int NOT NULL DEFAULT 0,
    total_duration interval NOT NULL DEFAULT '0',
    total_duration_failures interval NOT NULL DEFAULT '0',
    reason text,
    queue oid NOT NULL,
    scheduled bool NOT NULL,
    run bigint,
    fill bool NOT NULL DEFAULT false,
    stamp bigint NOT NULL DEFAULT 0,
    due timestamptz GENERATED ALWAYS AS (CASE WHEN scheduled AND run IS NULL AND next_start < 'infinity' THEN next_start END) STORED
) WITH (fillfactor = 70);
CREATE INDEX ON mill_private.job_state (queue, due) WHERE due IS NOT NULL;
CREATE INDEX ON mill_private.job_state (queue) WHERE fill;
COMMENT ON TABLE mill_private.job_state IS 'pgmill: the plan of every job, and its numbers without mill_private.job_delta; mill.job_stat shows the sum';
COMMENT ON COLUMN mill_private.job_state.job IS 'the id of the job';
COMMENT ON COLUMN mill_private.job_state.last_start IS 'when a run began last';
COMMENT ON COLUMN mill_private.job_state.last_finish IS 'when a run ended last';
COMMENT ON COLUMN mill_private.job_state.last_successful_finish IS 'when a run succeeded last';
COMMENT ON COLUMN mill_private.job_state.last_run_success IS 'whether the last run that ended succeeded';
COMMENT ON COLUMN mill_private.job_state.next_start IS 'when its schedule starts it next';
COMMENT ON COLUMN mill_private.job_state.total_runs IS 'runs that have ended';
COMMENT ON COLUMN mill_private.job_state.total_successes IS 'runs that have succeeded';
COMMENT ON COLUMN mill_private.job_state.total_failures IS 'runs that have failed';
COMMENT ON COLUMN mill_private.job_state.total_crashes IS 'runs that have crashed';
COMMENT ON COLUMN mill_private.job_state.consecutive_failures IS 'failures since the last success';
COMMENT ON COLUMN mill_private.job_state.consecutive_crashes IS 'crashes since the last run that ended without one';
COMMENT ON COLUMN mill_private.job_state.total_duration IS 'how long the successful runs took';
COMMENT ON COLUMN mill_private.job_state.total_duration_failures IS 'how long the failed runs took';
COMMENT ON COLUMN mill_private.job_state.reason IS 'why the catalog has paused the job';
COMMENT ON COLUMN mill_private.job_state.queue IS 'the OID of the task table';
COMMENT ON COLUMN mill_private.job_state.scheduled IS 'as in mill.job';
COMMENT ON COLUMN mill_private.job_state.run IS 'the open activation that its schedule has started: the id of its first run';
COMMENT ON COLUMN mill_private.job_state.fill IS 'next_start waits for the scheduler, because SQL cannot compute it (cron)';
COMMENT ON COLUMN mill_private.job_state.stamp IS 'rises with every change of the plan; an answer to an older one is ignored';
COMMENT ON COLUMN mill_private.job_state.due IS 'when its scheduler starts it: next_start, unless it is paused or an activation is open';

CREATE TABLE mill_private.job_delta (
    job int NOT NULL,
    run bigint NOT NULL,
    moment timestamptz NOT NULL,
    lasted interval,
    gone bool NOT NULL DEFAULT false,
    PRIMARY KEY (job, run)
-- The whole table changes every second: a share of its size is no measure, and dead rows must not be read again and again.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON mill_private.job_delta (job) WHERE gone;
COMMENT ON TABLE mill_private.job_delta IS 'pgmill: successes that have not been added to mill_private.job_state yet; mill.job_stat counts them';
COMMENT ON COLUMN mill_private.job_delta.job IS 'the id of the job';
COMMENT ON COLUMN mill_private.job_delta.run IS 'the run that has succeeded; 0 where `gone`';
COMMENT ON COLUMN mill_private.job_delta.moment IS 'when the run ended';
COMMENT ON COLUMN mill_private.job_delta.lasted IS 'how long the run took';
COMMENT ON COLUMN mill_private.job_delta.gone IS 'the job was deleted while its state was locked or a run of it was under way';

CREATE VIEW mill_private.job_counters AS
SELECT b.job, GREATEST(b.last_start, t.last_start) AS last_start, GREATEST(b.last_finish, t.last_success) AS last_finish,
       GREATEST(b.last_successful_finish, t.last_success) AS last_successful_finish,
       CASE WHEN t.successes > 0 THEN true ELSE b.last_run_success END AS last_run_success, b.next_start,
       b.total_runs + COALESCE(t.successes, 0) AS total_runs, b.total_successes + COALESCE(t.successes, 0) AS total_successes,
       b.total_failures, b.total_crashes,
       CASE WHEN t.successes > 0 THEN 0 ELSE b.consecutive_failures END AS consecutive_failures,
       CASE WHEN t.successes > 0 THEN 0 ELSE b.consecutive_crashes END AS consecutive_crashes,
       b.total_duration + COALESCE(t.lasted, interval '0') AS total_duration, b.total_duration_failures, b.reason, b.queue, b.scheduled,
       b.run, b.fill, b.stamp, b.due
  FROM mill_private.job_state b
  LEFT JOIN (
    SELECT f.job, count(*) AS successes, sum(f.lasted) AS lasted, max(f.moment - f.lasted) AS last_start, max(f.moment) AS last_success
      FROM mill_private.job_delta f WHERE NOT f.gone GROUP BY f.job) AS t ON t.job = b.job;
COMMENT ON VIEW mill_private.job_counters IS 'pgmill: plan and numbers of all jobs with their deltas';

-- A run counts as a crash until it has ended.
CREATE VIEW mill_private.job_live AS
SELECT n.job, GREATEST(n.last_start, w.last_start) AS last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.next_start,
       n.total_runs + w.runs AS total_runs, n.total_successes, n.total_failures, n.total_crashes + w.runs AS total_crashes,
       n.consecutive_failures, (n.consecutive_crashes + w.since)::int AS consecutive_crashes, n.total_duration, n.total_duration_failures,
       n.reason, n.queue, n.scheduled, n.run, w.runs::int AS running, n.fill, n.stamp, n.due
  FROM mill_private.job_counters n CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE (r.start + m.clock > n.last_finish) IS NOT FALSE) AS since, max(r.start + m.clock) AS last_start
      FROM mill_private.run r, mill.meta m WHERE r.job = n.job AND r.outcome IS NULL AND r.start IS NOT NULL) AS w;
COMMENT ON VIEW mill_private.job_live IS 'pgmill: plan and numbers of all jobs with deltas and runs under way; mill.job_stat shows each role its own';

-- Returns false if there was nothing to add.
CREATE FUNCTION mill_private.apply_deltas(job int) RETURNS bool
    -- A plan that was made while the table was empty would read all of it for every job.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM mill_private.job_delta t WHERE t.job = apply_deltas.job AND NOT t.gone) THEN
        RETURN false;
    END IF;
    -- One statement has one snapshot: it deletes exactly the rows that it adds.
    WITH entered AS (DELETE FROM mill_private.job_delta t WHERE t.job = apply_deltas.job AND NOT t.gone)
    UPDATE mill_private.job_state b SET (last_start, last_finish, last_successful_finish, last_run_success, total_runs, total_successes,
            consecutive_failures, consecutive_crashes, total_duration)
        = (n.last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.total_runs, n.total_successes,
           n.consecutive_failures, n.consecutive_crashes, n.total_duration)
      FROM mill_private.job_counters n WHERE n.job = apply_deltas.job AND b.job = apply_deltas.job;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION mill_private.apply_deltas(int) IS 'pgmill: adds the deltas of a job to its state, which the caller has locked';

CREATE FUNCTION mill_private.lock_job_state(job int) RETURNS mill_private.job_state
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    counters mill_private.job_state;
BEGIN
    SELECT * INTO counters FROM mill_private.job_state b WHERE b.job = lock_job_state.job FOR NO KEY UPDATE;
    IF FOUND AND mill_private.apply_deltas(lock_job_state.job) THEN
        SELECT * INTO counters FROM mill_private.job_state b WHERE b.job = lock_job_state.job;
    END IF;
    RETURN counters;
END
$function$;
COMMENT ON FUNCTION mill_private.lock_job_state(int) IS 'pgmill: locks the state of a job and adds its deltas; NULL: it has none';

-- An end locks the state of its job before a flow. Commands that end runs under the lock of a flow do the same.
CREATE FUNCTION mill_private.lock_job_states(jobs int[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM FROM mill_private.job_state b WHERE b.job = ANY (jobs) ORDER BY b.job FOR NO KEY UPDATE;
END
$function$;
COMMENT ON FUNCTION mill_private.lock_job_states(int[]) IS 'pgmill: locks the states of jobs, in the order of their ids';

-- A DELETE of a job waits for no other transaction. One that has locked its state, or is just ending a run of it, may write numbers
-- or the order of a next run that this transaction cannot see. So a delta with `gone` is left, and `apply_all_deltas` deletes them.
CREATE FUNCTION mill_private.forget_job(job int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    DELETE FROM mill_private.job_state b
     WHERE b.job IN (SELECT f.job FROM mill_private.job_state f WHERE f.job = forget_job.job FOR UPDATE SKIP LOCKED);
    IF EXISTS (SELECT FROM mill_private.job_state b WHERE b.job = forget_job.job)
        OR EXISTS (SELECT FROM mill_private.run r WHERE r.job = forget_job.job AND r.outcome IS NULL AND r.start IS NOT NULL) THEN
        INSERT INTO mill_private.job_delta (job, run, moment, gone) VALUES (forget_job.job, 0, clock_timestamp(), true) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM mill_private.job_delta t
         WHERE t.job = forget_job.job AND t.run = ANY (ARRAY(SELECT f.run FROM mill_private.job_delta f WHERE f.job = forget_job.job FOR UPDATE SKIP LOCKED));
        PERFORM mill_private.cancel_waiting_runs(job);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.forget_job(int) IS 'pgmill: deletes the numbers of a deleted job and closes its runs that have not begun';

-- An interruption is not counted. Sets no search_path, because `settle_run` calls it at every end and has set it.
CREATE FUNCTION mill_private.count_ended_run(stat mill_private.job_state, ended mill_private.run, success bool, moment timestamptz) RETURNS mill_private.job_state
    LANGUAGE plpgsql AS $function$
DECLARE
    began bool := ended.start IS NOT NULL;
    lasted interval := ended.stop - ended.start;
    succeeded bool := success AND ended.reason IS NULL;
BEGIN
    IF began THEN
        stat.last_start := GREATEST(stat.last_start, moment - lasted);
        IF NOT success AND ended.outcome = 'interrupted' THEN
            RETURN stat;
        END IF;
    ELSIF NOT succeeded THEN
        RETURN stat;
    ELSE
        stat.last_start := GREATEST(stat.last_start, moment);
    END IF;
    stat.total_runs := stat.total_runs + 1;
    stat.last_finish := GREATEST(stat.last_finish, moment);
    stat.last_run_success := success;
    IF began AND NOT success AND ended.outcome = 'crashed' THEN
        stat.total_crashes := stat.total_crashes + 1;
        stat.consecutive_crashes := stat.consecutive_crashes + 1;
        RETURN stat;
    END IF;
    IF began THEN
        stat.consecutive_crashes := 0;
    END IF;
    IF succeeded THEN
        stat.total_successes := stat.total_successes + 1;
        stat.consecutive_failures := 0;
        stat.last_successful_finish := GREATEST(stat.last_successful_finish, moment);
        stat.total_duration := stat.total_duration + COALESCE(lasted, interval '0');
    ELSE
        stat.total_failures := stat.total_failures + 1;
        stat.consecutive_failures := stat.consecutive_failures + 1;
        stat.total_duration_failures := stat.total_duration_failures + COALESCE(lasted, interval '0');
    END IF;
    RETURN stat;
END
$function$;
COMMENT ON FUNCTION mill_private.count_ended_run(mill_private.job_state, mill_private.run, bool, timestamptz) IS
    'pgmill: adds the end of a run to the numbers of its job';

-- Skips jobs whose state is locked, so it never waits. Returns the number of jobs.
CREATE FUNCTION mill_private.apply_all_deltas() RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    one int;
    done int := 0;
BEGIN
    -- Most often there is nothing to add, and then nothing is written.
    IF NOT EXISTS (SELECT FROM mill_private.job_delta) THEN
        RETURN 0;
    END IF;
    -- A crash of the server undoes all of it or nothing, so the commit need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR one IN SELECT b.job FROM mill_private.job_state b WHERE b.job IN (SELECT t.job FROM mill_private.job_delta t)
                  AND EXISTS (SELECT FROM mill.job j WHERE j.id = b.job)
                ORDER BY b.job FOR NO KEY UPDATE OF b SKIP LOCKED LOOP
        PERFORM mill_private.apply_deltas(one);
        done := done + 1;
    END LOOP;
    FOR one IN SELECT DISTINCT t.job FROM mill_private.job_delta t WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = t.job) LOOP
        PERFORM mill_private.forget_job(one);
        done := done + 1;
    END LOOP;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.apply_all_deltas() IS 'pgmill: adds the deltas of all jobs, and deletes the numbers of deleted jobs';

CREATE FUNCTION mill_private.pause_job(job int, why text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill.job j SET scheduled = false WHERE j.id = pause_job.job AND j.scheduled;
    UPDATE mill_private.job_state s SET reason = why WHERE s.job = pause_job.job;
END
$function$;
COMMENT ON FUNCTION mill_private.pause_job(int, text) IS 'pgmill: pauses a job that cannot continue, with the reason';

CREATE FUNCTION mill_private.pause_failing_job(job_row mill.job, failures int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF mill_private.has_schedule(job_row) AND job_row.scheduled AND job_row.max_retries >= 0 AND failures >= GREATEST(job_row.max_retries, 1) THEN
        PERFORM mill_private.pause_job(job_row.id, format('failed %s in a row, max_retries = %s',
                                       mill_private.count_of(failures, 'time'), job_row.max_retries));
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.pause_failing_job(mill.job, int) IS 'pgmill: pauses a scheduled job that has failed too often in a row';

CREATE FUNCTION mill_private.compute_retry_delay(job mill.job, n int) RETURNS interval
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    jitter CONSTANT float8 := 0.125;
    most_doublings CONSTANT int := 20;
    most_intervals CONSTANT int := 5;
    -- still an interval
    most_seconds CONSTANT float8 := 3e9;
BEGIN
    RETURN make_interval(secs => (1 + (2 * random() - 1) * jitter) * LEAST(
        extract(epoch FROM (job).retry_period)::float8 * 2 ^ LEAST(GREATEST(n - 1, 0), most_doublings),
        most_intervals * extract(epoch FROM (job).schedule_interval)::float8, most_seconds));
END
$function$;
COMMENT ON FUNCTION mill_private.compute_retry_delay(mill.job, int) IS
    'pgmill: the delay after n failures or crashes in a row: doubled each time, at most 5 intervals, with a jitter of 12.5 %';

-- Of a run that has begun and has not succeeded. `own`: the schedule's own run. `by_user`: a person stopped, deleted or marked it.
CREATE FUNCTION mill_private.compute_retry_start(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own bool, by_user bool, moment timestamptz)
    RETURNS timestamptz
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    has_schedule bool := mill_private.has_schedule(job_row);
    tries int := CASE WHEN has_schedule THEN stat.consecutive_failures ELSE ended.failures + 1 END;
    allowed int := COALESCE(job_row.max_retries, CASE WHEN has_schedule THEN -1 ELSE 0 END);
    again timestamptz;
BEGIN
    IF ended.outcome = 'interrupted' THEN
        -- As soon as the queue is served.
        RETURN LEAST(ended.due, moment);
    ELSIF ended.outcome = 'crashed' THEN
        RETURN GREATEST(moment + job_row.crash_wait, moment + mill_private.compute_retry_delay(job_row, stat.consecutive_crashes));
    -- A run that a person starts of a scheduled job is not retried: that person sees the failure, and the schedule goes on.
    ELSIF by_user OR has_schedule AND NOT own OR allowed >= 0 AND tries >= GREATEST(allowed, 1) THEN
        RETURN NULL;
    END IF;
    again := moment + mill_private.compute_retry_delay(job_row, tries);
    IF job_row.fixed_schedule AND job_row.schedule_interval IS NOT NULL THEN
        again := LEAST(again, mill_private.compute_next_start(job_row, moment, moment));
    END IF;
    -- A next start that the run has set itself wins.
    RETURN CASE WHEN own THEN COALESCE(stat.next_start, again) ELSE again END;
END
$function$;
COMMENT ON FUNCTION mill_private.compute_retry_start(mill.job, mill_private.job_state, mill_private.run, bool, bool, timestamptz) IS
    'pgmill: when a run that has failed, crashed or was interrupted is retried; NULL: it is not';
