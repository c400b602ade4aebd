-- Jobs: SQL that runs again and again. A job is a definition; each of its runs is a row in mill_private.run (part `run`).
-- Users write mill.job by plain SQL. The triggers on it are in part `job_change`.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill.job (
    id int PRIMARY KEY,
    name text NOT NULL UNIQUE,
    flow text,
    input text,
    queue text NOT NULL,
    schedule_interval interval,
    cron text,
    timezone text,
    initial_start timestamptz,
    fixed_schedule bool NOT NULL DEFAULT true,
    max_runtime interval NOT NULL DEFAULT '0',
    max_retries int,
    retry_period interval NOT NULL DEFAULT '5 min',
    crash_wait interval NOT NULL DEFAULT '5 min',
    scheduled bool NOT NULL DEFAULT true,
    config jsonb,
    check_config text,
    owner name NOT NULL DEFAULT current_user,
    "group" text,
    "max" int,
    active interval,
    live interval,
    "count" int,
    timeout interval,
    remote text,
    atomic bool NOT NULL DEFAULT false,
    priority int NOT NULL DEFAULT 0,
    threshold int,
    routine text
);
COMMENT ON TABLE mill.job IS 'pgmill: SQL that runs repeatedly; an INSERT creates a job, and a change takes effect at once';
COMMENT ON COLUMN mill.job.id IS 'drawn by the catalog, and never used again';
COMMENT ON COLUMN mill.job.name IS 'unique; edges name jobs by it';
COMMENT ON COLUMN mill.job.flow IS 'the flow: jobs that are drawn, paused and limited together';
COMMENT ON COLUMN mill.job.input IS 'SQL, run as the user of the queue; NULL = a node that does nothing';
COMMENT ON COLUMN mill.job.queue IS 'the task table that its runs are rows of, as schema.table';
COMMENT ON COLUMN mill.job.schedule_interval IS 'how often it runs; or cron, or neither: then edges or mill.run_job start it';
COMMENT ON COLUMN mill.job.cron IS 'five fields, or six with seconds first, on the wall clock of timezone';
COMMENT ON COLUMN mill.job.timezone IS 'whose wall clock counts; NULL = UTC';
COMMENT ON COLUMN mill.job.initial_start IS 'the first time; a fixed schedule counts from it';
COMMENT ON COLUMN mill.job.fixed_schedule IS 'true: on the grid initial_start + k * interval; false: interval after the end of the last run';
COMMENT ON COLUMN mill.job.max_runtime IS 'a run that takes longer is ended, and has failed; 0 = unlimited';
COMMENT ON COLUMN mill.job.max_retries IS '-1 = without end, n = the job is paused after n failures in a row; NULL = -1 with a schedule of its own, else 0';
COMMENT ON COLUMN mill.job.retry_period IS 'the wait after the first failure; it doubles with each';
COMMENT ON COLUMN mill.job.crash_wait IS 'the least wait after a crash, so that a person can pause the job';
COMMENT ON COLUMN mill.job.scheduled IS 'false = paused; set to true it starts from zero';
COMMENT ON COLUMN mill.job.config IS 'the argument of the routine that add_job was called with';
COMMENT ON COLUMN mill.job.check_config IS 'a function of the config that may refuse it by an error';
COMMENT ON COLUMN mill.job.owner IS 'the role whose members may alter, run and delete it; it runs as the user of its queue';
COMMENT ON COLUMN mill.job."group" IS 'the group of its tasks; NULL = job <id>';
COMMENT ON COLUMN mill.job."max" IS 'max of its tasks; NULL = 0';
COMMENT ON COLUMN mill.job.active IS 'active of its tasks; NULL = 1000 years';
COMMENT ON COLUMN mill.job.live IS 'live of its tasks; NULL = 0';
COMMENT ON COLUMN mill.job."count" IS 'count of its tasks; NULL = 0';
COMMENT ON COLUMN mill.job.timeout IS 'timeout of its tasks; NULL = 0';
COMMENT ON COLUMN mill.job.remote IS 'remote of its tasks';
COMMENT ON COLUMN mill.job.atomic IS 'atomic of its tasks';
COMMENT ON COLUMN mill.job.priority IS 'priority of its tasks; higher first';
COMMENT ON COLUMN mill.job.threshold IS 'how many tokens start it; NULL = one from every edge';
COMMENT ON COLUMN mill.job.routine IS 'the routine that add_job was called with; input is built from it, id and config';
-- Only the trigger draws ids, so that nobody chooses one and none is used twice.
CREATE SEQUENCE mill.job_id_seq AS int OWNED BY mill.job.id;

ALTER TABLE mill.job ENABLE ROW LEVEL SECURITY;
-- The roles of the reader are looked up once per query.
CREATE POLICY by_owner ON mill.job USING (owner = ANY (ARRAY(SELECT r.rolname FROM pg_roles r WHERE pg_has_role(r.oid, 'MEMBER'))))
    WITH CHECK (mill_private.is_member(owner));

CREATE FUNCTION mill_private.has_schedule(job mill.job) RETURNS bool
    LANGUAGE sql IMMUTABLE
    RETURN (job).schedule_interval IS NOT NULL OR (job).cron IS NOT NULL;
COMMENT ON FUNCTION mill_private.has_schedule(mill.job) IS 'pgmill: whether a job has a schedule of its own: an interval or cron';

CREATE FUNCTION mill_private.compute_first_start(job mill.job, moment timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN (job).schedule_interval IS NOT NULL THEN COALESCE((job).initial_start, moment) END;
COMMENT ON FUNCTION mill_private.compute_first_start(mill.job, timestamptz) IS
    'pgmill: when a job that has never run starts first; NULL: the scheduler computes it (cron), or it has no schedule';

-- `finished` is the end of its last run.
CREATE FUNCTION mill_private.compute_next_start(job mill.job, finished timestamptz, after timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF job.schedule_interval IS NULL THEN
        RETURN NULL;
    ELSIF job.fixed_schedule THEN
        RETURN mill_private.next_slot(job.initial_start, job.schedule_interval, job.timezone, after);
    ELSIF finished IS NULL THEN
        RETURN COALESCE(job.initial_start, after);
    END IF;
    -- On the calendar of the job's zone, not of this session's.
    RETURN mill_private.add_interval(finished, job.schedule_interval, job.timezone);
END
$function$;
COMMENT ON FUNCTION mill_private.compute_next_start(mill.job, timestamptz, timestamptz) IS
    'pgmill: the next scheduled start after a moment; NULL: the scheduler computes it (cron), or there is none';
