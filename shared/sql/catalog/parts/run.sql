-- Runs: what happens to a job's row in a task table, whoever changes it, worker, scheduler or a person.
-- `activate` puts an activation's row into the job's queue; the row triggers mark its start (PLAN -> TAKE or WORK: a crash,
-- until it has ended; see tally.sql for those that its row alone tells of), its end, and what follows: a successor row (a
-- retry, or after a crash or an interruption), or the end of the activation, for which `activation_ended` is called exactly
-- once. Plain tasks (job IS NULL) pay nothing.
-- What is called again and again below these triggers (activation_ended, deliver, consume, put and the like) sets no search_path
-- of its own, since that would cost as much as a short statement each time: it is called by functions that have set it, and by
-- nobody else, because only the catalog's owner may.
-- parameters: none; locks: none; caller: whoever installs, once per database

-- A first row, or the next one of the same activation (run_of, attempt and failures of the row before). NULL: the job may
-- not run there any more, and has been paused with the reason.
CREATE FUNCTION mill.activate(job int, at timestamptz, due timestamptz, run_of bigint DEFAULT NULL, failures int DEFAULT 0,
                              attempt int DEFAULT 0, epoch int DEFAULT NULL, parent bigint DEFAULT NULL,
                              held bool DEFAULT false, priority int DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql AS $function$
DECLARE
    place mill.queue;
    wrong text;
BEGIN
    SELECT q.* INTO place FROM mill.job_book s JOIN mill.queue q ON q.relid = s.queue WHERE s.job = activate.job;
    wrong := mill.refusal((SELECT j.owner FROM mill.job j WHERE j.id = activate.job), place.relid);
    IF wrong IS NOT NULL THEN
        PERFORM mill.pause_job(job, wrong);
        RETURN NULL;
    END IF;
    RETURN (SELECT p.task FROM mill.put(place, due, ARRAY[activate.job], ARRAY[activate.at], ARRAY[activate.epoch], ARRAY[activate.held],
                                        ARRAY[false], ARRAY[activate.priority], activate.run_of, activate.failures, activate.attempt,
                                        activate.parent) p);
END
$function$;
COMMENT ON FUNCTION mill.activate(int, timestamptz, timestamptz, bigint, int, int, int, bigint, bool, int) IS
    'pgmill: puts a run of a job into its queue; its id';

-- What else, beside its time, keeps a waiting row of the job back: here, that the job is paused.
CREATE FUNCTION mill.may_start(job mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN job.scheduled;
END
$function$;

-- The same for a row: one that somebody asked for by hand runs also while the schedule is paused.
CREATE FUNCTION mill.may_release(job int, run_of bigint) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = may_release.job);
BEGIN
    RETURN j.id IS NULL OR mill.may_start(j) OR (mill.has_schedule(j)
       AND may_release.run_of IS DISTINCT FROM (SELECT s.run FROM mill.job_book s WHERE s.job = may_release.job));
END
$function$;

-- The activation is over, for good. Called exactly once for each, in the transaction that ended it. How many others it came to;
-- NULL: there is no such job any more. outcome: succeeded, failed.
CREATE FUNCTION mill.activation_ended(queue oid, task bigint, job int, at timestamptz, epoch int, run_of bigint, outcome text)
    RETURNS int
    LANGUAGE plpgsql AS $function$
BEGIN
    RETURN 0;
END
$function$;
COMMENT ON FUNCTION mill.activation_ended(oid, bigint, int, timestamptz, int, bigint, text) IS
    'pgmill: the end of an activation, called once for each';

CREATE FUNCTION mill.pause_job(job int, why text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill.job j SET scheduled = false WHERE j.id = pause_job.job AND j.scheduled;
    UPDATE mill.job_book s SET reason = why WHERE s.job = pause_job.job;
END
$function$;
COMMENT ON FUNCTION mill.pause_job(int, text) IS 'pgmill: a job that cannot go on pauses itself, with the reason';

-- A paused job's waiting rows stand aside; when it goes on, those whose time has come are released, and their tries
-- counted from zero.
CREATE FUNCTION mill.hold_waiting(job int, hold bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = hold_waiting.job);
    place record;
BEGIN
    FOR place IN SELECT q.schema, q.name FROM mill.queue q JOIN pg_class c ON c.oid = q.relid LOOP
        IF hold THEN
            EXECUTE format('UPDATE %1$I.%2$I SET held = true WHERE id IN (SELECT id FROM %1$I.%2$I
                             WHERE job = $1 AND state = ''PLAN'' AND NOT held FOR UPDATE SKIP LOCKED)', place.schema, place.name)
              USING hold_waiting.job;
        ELSIF mill.may_start(j) THEN
            EXECUTE format('UPDATE %1$I.%2$I SET failures = 0, held = plan > $2,
                                   plan = CASE WHEN plan <= $2 THEN LEAST(plan, statement_timestamp()) ELSE plan END
                             WHERE id IN (SELECT id FROM %1$I.%2$I WHERE job = $1 AND state = ''PLAN'' AND held
                                             FOR UPDATE SKIP LOCKED)', place.schema, place.name)
              USING hold_waiting.job, mill.now();
        END IF;
    END LOOP;
END
$function$;

-- A deleted job's waiting rows are closed; those that somebody has locked are being taken, and end with their run.
CREATE FUNCTION mill.drop_waiting(job int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place record;
BEGIN
    FOR place IN SELECT q.schema, q.name FROM mill.queue q JOIN pg_class c ON c.oid = q.relid LOOP
        EXECUTE format('UPDATE %1$I.%2$I SET state = ''FAIL'', stop = statement_timestamp(), reason = ''cancelled'', error = $2
                         WHERE id IN (SELECT id FROM %1$I.%2$I WHERE job = $1 AND state = ''PLAN'' FOR UPDATE SKIP LOCKED)',
                       place.schema, place.name)
          USING drop_waiting.job, {cancelled_text};
    END LOOP;
END
$function$;

-- The wait after n failures (or crashes) in a row: doubled each time, at most 5 intervals, an eighth more or less.
CREATE FUNCTION mill.back_off(job mill.job, n int) RETURNS interval
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN make_interval(secs => (1 + (random() - 0.5) / 4) * LEAST(
        extract(epoch FROM (job).retry_period)::float8 * 2 ^ LEAST(GREATEST(n - 1, 0), 20),
        5 * extract(epoch FROM (job).schedule_interval)::float8, 3e9));
END
$function$;

-- Only the start of its schedule's own run changes its plan, and needs its book.
CREATE FUNCTION mill.mark_start(job int, run_of bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO mill.job_tally (job, started, moment)
    SELECT s.job, true, mill.now() FROM mill.job_book s WHERE s.job = mark_start.job AND s.run IS DISTINCT FROM mark_start.run_of;
    IF FOUND THEN
        RETURN;
    END IF;
    PERFORM mill.open_book(job);
    UPDATE mill.job_book s SET last_start = GREATEST(s.last_start, mill.now()), total_runs = s.total_runs + 1, total_crashes = s.total_crashes + 1,
           consecutive_crashes = s.consecutive_crashes + 1, running = s.running + 1,
           next_start = CASE WHEN s.run = mark_start.run_of THEN NULL ELSE s.next_start END
     WHERE s.job = mark_start.job;
END
$function$;

-- It was taken and given back without having started.
CREATE FUNCTION mill.unmark_start(job int, run_of bigint, plan timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill.open_book(job);
    UPDATE mill.job_book s SET total_runs = s.total_runs - 1, total_crashes = s.total_crashes - 1,
           consecutive_crashes = GREATEST(s.consecutive_crashes - 1, 0), running = GREATEST(s.running - 1, 0),
           next_start = CASE WHEN s.run = unmark_start.run_of THEN COALESCE(s.next_start, unmark_start.plan) ELSE s.next_start END
     WHERE s.job = unmark_start.job;
END
$function$;

-- A row of a job has come to its end. `marked`: its start was counted. `by_user`: a person stopped or deleted it.
CREATE FUNCTION mill.mark_end(queue oid, task bigint, job int, at timestamptz, epoch int, run_of bigint, failures int,
                              attempt int, plan timestamptz, lasted interval, success bool, reason text, marked bool,
                              by_user bool, priority int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    moment timestamptz := mill.now();
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = mark_end.job);
    s mill.job_book;
    own bool;
    crashed bool := NOT success AND marked AND reason IS NOT DISTINCT FROM 'crashed';
    interrupted bool := NOT success AND marked AND reason IS NOT DISTINCT FROM 'interrupted';
    tries int;
    allowed int;
    again timestamptz;
    slot timestamptz;
    successor bigint;
    over bool := true;
BEGIN
    IF j.id IS NULL THEN
        -- Deleted meanwhile, and what was tallied since is left to the run's end.
        PERFORM mill.forget(job);
        RETURN;
    END IF;
    s := mill.open_book(job);
    IF s.job IS NULL THEN
        RETURN;
    END IF;
    own := s.run IS NOT NULL AND s.run = mark_end.run_of;
    IF marked AND mark_end.epoch IS NOT NULL THEN
        -- Until now only its row has told of its start.
        s.last_start := GREATEST(s.last_start, moment - COALESCE(lasted, interval '0'));
        s.total_runs := s.total_runs + 1;
        s.total_crashes := s.total_crashes + 1;
        s.consecutive_crashes := s.consecutive_crashes + 1;
        s.running := s.running + 1;
    END IF;
    IF marked THEN
        s.running := GREATEST(s.running - 1, 0);
    ELSIF own THEN
        s.next_start := NULL;
    END IF;
    IF interrupted THEN
        -- It counts nowhere, and goes on as soon as somebody is there.
        s.total_runs := s.total_runs - 1;
        s.total_crashes := s.total_crashes - 1;
        s.consecutive_crashes := GREATEST(s.consecutive_crashes - 1, 0);
        again := plan;
        over := false;
    ELSIF crashed THEN
        s.last_finish := GREATEST(s.last_finish, moment);
        s.last_run_success := false;
        again := GREATEST(moment + j.crash_wait, moment + mill.back_off(j, s.consecutive_crashes));
        over := false;
    ELSE
        IF marked THEN
            s.total_crashes := s.total_crashes - 1;
            s.consecutive_crashes := 0;
        ELSIF success AND reason IS NULL THEN
            s.total_runs := s.total_runs + 1;
            s.last_start := GREATEST(s.last_start, moment);
        END IF;
        IF success AND reason IS NULL THEN
            s.total_successes := s.total_successes + 1;
            s.consecutive_failures := 0;
            s.last_successful_finish := GREATEST(s.last_successful_finish, moment);
            s.total_duration := s.total_duration + COALESCE(lasted, interval '0');
        ELSIF marked THEN
            s.total_failures := s.total_failures + 1;
            s.consecutive_failures := s.consecutive_failures + 1;
            s.total_duration_failures := s.total_duration_failures + COALESCE(lasted, interval '0');
        END IF;
        IF marked OR (success AND reason IS NULL) THEN
            s.last_finish := GREATEST(s.last_finish, moment);
            s.last_run_success := success;
        END IF;
        tries := CASE WHEN mill.has_schedule(j) THEN s.consecutive_failures ELSE mark_end.failures + 1 END;
        allowed := COALESCE(j.max_retries, CASE WHEN mill.has_schedule(j) THEN -1 ELSE 0 END);
        -- Who ran a scheduled job by hand sees the failure himself; the schedule goes on as it would have.
        IF NOT success AND marked AND NOT by_user AND (own OR NOT mill.has_schedule(j))
                AND (allowed < 0 OR tries < GREATEST(allowed, 1)) THEN
            again := moment + mill.back_off(j, tries);
            IF j.fixed_schedule AND j.schedule_interval IS NOT NULL THEN
                slot := mill.next_regular(j, moment, moment);
                again := LEAST(again, slot);
            END IF;
            IF own THEN
                again := COALESCE(s.next_start, again);
                s.fill := j.cron IS NOT NULL AND s.next_start IS NULL;
            END IF;
            over := false;
        END IF;
    END IF;
    IF mill.overtaken(job, at, epoch) AND epoch IS DISTINCT FROM -1 THEN
        -- Somebody has begun this time anew: what is left of the old one is not tried again.
        over := true;
    END IF;
    IF NOT over THEN
        BEGIN
            successor := mill.activate(job, at, again, priority => mark_end.priority, run_of => mark_end.run_of,
                                       failures => mark_end.failures + CASE WHEN crashed OR interrupted THEN 0 ELSE 1 END,
                                       attempt => mark_end.attempt, epoch => mark_end.epoch, parent => task,
                                       held => NOT mill.may_start(j) AND (own OR NOT mill.has_schedule(j)));
        EXCEPTION WHEN OTHERS THEN
            PERFORM mill.pause_job(job, format('its next try cannot be made: %s', SQLERRM));
        END;
        over := successor IS NULL;
        IF again > moment THEN
            -- Its time may have come before this is committed.
            PERFORM mill.touch(s.queue);
        END IF;
        SELECT f.scheduled, f.reason INTO s.scheduled, s.reason FROM mill.job_book f WHERE f.job = mark_end.job;
    END IF;
    IF own THEN
        s.stamp := s.stamp + 1;
        IF NOT over THEN
            s.next_start := again;
        ELSE
            s.run := NULL;
            -- What the job itself has asked for wins.
            s.fill := j.cron IS NOT NULL AND s.next_start IS NULL;
            s.next_start := COALESCE(s.next_start, mill.next_regular(j, moment, moment));
        END IF;
    END IF;
    UPDATE mill.job_book f SET (last_start, last_finish, last_successful_finish, last_run_success, next_start, total_runs,
            total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes, total_duration,
            total_duration_failures, run, running, fill, stamp)
        = (s.last_start, s.last_finish, s.last_successful_finish, s.last_run_success, s.next_start, s.total_runs,
           s.total_successes, s.total_failures, s.total_crashes, s.consecutive_failures, s.consecutive_crashes,
           s.total_duration, s.total_duration_failures, s.run, s.running, s.fill, s.stamp)
     WHERE f.job = mark_end.job;
    IF over THEN
        IF NOT success AND marked AND mill.has_schedule(j) AND j.scheduled AND allowed >= 0
                AND tries >= GREATEST(allowed, 1) THEN
            PERFORM mill.pause_job(job, format('it has failed %s times in a row, and max_retries is %s', tries, allowed));
        END IF;
        PERFORM mill.activation_ended(queue, task, job, at, epoch, run_of, CASE WHEN success THEN 'succeeded' ELSE 'failed' END);
    ELSE
        PERFORM mill.run_ended(j);
    END IF;
END
$function$;

-- Not definer: only members of the catalog's owner may say whose run a row is.
CREATE FUNCTION mill.task_guard() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT pg_has_role(current_user, (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'mill'), 'MEMBER') THEN
        RAISE EXCEPTION 'job, at, epoch, run_of and failures are pgmill''s own; insert a task without them'
            USING ERRCODE = '42501', HINT = 'SELECT mill.run_job(id) runs a job.';
    END IF;
    IF TG_OP = 'INSERT' AND NEW.run_of IS NULL THEN
        NEW.run_of := NEW.id;
    END IF;
    RETURN NEW;
END
$function$;

-- Before a change of state: what may not be, what a person's STOP means, and that nobody waits for a job that somebody
-- else is just changing: its schedule's own run, whose start changes the plan, is then taken at a later look. All others
-- start without its book, and those that edges or a person have begun, which have an epoch, start and end without being
-- asked at all if they succeed. The triggers' conditions are short, because the server reads them anew for every statement, also
-- for plain tasks.
CREATE FUNCTION mill.task_before() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    root oid;
    was text;
    becomes text;
BEGIN
    IF OLD.state IS NOT DISTINCT FROM NEW.state OR NEW.state IN ('DONE', 'FAIL', 'GONE') THEN
        RETURN NEW;
    ELSIF OLD.state = 'PLAN' AND NEW.state IN ('TAKE', 'WORK') THEN
        IF EXISTS (SELECT FROM mill.job_book s WHERE s.job = OLD.job::int AND s.run IS DISTINCT FROM OLD.run_of::bigint) THEN
            RETURN NEW;
        END IF;
        PERFORM FROM mill.job_book s WHERE s.job = OLD.job::int FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN NEW;
        END IF;
    END IF;
    root := COALESCE(pg_partition_root(TG_RELID), TG_RELID);
    was := OLD.state::text;
    becomes := NEW.state::text;
    IF NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = root) THEN
        RETURN NEW;
    ELSIF was IN ('DONE', 'FAIL', 'GONE') AND becomes NOT IN ('DONE', 'FAIL', 'GONE') THEN
        RAISE EXCEPTION 'run % of job % has ended, and stays so', OLD.id, OLD.job
            USING ERRCODE = '55000', HINT = format('SELECT mill.run_job(%s) runs it again.', OLD.job);
    ELSIF was = 'WORK' AND becomes IN ('PLAN', 'TAKE') THEN
        RAISE EXCEPTION 'run % of job % has begun, and cannot be planned again', OLD.id, OLD.job
            USING ERRCODE = '55000', HINT = 'Set its state to STOP to cancel it.';
    ELSIF was IN ('PLAN', 'TAKE', 'WORK') AND becomes = 'STOP' THEN
        NEW.state := 'FAIL';
        NEW.reason := 'cancelled';
        NEW.error := {cancelled_text};
        NEW.stop := statement_timestamp();
        PERFORM mill.ring(root);
    ELSIF was = 'PLAN' AND becomes IN ('TAKE', 'WORK') AND EXISTS (SELECT FROM mill.job_book s WHERE s.job = OLD.job) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$function$;

-- After it: the books. What happens most often, the success of a run that is not its schedule's own, is one row in the
-- tally, where the job still belongs to this table: nothing to plan, nothing to try again, and nothing to wait for. The start
-- of one that has an epoch is told by its row alone. Every statement costs plpgsql as much as the write itself, so nothing is
-- asked before that the write can find out.
CREATE FUNCTION mill.task_after() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    root oid := COALESCE(pg_partition_root(TG_RELID), TG_RELID);
    was text;
    becomes text;
    followed int;
BEGIN
    IF OLD.state IS NOT DISTINCT FROM NEW.state OR (NEW.epoch IS NOT NULL AND NEW.state IN ('TAKE', 'WORK')) THEN
        RETURN NULL;
    ELSIF current_setting('mill.settling', true) = 'on' THEN
        IF EXISTS (SELECT FROM mill.settling s WHERE s.xid = pg_current_xact_id()) THEN
            RETURN NULL;
        END IF;
    END IF;
    IF OLD.state = 'PLAN' AND NEW.state IN ('TAKE', 'WORK') THEN
        INSERT INTO mill.job_tally (job, started, moment)
        SELECT s.job, true, clock_timestamp() + m.clock FROM mill.job_book s, mill.meta m
         WHERE s.job = NEW.job::int AND s.queue = root AND s.run IS DISTINCT FROM NEW.run_of::bigint;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    ELSIF NEW.state = 'DONE' AND OLD.state IN ('TAKE', 'WORK') AND NEW.reason IS NULL THEN
        -- That it is not its schedule's own run stays so: which one is, is said when it is made.
        INSERT INTO mill.job_tally (job, started, moment, lasted, whole)
        SELECT s.job, false, clock_timestamp() + m.clock, NEW.stop - NEW.start, NEW.epoch IS NOT NULL FROM mill.job_book s, mill.meta m
         WHERE s.job = NEW.job::int AND s.queue = root AND s.run IS DISTINCT FROM NEW.run_of::bigint;
        IF FOUND THEN
            followed := mill.activation_ended(root, NEW.id::bigint, NEW.job::int, NEW.at, NEW.epoch::int, NEW.run_of::bigint, 'succeeded');
            IF followed IS NULL THEN
                -- The job was deleted meanwhile.
                PERFORM mill.forget(NEW.job::int);
            END IF;
            RETURN NULL;
        END IF;
    END IF;
    was := OLD.state::text;
    becomes := NEW.state::text;
    IF NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = root) THEN
        RETURN NULL;
    ELSIF was IN ('PLAN', 'STOP') AND becomes IN ('TAKE', 'WORK') THEN
        PERFORM mill.mark_start(NEW.job::int, NEW.run_of::bigint);
    ELSIF was = 'TAKE' AND becomes = 'PLAN' AND NEW.epoch IS NULL THEN
        PERFORM mill.unmark_start(NEW.job::int, NEW.run_of::bigint, NEW.plan);
    ELSIF was NOT IN ('DONE', 'FAIL', 'GONE') AND becomes IN ('DONE', 'FAIL', 'GONE') THEN
        PERFORM mill.mark_end(root, NEW.id::bigint, NEW.job::int, NEW.at, NEW.epoch::int, NEW.run_of::bigint, NEW.failures::int,
                              NEW.attempt::int, NEW.plan, NEW.stop - NEW.start, becomes = 'DONE', NEW.reason,
                              was IN ('TAKE', 'WORK'),
                              COALESCE(NEW.reason = 'marked' OR NEW.reason = 'cancelled' AND NEW.error = {cancelled_text}, false),
                              NEW.priority::int);
    END IF;
    RETURN NULL;
END
$function$;

-- A row that is deleted before its end closes the run as cancelled.
CREATE FUNCTION mill.task_deleted() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    root oid := COALESCE(pg_partition_root(TG_RELID), TG_RELID);
BEGIN
    IF EXISTS (SELECT FROM mill.queue q WHERE q.relid = root) THEN
        PERFORM mill.mark_end(root, OLD.id::bigint, OLD.job::int, OLD.at, OLD.epoch::int, OLD.run_of::bigint, OLD.failures::int,
                              OLD.attempt::int, OLD.plan, clock_timestamp() - OLD.start, false, 'cancelled',
                              OLD.state::text IN ('TAKE', 'WORK'), true, OLD.priority::int);
    END IF;
    RETURN NULL;
END
$function$;

-- Hangs the triggers of jobs onto a task table, which has granted us that.
CREATE FUNCTION mill.s_attach(relid oid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place record;
BEGIN
    SELECT q.schema, q.name INTO place FROM mill.queue q JOIN pg_class c ON c.oid = q.relid
      JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = q.schema AND c.relname = q.name
     WHERE q.relid = s_attach.relid AND pg_has_role(session_user, c.relowner, 'USAGE');
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is no queue of %', s_attach.relid::regclass, session_user USING ERRCODE = '42501';
    END IF;
    IF (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = s_attach.relid AND t.tgname ^@ 'mill_job_') < 5 THEN
        EXECUTE format('CREATE OR REPLACE TRIGGER mill_job_insert BEFORE INSERT ON %1$I.%2$I FOR EACH ROW
                WHEN (NEW.job IS NOT NULL) EXECUTE FUNCTION mill.task_guard();
            CREATE OR REPLACE TRIGGER mill_job_change BEFORE UPDATE OF job, at, epoch, run_of, failures ON %1$I.%2$I FOR EACH ROW
                WHEN (NEW.job IS NOT NULL OR OLD.job IS NOT NULL) EXECUTE FUNCTION mill.task_guard();
            CREATE OR REPLACE TRIGGER mill_job_before BEFORE UPDATE ON %1$I.%2$I FOR EACH ROW
                WHEN (OLD.job IS NOT NULL AND (OLD.epoch IS NULL OR (NEW.state <> ''DONE'' AND (NEW.state <> ''WORK'' OR OLD.state <> ''PLAN''))))
                EXECUTE FUNCTION mill.task_before();
            CREATE OR REPLACE TRIGGER mill_job_after AFTER UPDATE ON %1$I.%2$I FOR EACH ROW
                WHEN (NEW.job IS NOT NULL AND (NEW.epoch IS NULL OR NEW.state <> ''WORK'')) EXECUTE FUNCTION mill.task_after();
            CREATE OR REPLACE TRIGGER mill_job_delete AFTER DELETE ON %1$I.%2$I FOR EACH ROW
                WHEN (OLD.job IS NOT NULL AND OLD.state NOT IN (''DONE'', ''FAIL'', ''GONE'')) EXECUTE FUNCTION mill.task_deleted()',
            place.schema, place.name);
    END IF;
    PERFORM mill.make_put(place.schema, place.name);
    -- A restored table has another OID.
    UPDATE mill.job_book s SET queue = s_attach.relid FROM mill.job j
     WHERE j.id = s.job AND to_regclass(j.queue) = s_attach.relid AND s.queue <> s_attach.relid;
END
$function$;
COMMENT ON FUNCTION mill.s_attach(oid) IS 'pgmill: a task table begins to run jobs';
