-- The triggers on mill.job: they check the row, keep its row in job_state, and wake the scheduler of its queue.
-- parameters: none; locks: none; caller: installation, once per database

-- Runs as the writer: which owner the writer may name, and check_config. That is a function of the job's owner, so it runs only with
-- the rights of the owner: never for a superuser or for another member of the owner, who would run somebody else's code. It
-- needs the search_path of its owner, so this function fixes none and qualifies every name.
CREATE FUNCTION mill_private.check_job_writer() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF (TG_OP = 'INSERT' OR NEW.owner IS DISTINCT FROM OLD.owner) AND NOT mill_private.is_member(NEW.owner) THEN
        RAISE EXCEPTION 'the owner of a job must be a role that you are a member of, not "%"', NEW.owner
            USING ERRCODE = '42501';
    END IF;
    IF NEW.check_config IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.config IS DISTINCT FROM OLD.config
            OR NEW.check_config IS DISTINCT FROM OLD.check_config) THEN
        IF pg_catalog.to_regproc(NEW.check_config) IS NULL THEN
            RAISE EXCEPTION 'check_config: function "%" does not exist or is overloaded; give its name with its schema', NEW.check_config
                USING ERRCODE = '42883';
        END IF;
        IF NEW.owner OPERATOR(pg_catalog.=) current_user AND NOT (SELECT r.rolsuper FROM pg_catalog.pg_roles r
                WHERE r.rolname OPERATOR(pg_catalog.=) current_user) THEN
            EXECUTE pg_catalog.concat('SELECT ', pg_catalog.to_regproc(NEW.check_config)::pg_catalog.text, '($1)') USING NEW.config;
        ELSE
            RAISE NOTICE 'job "%": check_config was not run: it runs only when "%" itself writes the job', NEW.name, NEW.owner;
        END IF;
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.check_job_writer() IS 'pgmill: checks the owner of a job and calls its check_config';

CREATE FUNCTION mill_private.check_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place oid;
    wrong text;
BEGIN
    IF TG_OP = 'INSERT' AND NEW.id IS NULL THEN
        NEW.id := nextval('mill.job_id_seq');
    ELSIF TG_OP = 'INSERT' OR NEW.id IS DISTINCT FROM OLD.id THEN
        RAISE EXCEPTION 'job "%": its id is drawn by the catalog and cannot be set', NEW.name USING ERRCODE = '428C9';
    END IF;
    IF NEW.queue IS NULL THEN
        NEW.queue := COALESCE((SELECT min(format('%I.%I', q.schema, q.name)) FROM mill.queue q HAVING count(*) = 1), 'public.task');
    END IF;
    IF NEW.routine IS NOT NULL THEN
        NEW.input := format('%s(%s, %s::jsonb)', NEW.routine, NEW.id, quote_nullable(NEW.config::text));
    END IF;
    IF NEW.name IS NULL THEN
        NEW.name := concat_ws(' ', COALESCE(regexp_replace(NEW.routine, '^(CALL|SELECT) (public[.])?', ''), 'job'), NEW.id);
    END IF;
    place := mill_private.queue_oid(NEW.queue);
    CASE
    WHEN NEW.name = '' OR length(NEW.name) > 200 THEN
        wrong := 'its name must have 1 to 200 characters';
    WHEN NEW.schedule_interval IS NOT NULL AND NEW.cron IS NOT NULL THEN
        wrong := 'it has a schedule_interval and a cron; choose one';
    WHEN NEW.schedule_interval <= interval '0' THEN
        wrong := 'schedule_interval must be more than 0';
    WHEN NEW.fixed_schedule AND NEW.schedule_interval IS NOT NULL AND mill.check_step(NEW.schedule_interval) IS NOT NULL THEN
        wrong := mill.check_step(NEW.schedule_interval);
    WHEN NEW.timezone IS NOT NULL AND mill.check_zone(NEW.timezone) IS NOT NULL THEN
        wrong := mill.check_zone(NEW.timezone);
    WHEN NEW.cron IS NOT NULL AND mill.check_cron(NEW.cron) IS NOT NULL THEN
        wrong := format('cron "%s": %s', NEW.cron, mill.check_cron(NEW.cron));
    WHEN NEW.initial_start IN ('infinity', '-infinity') THEN
        wrong := 'initial_start must be a finite time';
    WHEN NEW.max_runtime < interval '0' THEN
        wrong := 'max_runtime must be 0 (unlimited) or more';
    WHEN NEW.max_retries < -1 THEN
        wrong := 'max_retries must be -1 (for ever) or more';
    WHEN NEW.retry_period < interval '0' THEN
        wrong := 'retry_period must be 0 or more';
    WHEN NEW.crash_wait < interval '0' THEN
        wrong := 'crash_wait must be 0 or more';
    WHEN NEW.active <= interval '0' THEN
        wrong := 'active must be more than 0';
    WHEN NEW.live < interval '0' OR NEW."count" < 0 OR NEW.timeout < interval '0' THEN
        wrong := 'live, count and timeout must be 0 or more';
    WHEN NEW.threshold < 1 THEN
        wrong := 'threshold must be 1 or more';
    WHEN place IS NULL THEN
        wrong := format('table "%s" does not exist; name its queue as schema.table', NEW.queue);
    WHEN NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = place) THEN
        wrong := format('%s is not a task table that a scheduler of pgmill has served', NEW.queue);
    ELSE
    END CASE;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'job "%": %', NEW.name, wrong USING ERRCODE = '22023';
    END IF;
    IF TG_OP = 'INSERT' OR (NEW.queue, NEW.owner) IS DISTINCT FROM (OLD.queue, OLD.owner) THEN
        wrong := mill_private.check_queue_right(NEW.owner, place);
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION 'job "%": %', NEW.name, wrong USING ERRCODE = '42501';
        END IF;
    END IF;
    IF NEW.schedule_interval IS NOT NULL AND NEW.fixed_schedule AND NEW.initial_start IS NULL THEN
        NEW.initial_start := mill.now();
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.check_job() IS 'pgmill: checks a job and fills in defaults';

