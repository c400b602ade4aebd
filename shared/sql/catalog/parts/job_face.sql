-- Jobs for people: the functions that users of TimescaleDB know, and what is to be seen.
-- The functions run as their caller, so that the rules of the tables hold. What needs more is an INSERT into
-- mill_private.request: the row notes who writes it, and a trigger that runs as the catalog's owner acts for that role alone.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE FUNCTION mill.add_job(proc regproc, schedule_interval interval DEFAULT NULL, config jsonb DEFAULT NULL,
                             initial_start timestamptz DEFAULT NULL, scheduled bool DEFAULT true,
                             check_config regproc DEFAULT NULL, fixed_schedule bool DEFAULT true,
                             timezone text DEFAULT NULL, job_name text DEFAULT NULL, cron text DEFAULT NULL,
                             queue text DEFAULT NULL, max_runtime interval DEFAULT NULL, max_retries int DEFAULT NULL,
                             retry_period interval DEFAULT NULL, crash_wait interval DEFAULT NULL) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    verb text := (SELECT CASE p.prokind WHEN 'p' THEN 'CALL ' WHEN 'f' THEN 'SELECT ' END FROM pg_proc p WHERE p.oid = add_job.proc);
    made int;
BEGIN
    IF verb IS NULL THEN
        RAISE EXCEPTION '"%" is neither a procedure nor a function', proc USING ERRCODE = '42883';
    END IF;
    INSERT INTO mill.job (name, routine, schedule_interval, config, initial_start, scheduled, check_config, fixed_schedule,
                          timezone, cron, queue, max_runtime, max_retries, retry_period, crash_wait)
    VALUES (job_name, verb || proc::text, add_job.schedule_interval, add_job.config, add_job.initial_start,
            COALESCE(add_job.scheduled, true), add_job.check_config::text, COALESCE(add_job.fixed_schedule, true),
            add_job.timezone, add_job.cron, add_job.queue, COALESCE(add_job.max_runtime, '0'), add_job.max_retries,
            COALESCE(add_job.retry_period, '5 min'), COALESCE(add_job.crash_wait, '5 min'))
    RETURNING id INTO made;
    RETURN made;
END
$function$;
COMMENT ON FUNCTION mill.add_job(regproc, interval, jsonb, timestamptz, bool, regproc, bool, text, text, text, text, interval, int,
    interval, interval) IS 'pgmill: a job that calls proc(job id, config) on a schedule; its id';

CREATE FUNCTION mill.alter_job(job_id int, schedule_interval interval DEFAULT NULL, max_runtime interval DEFAULT NULL,
                               max_retries int DEFAULT NULL, retry_period interval DEFAULT NULL, scheduled bool DEFAULT NULL,
                               config jsonb DEFAULT NULL, next_start timestamptz DEFAULT NULL, if_exists bool DEFAULT false,
                               check_config regproc DEFAULT NULL, fixed_schedule bool DEFAULT NULL,
                               initial_start timestamptz DEFAULT NULL, timezone text DEFAULT NULL, job_name text DEFAULT NULL,
                               cron text DEFAULT NULL, crash_wait interval DEFAULT NULL) RETURNS SETOF mill.job
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    -- The other kind of schedule goes.
    cron_now text := alter_job.cron;
    interval_now interval := alter_job.schedule_interval;
BEGIN
    IF num_nonnulls(schedule_interval, max_runtime, max_retries, retry_period, scheduled, config, check_config, fixed_schedule,
                    initial_start, timezone, job_name, cron, crash_wait) > 0 THEN
        UPDATE mill.job j SET
               schedule_interval = COALESCE(interval_now, CASE WHEN cron_now IS NULL THEN j.schedule_interval END),
               cron = COALESCE(cron_now, CASE WHEN interval_now IS NULL THEN j.cron END),
               max_runtime = COALESCE(alter_job.max_runtime, j.max_runtime),
               max_retries = COALESCE(alter_job.max_retries, j.max_retries),
               retry_period = COALESCE(alter_job.retry_period, j.retry_period),
               crash_wait = COALESCE(alter_job.crash_wait, j.crash_wait),
               scheduled = COALESCE(alter_job.scheduled, j.scheduled),
               config = COALESCE(alter_job.config, j.config),
               check_config = COALESCE(alter_job.check_config::text, j.check_config),
               fixed_schedule = COALESCE(alter_job.fixed_schedule, j.fixed_schedule),
               initial_start = COALESCE(alter_job.initial_start, j.initial_start),
               timezone = COALESCE(alter_job.timezone, j.timezone),
               name = COALESCE(job_name, j.name)
         WHERE j.id = job_id;
        IF NOT FOUND THEN
            IF if_exists THEN
                RAISE NOTICE 'job % is not there, or not yours', job_id;
                RETURN;
            END IF;
            RAISE EXCEPTION 'job % is not there, or not yours', job_id USING ERRCODE = '42704';
        END IF;
    END IF;
    IF next_start IS NOT NULL AND NOT mill.set_next_start(job_id, next_start) AND NOT if_exists THEN
        RAISE EXCEPTION 'job % is not there, or not yours', job_id USING ERRCODE = '42704';
    END IF;
    RETURN QUERY SELECT j.* FROM mill.job j WHERE j.id = job_id;
