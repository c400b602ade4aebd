-- The life of a run, from its order to its end. `activate` orders a run; `begin_run` and `end_run` are called by the row
-- triggers of its queue, through the entry points of that queue; `close_run` ends a run for a person. An end counts, moves
-- tokens and orders what follows: a successor (a retry, or the run after a crash or an interruption), or the end of the
-- activation, for which `activation_ended` is called exactly once, because a run ends once (its outcome is set under the
-- lock of its row).
-- Lock order: task row (in the session that changes it), run, book of the job, flow, token. `begin_run` waits for no lock.
-- Functions called below `end_run` (activation_ended, deliver, consume and the like) set no search_path of their own: it would
-- cost as much as a short statement each time. Only functions that have set it call them, and only the catalog's owner may.
-- parameters: none; locks: none; caller: installation, once per database

-- Orders the first run of an activation, or the next one (activation, attempt and failures of the run before). NULL: the job
-- may not run there any more, and has been paused with the reason. A job without input needs no worker: its queue is 0. So
-- does a run that is skipped.
CREATE FUNCTION mill.activate(job int, at timestamptz, due timestamptz, activation bigint DEFAULT NULL, failures int DEFAULT 0,
                              attempt int DEFAULT 0, epoch int DEFAULT NULL, held bool DEFAULT false, priority int DEFAULT NULL,
                              skips bool DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql AS $function$
DECLARE
    j record;
    wrong text;
    made bigint;
    place oid;
BEGIN
    SELECT k.owner, k.priority, k.input IS NULL AS idle, s.queue INTO j FROM mill.job k JOIN mill.job_book s ON s.job = k.id WHERE k.id = activate.job;
    wrong := mill.refusal(j.owner, j.queue);
    IF wrong IS NOT NULL THEN
        PERFORM mill.pause_job(job, wrong);
        RETURN NULL;
    END IF;
    place := CASE WHEN j.idle OR skips THEN 0 ELSE j.queue END;
    INSERT INTO mill_private.run (job, owner, queue, activation, at, epoch, attempt, failures, priority, due, held, reason)
    VALUES (activate.job, j.owner, place, activate.activation, activate.at, activate.epoch, activate.attempt, activate.failures,
            COALESCE(activate.priority, j.priority), activate.due, activate.held, CASE WHEN skips THEN 'skipped' END)
    RETURNING id INTO made;
    IF NOT held THEN
        PERFORM mill.ring(place);
    END IF;
    RETURN made;
END
$function$;
COMMENT ON FUNCTION mill.activate(int, timestamptz, timestamptz, bigint, int, int, int, bool, int, bool) IS
    'pgmill: orders a run of a job; its id';

-- What, beside its time, keeps a run of the job back: here, that the job is paused.
CREATE FUNCTION mill.may_start(job mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN job.scheduled;
END
$function$;

-- The activation is over, for good. Called exactly once for each, in the transaction that ended it. The number of jobs that it
-- activated; NULL: the job was deleted. outcome: succeeded, failed.
CREATE FUNCTION mill.activation_ended(job int, at timestamptz, epoch int, outcome text) RETURNS int
    LANGUAGE plpgsql AS $function$
BEGIN
    RETURN 0;
END
$function$;
COMMENT ON FUNCTION mill.activation_ended(int, timestamptz, int, text) IS 'pgmill: the end of an activation, called once for each';

CREATE FUNCTION mill.pause_job(job int, why text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill.job j SET scheduled = false WHERE j.id = pause_job.job AND j.scheduled;
    UPDATE mill.job_book s SET reason = why WHERE s.job = pause_job.job;
END
$function$;
COMMENT ON FUNCTION mill.pause_job(int, text) IS 'pgmill: pauses a job that cannot go on, with the reason';

-- Keeps runs back that have not begun, or lets them go. A run whose row is locked is just beginning and is left alone.
-- A row that is in the queue already is recalled.
CREATE FUNCTION mill_private.hold_runs(jobs int[], hold bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    places oid[];
    place oid;
BEGIN
    IF hold THEN
        WITH waiting AS (
            SELECT r.id FROM mill_private.run r
             WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND r.start IS NULL AND NOT r.held FOR NO KEY UPDATE SKIP LOCKED
        ), changed AS (
            UPDATE mill_private.run r SET held = true, recall = CASE WHEN NOT r.ordered THEN 'WITHDRAW' END
              FROM waiting w WHERE r.id = w.id RETURNING r.queue)
        SELECT array_agg(DISTINCT c.queue) INTO places FROM changed c;
    ELSE
        WITH changed AS (
            UPDATE mill_private.run r SET held = false, failures = 0, recall = NULL
             WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND r.start IS NULL AND r.held RETURNING r.queue)
        SELECT array_agg(DISTINCT c.queue) INTO places FROM changed c;
    END IF;
    FOREACH place IN ARRAY COALESCE(places, '{}') LOOP
        PERFORM mill.ring(place);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.hold_runs(int[], bool) IS 'pgmill: holds the runs of jobs that have not begun, or releases them';

-- When a job is paused its runs that have not begun are held; when it goes on they are released, and tries count from zero.
CREATE FUNCTION mill.hold_waiting(job int, hold bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = hold_waiting.job);
BEGIN
    IF hold OR mill.may_start(j) THEN
        PERFORM mill_private.hold_runs(ARRAY[job], hold);
    END IF;
END
$function$;

-- The runs of a deleted job that have not begun are closed. One whose row is locked is just beginning, and ends with its worker.
CREATE FUNCTION mill.drop_waiting(job int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill_private.run r SET outcome = 'cancelled', stop = clock_timestamp(), reason = 'cancelled', error = {cancelled_text},
           held = false, recall = CASE WHEN NOT r.ordered THEN 'WITHDRAW' END
     WHERE r.id IN (SELECT w.id FROM mill_private.run w
                     WHERE w.job = drop_waiting.job AND w.outcome IS NULL AND w.start IS NULL FOR NO KEY UPDATE SKIP LOCKED);
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

-- (The body of this function, of `end_run` and of `put_runs` is also that of the entry point of each queue, with `relid` as a
-- constant, because a call in between costs as much as a statement. So nothing in it is qualified by the function's name.)
-- A worker, or a claim of the scheduler, wants to begin a run. False: not now. The run is held, recalled, ended or not this
-- queue's, or its row (or, of a schedule's own run, the book of its job) is locked by a transaction that changes it.
CREATE FUNCTION mill_private.begin_run(relid oid, run bigint, task bigint, attempt int) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_variable
DECLARE
    r record;
BEGIN
    -- one that edges or a person have made has an epoch, and needs no book
    UPDATE mill_private.run u SET start = clock_timestamp(), task = task, attempt = attempt
     WHERE u.id = (SELECT w.id FROM mill_private.run w
                    WHERE w.id = run AND w.queue = relid AND NOT w.ordered AND NOT w.held AND w.recall IS NULL
                      AND w.start IS NULL AND w.outcome IS NULL AND w.epoch IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT u.id, u.job, COALESCE(u.activation, u.id) AS root INTO r FROM mill_private.run u
     WHERE u.id = run AND u.queue = relid AND NOT u.ordered AND NOT u.held AND u.recall IS NULL
       AND u.start IS NULL AND u.outcome IS NULL AND u.epoch IS NULL
       FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF EXISTS (SELECT FROM mill.job_book s WHERE s.job = r.job AND s.run = r.root) THEN
        -- The start of a schedule's own run changes the plan of its job.
        PERFORM FROM mill.job_book s WHERE s.job = r.job AND s.run = r.root FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        UPDATE mill.job_book s SET next_start = NULL WHERE s.job = r.job;
    END IF;
    UPDATE mill_private.run u SET start = clock_timestamp(), task = task, attempt = attempt WHERE u.id = r.id;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION mill_private.begin_run(oid, bigint, bigint, int) IS 'pgmill: a run begins; false: it may not, or not now';

-- It was claimed and given back without having begun.
CREATE FUNCTION mill_private.unbegin_run(relid oid, run bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r record;
BEGIN
    UPDATE mill_private.run u SET start = NULL, recall = CASE WHEN u.recall IS NOT NULL OR u.held THEN 'WITHDRAW' END
     WHERE u.id = unbegin_run.run AND u.queue = unbegin_run.relid AND u.start IS NOT NULL AND u.outcome IS NULL
    RETURNING u.job, u.due, u.epoch, COALESCE(u.activation, u.id) AS root INTO r;
    IF FOUND AND r.epoch IS NULL THEN
        UPDATE mill.job_book s SET next_start = COALESCE(s.next_start, r.due) WHERE s.job = r.job AND s.run = r.root;
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.unbegin_run(oid, bigint) IS 'pgmill: a run was claimed and given back before it began';

-- The row of a run has come to its end, and with it the run, once: a second, late or forged end finds no run that is open.
-- It began when its input did (`began`), which is after the claim that was noted.
-- The most frequent case, the success of a run that is not its schedule's own, is one row in the tally: nothing to plan,
-- nothing to retry, and nothing to wait for.
CREATE FUNCTION mill_private.end_run(relid oid, run bigint, task bigint, state text, began timestamptz, reason text, error text, output text, code text)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_variable
DECLARE
    r record;
    whole mill_private.run;
BEGIN
    UPDATE mill_private.run u SET outcome = CASE WHEN reason IN ('crashed', 'interrupted', 'cancelled', 'skipped') THEN reason
                                                 WHEN state = 'DONE' THEN 'succeeded' ELSE 'failed' END,
           start = CASE WHEN began BETWEEN u.start AND clock_timestamp() THEN began ELSE u.start END,
           stop = clock_timestamp(), task = COALESCE(u.task, task), reason = reason, error = error,
           output = output, sqlstate = CASE WHEN state <> 'DONE' AND code ~ '^[0-9A-Z]{5}$' THEN code END, recall = NULL
     WHERE u.id = run AND u.queue = relid AND u.outcome IS NULL AND NOT u.ordered
    RETURNING u.id, u.job, u.at, u.epoch, COALESCE(u.activation, u.id) AS root, u.start, u.stop INTO r;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF state = 'DONE' AND reason IS NULL AND r.start IS NOT NULL THEN
        -- That it is not its schedule's own run stays so: which one is, is written when it is made.
        INSERT INTO mill.job_tally (job, run, moment, lasted)
        SELECT s.job, r.id, r.stop + m.clock, r.stop - r.start FROM mill.job_book s, mill.meta m WHERE s.job = r.job AND s.run IS DISTINCT FROM r.root;
        IF FOUND THEN
            IF mill.activation_ended(r.job, r.at, r.epoch, 'succeeded') IS NULL THEN
                -- The job was deleted meanwhile.
                PERFORM mill.forget(r.job);
            END IF;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO whole FROM mill_private.run u WHERE u.id = r.id;
    PERFORM mill.mark_end(whole, state = 'DONE',
                          COALESCE(reason = 'marked' OR reason = 'cancelled' AND error = {cancelled_text}, false));
END
$function$;
COMMENT ON FUNCTION mill_private.end_run(oid, bigint, bigint, text, timestamptz, text, text, text, text) IS 'pgmill: the end of a run, once';

-- What the end of a run means for its job: its numbers, its plan, a successor, the end of the activation. `by_user`: a person
-- stopped, deleted or marked it.
CREATE FUNCTION mill.mark_end(r mill_private.run, success bool, by_user bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    moment timestamptz := mill.now();
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = r.job);
    root bigint := COALESCE(r.activation, r.id);
    began bool := r.start IS NOT NULL;
    lasted interval := r.stop - r.start;
    s mill.job_book;
    own bool;
    crashed bool := NOT success AND began AND r.outcome = 'crashed';
    interrupted bool := NOT success AND began AND r.outcome = 'interrupted';
    tries int;
    allowed int;
    again timestamptz;
    slot timestamptz;
    over bool := true;
BEGIN
    IF j.id IS NULL THEN
        -- Deleted meanwhile: its numbers go with the end of its last run.
        PERFORM mill.forget(r.job);
        RETURN;
    END IF;
    s := mill.open_book(r.job);
    IF s.job IS NULL THEN
        RETURN;
    END IF;
    own := s.run IS NOT NULL AND s.run = root;
    IF began THEN
        s.last_start := GREATEST(s.last_start, moment - lasted);
    ELSIF own THEN
        s.next_start := NULL;
    END IF;
    IF interrupted THEN
        -- It counts nowhere, and goes on as soon as the queue is served.
        again := LEAST(r.due, moment);
        over := false;
    ELSIF crashed THEN
        s.total_runs := s.total_runs + 1;
        s.total_crashes := s.total_crashes + 1;
        s.consecutive_crashes := s.consecutive_crashes + 1;
        s.last_finish := GREATEST(s.last_finish, moment);
        s.last_run_success := false;
        again := GREATEST(moment + j.crash_wait, moment + mill.back_off(j, s.consecutive_crashes));
        over := false;
    ELSE
        IF began THEN
            s.total_runs := s.total_runs + 1;
            s.consecutive_crashes := 0;
        ELSIF success AND r.reason IS NULL THEN
            s.total_runs := s.total_runs + 1;
            s.last_start := GREATEST(s.last_start, moment);
        END IF;
        IF success AND r.reason IS NULL THEN
            s.total_successes := s.total_successes + 1;
            s.consecutive_failures := 0;
            s.last_successful_finish := GREATEST(s.last_successful_finish, moment);
            s.total_duration := s.total_duration + COALESCE(lasted, interval '0');
        ELSIF began THEN
            s.total_failures := s.total_failures + 1;
            s.consecutive_failures := s.consecutive_failures + 1;
            s.total_duration_failures := s.total_duration_failures + COALESCE(lasted, interval '0');
        END IF;
        IF began OR (success AND r.reason IS NULL) THEN
            s.last_finish := GREATEST(s.last_finish, moment);
            s.last_run_success := success;
        END IF;
        tries := CASE WHEN mill.has_schedule(j) THEN s.consecutive_failures ELSE r.failures + 1 END;
        allowed := COALESCE(j.max_retries, CASE WHEN mill.has_schedule(j) THEN -1 ELSE 0 END);
        -- A person who runs a scheduled job by hand sees the failure himself; the schedule goes on as it would have.
        IF NOT success AND began AND NOT by_user AND (own OR NOT mill.has_schedule(j))
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
    IF mill.overtaken(r.job, r.at, r.epoch) AND r.epoch IS DISTINCT FROM -1 THEN
        -- clear or rerun has begun this time anew: the old run is not tried again.
        over := true;
    END IF;
    IF NOT over THEN
        over := mill.activate(r.job, r.at, again, priority => r.priority, activation => root,
                              failures => r.failures + CASE WHEN crashed OR interrupted THEN 0 ELSE 1 END,
                              attempt => r.attempt, epoch => r.epoch,
                              held => NOT mill.may_start(j) AND (own OR NOT mill.has_schedule(j))) IS NULL;
        IF again > moment THEN
            -- Its time may have come before this is committed.
            PERFORM mill.touch(s.queue);
        END IF;
        SELECT f.scheduled, f.reason INTO s.scheduled, s.reason FROM mill.job_book f WHERE f.job = r.job;
    END IF;
    IF own THEN
        s.stamp := s.stamp + 1;
        IF NOT over THEN
            s.next_start := again;
        ELSE
            s.run := NULL;
            -- The time that the job itself has asked for wins.
            s.fill := j.cron IS NOT NULL AND s.next_start IS NULL;
            s.next_start := COALESCE(s.next_start, mill.next_regular(j, moment, moment));
        END IF;
    END IF;
    UPDATE mill.job_book f SET (last_start, last_finish, last_successful_finish, last_run_success, next_start, total_runs,
            total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes, total_duration,
            total_duration_failures, run, fill, stamp)
        = (s.last_start, s.last_finish, s.last_successful_finish, s.last_run_success, s.next_start, s.total_runs,
           s.total_successes, s.total_failures, s.total_crashes, s.consecutive_failures, s.consecutive_crashes,
           s.total_duration, s.total_duration_failures, s.run, s.fill, s.stamp)
     WHERE f.job = r.job;
    IF own AND over THEN
        -- The plan has changed: the scheduler of the queue looks.
        PERFORM mill.ring(s.queue);
    END IF;
    IF over THEN
        IF NOT success AND began AND mill.has_schedule(j) AND j.scheduled AND allowed >= 0
                AND tries >= GREATEST(allowed, 1) THEN
            PERFORM mill.pause_job(r.job, format('it has failed %s times in a row, and max_retries is %s', tries, allowed));
        END IF;
        PERFORM mill.activation_ended(r.job, r.at, r.epoch, CASE WHEN success THEN 'succeeded' ELSE 'failed' END);
    ELSE
        PERFORM mill.run_ended(j);
    END IF;
END
$function$;

-- A person ends a run. One that has not begun is ended here and now, and its row, if it is in the queue, is recalled. One
-- that is under way is ended by the scheduler of its queue: true then.
CREATE FUNCTION mill_private.close_run(run bigint, success bool, reason text, error text) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r mill_private.run;
BEGIN
    UPDATE mill_private.run u SET recall = CASE WHEN success THEN 'DONE' ELSE 'FAIL' END, reason = close_run.reason, error = close_run.error
     WHERE u.id = close_run.run AND u.outcome IS NULL AND u.start IS NOT NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill.ring(r.queue);
        RETURN true;
    END IF;
    UPDATE mill_private.run u SET outcome = CASE WHEN close_run.reason IN ('cancelled', 'skipped') THEN close_run.reason
                                                 WHEN success THEN 'succeeded' ELSE 'failed' END,
           stop = clock_timestamp(), reason = close_run.reason, error = close_run.error, held = false,
           recall = CASE WHEN NOT u.ordered THEN 'WITHDRAW' END
     WHERE u.id = close_run.run AND u.outcome IS NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill.mark_end(r, success, true);
        PERFORM mill.ring(r.queue);
    END IF;
    RETURN false;
END
$function$;
COMMENT ON FUNCTION mill_private.close_run(bigint, bool, text, text) IS
    'pgmill: a person ends a run; true: it is under way, and its scheduler ends it';

-- Runs whose rows are not in the queue any more (TRUNCATE, a restored table), or ended unseen by the triggers: as if each row
-- had been deleted. And runs that are under way here, while their rows wait.
CREATE FUNCTION mill_private.missing_runs(relid oid, missing bigint[], waiting bigint[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    one bigint;
    done int := 0;
BEGIN
    FOR one IN SELECT u.id FROM mill_private.run u WHERE u.id = ANY (missing) AND u.queue = relid AND u.outcome IS NULL AND NOT u.ordered
                ORDER BY u.id FOR NO KEY UPDATE SKIP LOCKED LOOP
        PERFORM mill_private.end_run(relid, one, NULL, 'FAIL', NULL, 'cancelled', {cancelled_text}, NULL, NULL);
        done := done + 1;
    END LOOP;
    FOR one IN SELECT u.id FROM mill_private.run u WHERE u.id = ANY (waiting) AND u.queue = relid AND u.outcome IS NULL AND u.start IS NOT NULL
                ORDER BY u.id FOR NO KEY UPDATE SKIP LOCKED LOOP
        PERFORM mill_private.unbegin_run(relid, one);
        done := done + 1;
    END LOOP;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.missing_runs(oid, bigint[], bigint[]) IS 'pgmill: settles runs whose rows are gone from the queue';
