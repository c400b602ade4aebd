-- Jobs: what runs again and again. A job is a definition; each run of it is a row in mill_private.run (part `run_table`).
-- Whoever may write mill.job writes it by plain SQL: the triggers check the row, keep its statistics' row beside it, and
-- wake the scheduler of its queue. `job_book` carries the plan: `due` is when the scheduler is to start it; and the numbers,
-- but for what is still in the tally (part `tally`). People see both together, in the view mill.job_stat.
-- parameters: none; locks: none; caller: whoever installs, once per database
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
COMMENT ON TABLE mill.job IS 'pgmill: what runs again and again; an INSERT is enough, and any change takes effect at once';
-- Ids are drawn by the trigger alone, so that none is chosen and none is used twice.
CREATE SEQUENCE mill.job_id_seq AS int OWNED BY mill.job.id;
COMMENT ON COLUMN mill.job.id IS 'drawn by the catalog, and never used again';
COMMENT ON COLUMN mill.job.name IS 'unique; edges name jobs by it';
COMMENT ON COLUMN mill.job.flow IS 'jobs that are drawn, paused and limited together';
COMMENT ON COLUMN mill.job.input IS 'SQL, run as the user of the queue''s scheduler; NULL = a node that does nothing';
COMMENT ON COLUMN mill.job.queue IS 'the task table that its runs are rows of, as schema.table';
COMMENT ON COLUMN mill.job.schedule_interval IS 'how often it runs; or cron, or neither: then edges or mill.run_job start it';
COMMENT ON COLUMN mill.job.cron IS 'five fields, or six with seconds first, on the wall clock of timezone';
COMMENT ON COLUMN mill.job.timezone IS 'whose wall clock counts; NULL = UTC';
COMMENT ON COLUMN mill.job.initial_start IS 'the first time; a fixed schedule counts from it';
COMMENT ON COLUMN mill.job.fixed_schedule IS 'true: on the grid initial_start + k * interval; false: interval after the end of the last run';
COMMENT ON COLUMN mill.job.max_runtime IS 'a run that takes longer is ended, and has failed; 0 = unlimited';
COMMENT ON COLUMN mill.job.max_retries IS '-1 = for ever, n = it ends after n failures in a row; NULL = -1 with a schedule of its own, else 0';
COMMENT ON COLUMN mill.job.retry_period IS 'the wait after the first failure; it doubles with each';
COMMENT ON COLUMN mill.job.crash_wait IS 'the least wait after a crash, so that somebody can pause the job';
COMMENT ON COLUMN mill.job.scheduled IS 'false = paused; set to true it starts from zero';
COMMENT ON COLUMN mill.job.config IS 'what the routine that add_job was given is called with';
COMMENT ON COLUMN mill.job.check_config IS 'a function of the config that may refuse it by an error';
COMMENT ON COLUMN mill.job.owner IS 'the role whose members may alter, run and delete it; it runs as the user of its queue';
COMMENT ON COLUMN mill.job.threshold IS 'how many tokens start it; NULL = one from every edge';
COMMENT ON COLUMN mill.job.routine IS 'what add_job was given: input is made from it, id and config';