END
$function$;
COMMENT ON FUNCTION mill.alter_job(int, interval, interval, int, interval, bool, jsonb, timestamptz, bool, regproc, bool,
    timestamptz, text, text, text, interval) IS 'pgmill: changes what is given, NULL = as it is; the changed job';

-- Requests for a job by members of its owner. No row stays; the result is in the setting mill.result of the transaction.
CREATE TABLE mill_private.request (
    action text NOT NULL,
    job int PRIMARY KEY,
    moment timestamptz,
    made_by name NOT NULL
);
COMMENT ON TABLE mill_private.request IS 'pgmill: an INSERT does what mill.run_job and mill.set_next_start ask for; no row stays';
CREATE FUNCTION mill_private.set_next_start(relid oid, job int, next timestamptz) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    s record;
BEGIN
    SELECT f.run, f.queue INTO s FROM mill.job_book f WHERE f.job = set_next_start.job AND (relid IS NULL OR f.queue = relid);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE mill.job_book f SET next_start = set_next_start.next, fill = false, stamp = f.stamp + 1 WHERE f.job = set_next_start.job;
    IF s.run IS NOT NULL THEN
        PERFORM mill.move_waiting(job, s.run, next);
    END IF;
    PERFORM mill.touch(s.queue);
    RETURN true;
END
$function$;
COMMENT ON FUNCTION mill_private.set_next_start(oid, int, timestamptz) IS 'pgmill: when a job starts next, once';
CREATE FUNCTION mill_private.do_request() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job;
    wrong text;
BEGIN
    PERFORM set_config('mill.result', '', true);
    SELECT * INTO j FROM mill.job f WHERE f.id = NEW.job;
    IF j.id IS NULL OR NOT mill_private.is_member_of(NEW.made_by, j.owner) THEN
        RETURN NULL;
    END IF;
    IF NEW.action = 'run' THEN
        wrong := mill.refusal(j.owner, (SELECT s.queue FROM mill.job_book s WHERE s.job = j.id));
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION 'job "%": %', j.name, wrong USING ERRCODE = '42501';
        END IF;
        PERFORM set_config('mill.result', mill.activate(j.id, mill.now(), mill.now())::text, true);
    ELSIF NEW.action = 'next_start' THEN
        PERFORM set_config('mill.result', mill_private.set_next_start(NULL, j.id, NEW.moment)::text, true);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.do_request() IS 'pgmill: does what a row of mill_private.request asks for';
CREATE TRIGGER request_1_writer BEFORE INSERT ON mill_private.request FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();
CREATE TRIGGER request_2_act BEFORE INSERT ON mill_private.request FOR EACH ROW EXECUTE FUNCTION mill_private.do_request();

-- For members of the job's owner, and for the user of its queue: a run may set the next start of its job.
CREATE FUNCTION mill.set_next_start(job int, next_start timestamptz) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place oid;
    done bool;
BEGIN
    INSERT INTO mill_private.request (action, job, moment) VALUES ('next_start', set_next_start.job, set_next_start.next_start);
    IF current_setting('mill.result', true) = 'true' THEN
        RETURN true;
    END IF;
    FOR place IN SELECT q.relid FROM mill.queue q
                  WHERE has_function_privilege(to_regprocedure(format('mill_private.q%s_next_start(int, timestamptz)', q.relid)), 'EXECUTE') LOOP
        EXECUTE format('SELECT mill_private.q%s_next_start($1, $2)', place) INTO done USING job, next_start;
        IF done THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$function$;