CREATE FUNCTION mill_private.follow_job_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    relid oid;
    moment timestamptz := mill.now();
    stat mill_private.job_state;
    resumed bool;
    moved bool;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM mill_private.bump_version(stored.queue) FROM mill_private.job_state stored WHERE stored.job = OLD.id;
        -- Its scheduler ends a run that is under way. This transaction does not wait for that.
        PERFORM mill_private.cancel_waiting_runs(OLD.id);
        PERFORM mill_private.forget_job(OLD.id);
        RETURN NULL;
    END IF;
    relid := mill_private.queue_oid(NEW.queue);
    IF TG_OP = 'INSERT' THEN
        INSERT INTO mill_private.job_state (job, queue, scheduled, next_start, fill)
        VALUES (NEW.id, relid, NEW.scheduled, mill_private.compute_first_start(NEW, moment), NEW.cron IS NOT NULL)
        ON CONFLICT (job) DO UPDATE SET (last_start, last_finish, last_successful_finish, last_run_success, next_start,
            total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes,
            total_duration, total_duration_failures, reason, queue, scheduled, run, fill, stamp)
            = (NULL, NULL, NULL, NULL, EXCLUDED.next_start, 0, 0, 0, 0, 0, 0, '0', '0', NULL, EXCLUDED.queue,
               EXCLUDED.scheduled, NULL, EXCLUDED.fill, job_state.stamp + 1);
        PERFORM mill_private.bump_version(relid);
        RETURN NULL;
    END IF;
    moved := (NEW.schedule_interval, NEW.cron, NEW.timezone, NEW.initial_start, NEW.fixed_schedule)
        IS DISTINCT FROM (OLD.schedule_interval, OLD.cron, OLD.timezone, OLD.initial_start, OLD.fixed_schedule);
    resumed := NEW.scheduled AND NOT OLD.scheduled;
    -- The deltas are added only where numbers are read. `settle_run`, which pauses a job in the middle of an end, has read them.
    IF resumed OR moved THEN
        stat := mill_private.lock_job_state(NEW.id);
    ELSE
        SELECT * INTO stat FROM mill_private.job_state stored WHERE stored.job = NEW.id FOR NO KEY UPDATE;
    END IF;
    IF NEW.owner IS DISTINCT FROM OLD.owner THEN
        UPDATE mill_private.run one_run SET owner = NEW.owner WHERE one_run.job = NEW.id;
    END IF;
    IF stat.queue IS DISTINCT FROM relid THEN
        PERFORM mill_private.bump_version(stat.queue);
        stat.queue := relid;
    END IF;
    IF resumed THEN
        stat.consecutive_failures := 0;
        stat.consecutive_crashes := 0;
        stat.reason := NULL;
        -- Starts that were missed while it was paused are skipped; a job without a fixed schedule is just late.
        moved := moved OR stat.next_start IS NULL OR (NEW.fixed_schedule AND stat.next_start < moment AND stat.last_start IS NOT NULL);
    ELSIF NOT NEW.scheduled AND OLD.scheduled THEN
        stat.reason := NULL;
    END IF;
    stat.scheduled := NEW.scheduled;
    IF moved AND stat.run IS NULL THEN
        stat.fill := NEW.cron IS NOT NULL;
        stat.next_start := CASE WHEN stat.last_start IS NULL THEN mill_private.compute_first_start(NEW, moment)
                                ELSE mill_private.compute_next_start(NEW, stat.last_finish, moment) END;
    END IF;
    UPDATE mill_private.job_state stored SET (queue, scheduled, reason, consecutive_failures, consecutive_crashes, fill, next_start, stamp)
        = (stat.queue, stat.scheduled, stat.reason, stat.consecutive_failures, stat.consecutive_crashes, stat.fill,
           stat.next_start, stat.stamp + 1)
     WHERE stored.job = NEW.id;
    IF NEW.scheduled IS DISTINCT FROM OLD.scheduled THEN
        PERFORM mill_private.hold_job_runs(NEW.id, NOT NEW.scheduled);
    END IF;
    PERFORM mill_private.bump_version(relid);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.follow_job_change() IS
    'pgmill: applies a change of a job to job_state and its runs, and wakes its scheduler';

CREATE TRIGGER job_1_of BEFORE INSERT OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.check_job_writer();
CREATE TRIGGER job_2_check BEFORE INSERT OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.check_job();
CREATE TRIGGER job_3_follow AFTER INSERT OR UPDATE OR DELETE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.follow_job_change();

-- The clock is moved by tests. A scheduler that sleeps must compute its wake-up anew.
CREATE FUNCTION mill_private.follow_clock_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill_private.bump_version(q.relid) FROM mill.queue q;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.follow_clock_change() IS 'pgmill: wakes all schedulers after the clock was moved';
CREATE TRIGGER meta_follow AFTER UPDATE OF clock ON mill.meta FOR EACH STATEMENT EXECUTE FUNCTION mill_private.follow_clock_change();