CREATE TABLE mill.job_book (
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
CREATE INDEX ON mill.job_book (queue, due) WHERE due IS NOT NULL;
CREATE INDEX ON mill.job_book (queue) WHERE fill;
COMMENT ON TABLE mill.job_book IS 'pgmill: the plan of every job, and its numbers but for what is in mill.job_tally; mill.job_stat shows both';
COMMENT ON COLUMN mill.job_book.run IS 'the unfinished activation that its schedule has made: the id of its first run';
COMMENT ON COLUMN mill.job_book.fill IS 'next_start waits for the scheduler, because SQL cannot compute it (cron)';
COMMENT ON COLUMN mill.job_book.stamp IS 'rises with every change of the plan: an answer to an older one is too late';

-- Bumped by every change of a job, read by its scheduler at every look. Several rows per queue, so that writers do not
-- wait for each other's commits; the sum is the version.
CREATE TABLE mill.job_version (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue oid NOT NULL, n bigint NOT NULL DEFAULT 1);
CREATE INDEX ON mill.job_version (queue);
COMMENT ON TABLE mill.job_version IS 'pgmill: the sum over a queue rises with every change of its jobs';

CREATE FUNCTION mill.ring(relid oid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared({bell_key}, relid::int) THEN
        PERFORM pg_notify(concat('mill_', relid), '');
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.ring(oid) IS 'pgmill: wakes the scheduler of a queue up, if it sleeps';

CREATE FUNCTION mill.touch(relid oid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill.job_version v SET n = v.n + 1
     WHERE v.id = (SELECT f.id FROM mill.job_version f WHERE f.queue = touch.relid LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO mill.job_version (queue) VALUES (relid);
    END IF;
    PERFORM mill.ring(relid);
END
$function$;
COMMENT ON FUNCTION mill.touch(oid) IS 'pgmill: a job of this queue has changed; its scheduler looks';

CREATE FUNCTION mill.is_member(role name) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN COALESCE((SELECT pg_has_role(current_user, r.oid, 'MEMBER') FROM pg_roles r WHERE r.rolname = is_member.role), false)
        OR (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user);
COMMENT ON FUNCTION mill.is_member(name) IS 'pgmill: the reader belongs to this role, if there is one of that name';

CREATE FUNCTION mill_private.is_member_of(member name, role name) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN COALESCE((SELECT pg_has_role(m.oid, r.oid, 'MEMBER') OR m.rolsuper FROM pg_roles m, pg_roles r
                      WHERE m.rolname = is_member_of.member AND r.rolname = is_member_of.role),
                    (SELECT m.rolsuper FROM pg_roles m WHERE m.rolname = is_member_of.member), false);
COMMENT ON FUNCTION mill_private.is_member_of(name, name) IS 'pgmill: a role belongs to another one, which may be gone';

ALTER TABLE mill.job ENABLE ROW LEVEL SECURITY;
-- The roles of the reader are looked up once in a query.
CREATE POLICY by_owner ON mill.job USING (owner = ANY (ARRAY(SELECT r.rolname FROM pg_roles r WHERE pg_has_role(r.oid, 'MEMBER'))))
    WITH CHECK (mill.is_member(owner));

-- May this role put rows into that table? Asked when the job is written and at every activation.
CREATE FUNCTION mill.refusal(owner name, relid oid) RETURNS text
    LANGUAGE plpgsql STABLE AS $function$
DECLARE
    role oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = owner);
    here record;
BEGIN
    SELECT q.schema, q.name INTO here FROM mill.queue q JOIN pg_class c ON c.oid = q.relid WHERE q.relid = refusal.relid;
    IF NOT FOUND THEN
        RETURN 'its queue is no longer there';
    ELSIF role IS NULL THEN
        RETURN format('its owner "%s" is no longer there', owner);
    ELSIF NOT has_table_privilege(role, relid, 'INSERT') THEN
        RETURN format('its owner "%s" may not INSERT into %I.%I, where it is to run', owner, here.schema, here.name);
    END IF;
    RETURN NULL;
END
$function$;

CREATE FUNCTION mill.has_schedule(job mill.job) RETURNS bool
    LANGUAGE sql IMMUTABLE
    RETURN (job).schedule_interval IS NOT NULL OR (job).cron IS NOT NULL;

-- The next regular start after a run that ended, or a schedule that was changed, at `after`. NULL: there is none, or
-- only the scheduler can tell (cron). `finished` is when the last run ended.
CREATE FUNCTION mill.next_regular(job mill.job, finished timestamptz, after timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF job.schedule_interval IS NULL THEN
        RETURN NULL;
    ELSIF job.fixed_schedule THEN
        RETURN mill.next_slot(job.initial_start, job.schedule_interval, job.timezone, after);
    ELSIF finished IS NULL THEN
        RETURN COALESCE(job.initial_start, after);
    END IF;
    -- On the calendar of its zone, whatever the zone of this session is.
    RETURN mill.zone_plus(finished, job.schedule_interval, job.timezone);
END
$function$;

-- As the writer: which owner he may name, and what check_config says to the config. check_config is a function of the job's
-- owner, so it runs only with the rights of the owner: never for a superuser or for another member of the owner, who would run
-- a stranger's code. No fixed search_path, because that function is the owner's; every name is qualified instead.
CREATE FUNCTION mill.job_of() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF (TG_OP = 'INSERT' OR NEW.owner IS DISTINCT FROM OLD.owner) AND NOT mill.is_member(NEW.owner) THEN
        RAISE EXCEPTION 'the owner of a job can only be a role that you are a member of, not "%"', NEW.owner
            USING ERRCODE = '42501';
    END IF;
    IF NEW.check_config IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.config IS DISTINCT FROM OLD.config
            OR NEW.check_config IS DISTINCT FROM OLD.check_config) THEN
        IF pg_catalog.to_regproc(NEW.check_config) IS NULL THEN
            RAISE EXCEPTION 'check_config: there is no single function "%"; give its name with its schema', NEW.check_config
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

CREATE FUNCTION mill.job_check() RETURNS trigger
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
        wrong := 'initial_start must be a time';
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
        wrong := format('there is no table "%s"; name its queue as schema.table', NEW.queue);
    WHEN NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = place) THEN
        wrong := format('%s is no task table that a scheduler of pgmill has served', NEW.queue);
    ELSE
    END CASE;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'job "%": %', NEW.name, wrong USING ERRCODE = '22023';
    END IF;
    IF TG_OP = 'INSERT' OR (NEW.queue, NEW.owner) IS DISTINCT FROM (OLD.queue, OLD.owner) THEN
        wrong := mill.refusal(NEW.owner, place);
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

-- After the row: its statistics, its plan, and the scheduler.
CREATE FUNCTION mill.job_follow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    relid oid;
    moment timestamptz := mill.now();
    stat mill.job_book;
    resumed bool;
    moved bool;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM mill.touch(s.queue) FROM mill.job_book s WHERE s.job = OLD.id;
        -- A running one is its scheduler's to end; nobody waits for it here.
        PERFORM mill.drop_waiting(OLD.id);
        PERFORM mill.forget(OLD.id);
        RETURN NULL;
    END IF;
    relid := mill_private.queue_oid(NEW.queue);
    IF TG_OP = 'INSERT' THEN
        INSERT INTO mill.job_book (job, queue, scheduled, next_start, fill)
        VALUES (NEW.id, relid, NEW.scheduled, mill.first_start(NEW, moment), NEW.cron IS NOT NULL)
        ON CONFLICT (job) DO UPDATE SET (last_start, last_finish, last_successful_finish, last_run_success, next_start,
            total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes,
            total_duration, total_duration_failures, reason, queue, scheduled, run, fill, stamp)
            = (NULL, NULL, NULL, NULL, EXCLUDED.next_start, 0, 0, 0, 0, 0, 0, '0', '0', NULL, EXCLUDED.queue,
               EXCLUDED.scheduled, NULL, EXCLUDED.fill, job_book.stamp + 1);
        PERFORM mill.touch(relid);
        RETURN NULL;
    END IF;
    moved := (NEW.schedule_interval, NEW.cron, NEW.timezone, NEW.initial_start, NEW.fixed_schedule)
        IS DISTINCT FROM (OLD.schedule_interval, OLD.cron, OLD.timezone, OLD.initial_start, OLD.fixed_schedule);
    resumed := NEW.scheduled AND NOT OLD.scheduled;
    -- Nothing is entered where no number is looked at: whoever pauses a job in the middle of an end has its numbers in hand.
    IF resumed OR moved THEN
        stat := mill.open_book(NEW.id);
    ELSE
        SELECT * INTO stat FROM mill.job_book s WHERE s.job = NEW.id FOR NO KEY UPDATE;
    END IF;
    IF NEW.owner IS DISTINCT FROM OLD.owner THEN
        UPDATE mill_private.run r SET owner = NEW.owner WHERE r.job = NEW.id;
    END IF;
    IF stat.queue IS DISTINCT FROM relid THEN
        PERFORM mill.touch(stat.queue);
        stat.queue := relid;
    END IF;
    IF resumed THEN
        stat.consecutive_failures := 0;
        stat.consecutive_crashes := 0;
        stat.reason := NULL;
        -- What was missed while it was paused is skipped; a drifting job is simply late.
        moved := moved OR stat.next_start IS NULL OR (NEW.fixed_schedule AND stat.next_start < moment AND stat.last_start IS NOT NULL);
    ELSIF NOT NEW.scheduled AND OLD.scheduled THEN
        stat.reason := NULL;
    END IF;
    stat.scheduled := NEW.scheduled;
    IF moved AND stat.run IS NULL THEN
        stat.fill := NEW.cron IS NOT NULL;
        stat.next_start := CASE WHEN stat.last_start IS NULL THEN mill.first_start(NEW, moment)
                                ELSE mill.next_regular(NEW, stat.last_finish, moment) END;
    END IF;
    UPDATE mill.job_book s SET (queue, scheduled, reason, consecutive_failures, consecutive_crashes, fill, next_start, stamp)
        = (stat.queue, stat.scheduled, stat.reason, stat.consecutive_failures, stat.consecutive_crashes, stat.fill,
           stat.next_start, stat.stamp + 1)
     WHERE s.job = NEW.id;
    IF NEW.scheduled IS DISTINCT FROM OLD.scheduled THEN
        PERFORM mill.hold_waiting(NEW.id, NOT NEW.scheduled);
    END IF;
    PERFORM mill.touch(relid);
    RETURN NULL;
END
$function$;

-- The first start of a job that has never run: initial_start, else now. Cron is the scheduler's.
CREATE FUNCTION mill.first_start(job mill.job, moment timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN (job).schedule_interval IS NOT NULL THEN COALESCE((job).initial_start, moment) END;

CREATE TRIGGER job_1_of BEFORE INSERT OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill.job_of();
CREATE TRIGGER job_2_check BEFORE INSERT OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill.job_check();
CREATE TRIGGER job_3_follow AFTER INSERT OR UPDATE OR DELETE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill.job_follow();

-- The clock of tests: whoever sleeps must know.
CREATE FUNCTION mill.meta_follow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill.touch(q.relid) FROM mill.queue q;
    RETURN NULL;
END
$function$;
CREATE TRIGGER meta_follow AFTER UPDATE OF clock ON mill.meta FOR EACH STATEMENT EXECUTE FUNCTION mill.meta_follow();