COMMENT ON FUNCTION mill.set_next_start(int, timestamptz) IS 'pgmill: when a job starts next, once';

CREATE FUNCTION mill.delete_job(job_id int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    DELETE FROM mill.job j WHERE j.id = job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % is not there, or not yours', job_id USING ERRCODE = '42704';
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.delete_job(int) IS 'pgmill: deletes a job; a running one is cancelled, and not waited for';

CREATE FUNCTION mill.run_job(job_id int) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO mill_private.request (action, job) VALUES ('run', job_id);
    IF COALESCE(current_setting('mill.result', true), '') = '' THEN
        RAISE EXCEPTION 'job % is not there, or not yours', job_id USING ERRCODE = '42704';
    END IF;
    RETURN current_setting('mill.result')::bigint;
END
$function$;
COMMENT ON FUNCTION mill.run_job(int) IS 'pgmill: runs a job now, also when it is paused; the id of the run';

-- Who sees all of mill.job, as its owner does, sees all of this.
CREATE VIEW mill.job_stat WITH (security_barrier) AS
SELECT s.job, s.last_start, s.last_finish, s.last_successful_finish, s.last_run_success, s.next_start, s.total_runs, s.total_successes,
       s.total_failures, s.total_crashes, s.consecutive_failures, s.consecutive_crashes, s.total_duration, s.total_duration_failures,
       s.reason, s.queue, s.scheduled, s.run, s.running, s.fill, s.stamp, s.due
  FROM mill.job_live s
 WHERE (SELECT NOT row_security_active('mill.job'::regclass))
    OR EXISTS (SELECT FROM mill.job j WHERE j.id = s.job AND mill.is_member(j.owner));
COMMENT ON VIEW mill.job_stat IS 'pgmill: statistics of every job, and when it starts next; unknown is NULL';
COMMENT ON COLUMN mill.job_stat.total_crashes IS 'rises when a run starts and falls when it ends: what is left are starts without an end';
COMMENT ON COLUMN mill.job_stat.reason IS 'why the job was paused, if it was not a person''s doing';
COMMENT ON COLUMN mill.job_stat.run IS 'the unfinished activation that its schedule has made: the id of its first run';
COMMENT ON COLUMN mill.job_stat.running IS 'runs that have begun and not ended';
COMMENT ON COLUMN mill.job_stat.fill IS 'next_start waits for the scheduler, because SQL cannot compute it (cron)';
COMMENT ON COLUMN mill.job_stat.stamp IS 'rises with every change of the plan: an answer to an older one is too late';

CREATE VIEW mill.job_status WITH (security_barrier) AS
SELECT j.id AS job, j.name, j.owner, j.queue,
       CASE WHEN s.running > 0 THEN 'Running' WHEN j.scheduled THEN 'Scheduled' ELSE 'Paused' END AS status,
       CASE WHEN j.scheduled THEN s.next_start END AS next_start,
       CASE WHEN s.running > 0 THEN format('it is running since %s', s.last_start)
            WHEN NOT j.scheduled THEN COALESCE(s.reason, 'somebody has paused it (scheduled = false)')
            WHEN NOT s.served THEN format('no scheduler serves %s: is the launcher running? ask it with: launcher status', j.queue)
            WHEN s.fill THEN 'its next start is being computed'
            WHEN s.consecutive_crashes > 0 THEN format('its last run crashed; it is tried again at %s', s.next_start)
            WHEN s.run IS NOT NULL AND s.next_start > mill.now() THEN format('its last run failed; it is tried again at %s', s.next_start)
            WHEN s.next_start <= mill.now() THEN format('it is due since %s, and waits for a free slot or its turn', s.next_start)
            WHEN s.next_start IS NOT NULL THEN format('it is planned for %s', s.next_start)
            WHEN j.schedule_interval IS NULL AND j.cron IS NULL THEN 'it has no schedule: edges or mill.run_job start it'
            ELSE 'no time is left in its schedule' END AS why
  FROM mill.job j
  CROSS JOIN LATERAL (
    SELECT s.*, mill.locked({queue_key}, s.queue, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) AS served
      FROM mill.job_live s WHERE s.job = j.id) AS s
 WHERE mill.is_member(j.owner);
COMMENT ON VIEW mill.job_status IS 'pgmill: whether each job runs, waits or is paused, when it starts next, and why';

-- The runs that have begun or ended. On PostgreSQL 15 and later the view reads as its reader, so that the planner sees through it
-- and the row security of the tables decides; before, a barrier keeps other roles' runs apart, and a join with mill.job by
-- its name reads all runs of the reader.
DO $function$
BEGIN
    EXECUTE format($view$
        CREATE VIEW mill.run WITH (%s) AS
        SELECT r.id, j.name, j.flow, format('%%I.%%I', q.schema, q.name) AS queue, r.job, r.task, r.attempt, r.at,
               COALESCE(r.outcome, 'running') AS state, r.start, r.stop, r.sqlstate, r.reason, r.error, r.output, r.definition,
               COALESCE(r.activation, r.id) AS run_of
          FROM mill_private.run r JOIN mill.job j ON j.id = r.job LEFT JOIN mill.queue q ON q.relid = r.queue
         WHERE (r.start IS NOT NULL OR r.outcome IS NOT NULL) %s$view$,
        CASE WHEN current_setting('server_version_num')::int >= 150000 THEN 'security_invoker' ELSE 'security_barrier' END,
        CASE WHEN current_setting('server_version_num')::int >= 150000 THEN ''
             ELSE $right$AND j.owner = ANY (ARRAY(SELECT o.rolname FROM pg_roles o WHERE pg_has_role(o.oid, 'MEMBER')))$right$ END);
END
$function$;
COMMENT ON VIEW mill.run IS 'pgmill: every run of every job that has begun or ended';
COMMENT ON COLUMN mill.run.id IS 'what mill.run and mill.run_job return; never used again';
COMMENT ON COLUMN mill.run.name IS 'the name of the job';
COMMENT ON COLUMN mill.run.flow IS 'the flow of the job';
COMMENT ON COLUMN mill.run.queue IS 'the task table that it ran in; NULL = it needed no worker';
COMMENT ON COLUMN mill.run.job IS 'the id of the job';
COMMENT ON COLUMN mill.run.task IS 'its row in the task table, which may be deleted by now';
COMMENT ON COLUMN mill.run.attempt IS 'counts the runs of one activation';
COMMENT ON COLUMN mill.run.at IS 'the logical time that it ran for';
COMMENT ON COLUMN mill.run.state IS 'running, succeeded, failed, crashed, interrupted, cancelled or skipped';
COMMENT ON COLUMN mill.run.start IS 'when it began';
COMMENT ON COLUMN mill.run.stop IS 'when it ended';
COMMENT ON COLUMN mill.run.sqlstate IS 'SQLSTATE of the error, if the server gave one';
COMMENT ON COLUMN mill.run.reason IS 'why it ended otherwise than by its own SQL';
COMMENT ON COLUMN mill.run.error IS 'what went wrong, in the words of the server';
COMMENT ON COLUMN mill.run.output IS 'what it returned';
COMMENT ON COLUMN mill.run.definition IS 'the input that was run';
COMMENT ON COLUMN mill.run.run_of IS 'the first run of the same activation';

INSERT INTO mill.face (level, object, rights) VALUES
    ('use', 'TABLE mill.job', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.job_stat', 'SELECT'),
    ('use', 'TABLE mill.job_status', 'SELECT'),
    ('use', 'TABLE mill.run', 'SELECT'),
    ('use', 'FUNCTION mill.is_member(name)', 'EXECUTE'),
    ('use', 'SCHEMA mill_private', 'USAGE'),
    ('use', 'TABLE mill_private.run', 'SELECT'),
    ('use', 'TABLE mill_private.request', 'INSERT'),
    ('use', 'FUNCTION mill.check_cron(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_zone(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.add_job(regproc, interval, jsonb, timestamptz, bool, regproc, bool, text, text, text, text, interval, int, interval, interval)', 'EXECUTE'),
    ('use', 'FUNCTION mill.alter_job(int, interval, interval, int, interval, bool, jsonb, timestamptz, bool, regproc, bool, timestamptz, text, text, text, interval)', 'EXECUTE'),
    ('use', 'FUNCTION mill.set_next_start(int, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.delete_job(int)', 'EXECUTE'),
    ('use', 'FUNCTION mill.run_job(int)', 'EXECUTE');
