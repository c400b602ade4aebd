-- The functions for jobs, with the names and parameters of TimescaleDB.
-- They run as their caller, so that the row security of mill.job holds. What needs more rights is an INSERT into
-- mill_private.request: one trigger notes who writes, and another one runs as the catalog's owner and acts for that role alone.
-- parameters: none; locks: none; caller: installation, once per database

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
    -- A new interval removes cron, and the other way round.
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
                RAISE NOTICE 'job % does not exist, or you are not a member of its owner', job_id;
                RETURN;
            END IF;
            RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
        END IF;
    END IF;
    IF next_start IS NOT NULL AND NOT mill.set_next_start(job_id, next_start) AND NOT if_exists THEN
        RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
    END IF;
    RETURN QUERY SELECT j.* FROM mill.job j WHERE j.id = job_id;
END
$function$;
COMMENT ON FUNCTION mill.alter_job(int, interval, interval, int, interval, bool, jsonb, timestamptz, bool, regproc, bool,
    timestamptz, text, text, text, interval) IS 'pgmill: changes what is given, NULL = as it is; the changed job';

-- No row stays. The result is in the setting mill.result, for this transaction.
CREATE TABLE mill_private.request (
    action text NOT NULL,
    job int PRIMARY KEY,
    moment timestamptz,
    made_by name NOT NULL
);
COMMENT ON TABLE mill_private.request IS 'pgmill: an INSERT does what mill.run_job and mill.set_next_start ask for; no row stays';
COMMENT ON COLUMN mill_private.request.action IS 'run or next_start';
COMMENT ON COLUMN mill_private.request.job IS 'the id of the job';
COMMENT ON COLUMN mill_private.request.moment IS 'next_start: when it starts next';
COMMENT ON COLUMN mill_private.request.made_by IS 'the role that writes the row, and for which it is done';

CREATE FUNCTION mill_private.perform_request() RETURNS trigger
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
        wrong := mill_private.check_queue_right(j.owner, (SELECT s.queue FROM mill_private.job_state s WHERE s.job = j.id));
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION 'job "%": %', j.name, wrong USING ERRCODE = '42501';
        END IF;
        PERFORM set_config('mill.result', mill_private.order_run(j.id, mill.now(), mill.now())::text, true);
    ELSIF NEW.action = 'next_start' THEN
        PERFORM set_config('mill.result', mill_private.set_next_start(NULL, j.id, NEW.moment)::text, true);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.perform_request() IS 'pgmill: does what a row of mill_private.request asks for';
CREATE TRIGGER request_1_writer BEFORE INSERT ON mill_private.request FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();
CREATE TRIGGER request_2_act BEFORE INSERT ON mill_private.request FOR EACH ROW EXECUTE FUNCTION mill_private.perform_request();

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
                  WHERE has_function_privilege(to_regprocedure(format('mill_private.q%s_set_next_start(int, timestamptz)', q.relid)), 'EXECUTE') LOOP
        EXECUTE format('SELECT mill_private.q%s_set_next_start($1, $2)', place) INTO done USING job, next_start;
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
        RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.delete_job(int) IS 'pgmill: deletes a job; a running one is cancelled, and not waited for';

CREATE FUNCTION mill.run_job(job_id int) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO mill_private.request (action, job) VALUES ('run', job_id);
    IF COALESCE(current_setting('mill.result', true), '') = '' THEN
        RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
    END IF;
    RETURN current_setting('mill.result')::bigint;
END
$function$;
COMMENT ON FUNCTION mill.run_job(int) IS 'pgmill: runs a job now, also when it is paused; the id of the run';
