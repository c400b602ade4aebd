-- Begin and end of a run, as the row triggers of its queue report them through the entry points of the queue.
-- A run ends once: the first report sets its outcome under the lock of its row, and later or forged ones find no open run.
-- Lock order: task row (in the session that changes it), run, job state, flow, token. `begin_run` waits for no lock.
-- parameters: none; locks: none; caller: installation, once per database

-- The entry points of a queue copy the bodies of this function, of `end_run` and of `insert_runs`, so nothing in them is qualified by
-- the name of the function.
-- Returns false if the run is held, recalled, ended or of another queue, or if its row (or the state of its job, for a
-- schedule's own run) is locked by a transaction that changes it.
CREATE FUNCTION mill_private.begin_run(relid oid, run bigint, task bigint, attempt int) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_variable
DECLARE
    candidate record;
BEGIN
    -- A run that edges or a person have ordered has an epoch, and does not touch the state of its job.
    UPDATE mill_private.run stored SET start = clock_timestamp(), task = task, attempt = attempt
     WHERE stored.id = (SELECT waiting.id FROM mill_private.run waiting
                    WHERE waiting.id = run AND waiting.queue = relid AND NOT waiting.ordered AND NOT waiting.held AND waiting.recall IS NULL
                      AND waiting.start IS NULL AND waiting.outcome IS NULL AND waiting.epoch IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT stored.id, stored.job, COALESCE(stored.activation, stored.id) AS root INTO candidate FROM mill_private.run stored
     WHERE stored.id = run AND stored.queue = relid AND NOT stored.ordered AND NOT stored.held AND stored.recall IS NULL
       AND stored.start IS NULL AND stored.outcome IS NULL AND stored.epoch IS NULL
       FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF EXISTS (SELECT FROM mill_private.job_state plan WHERE plan.job = candidate.job AND plan.run = candidate.root) THEN
        -- The start of a schedule's own run changes the plan of its job.
        PERFORM FROM mill_private.job_state plan WHERE plan.job = candidate.job AND plan.run = candidate.root FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        UPDATE mill_private.job_state plan SET next_start = NULL WHERE plan.job = candidate.job;
    END IF;
    UPDATE mill_private.run stored SET start = clock_timestamp(), task = task, attempt = attempt WHERE stored.id = candidate.id;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION mill_private.begin_run(oid, bigint, bigint, int) IS 'pgmill: a run begins; false: it may not, or not now';

CREATE FUNCTION mill_private.unbegin_run(relid oid, run bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r record;
BEGIN
    UPDATE mill_private.run u SET start = NULL, recall = CASE WHEN u.recall IS NOT NULL OR u.held THEN 'WITHDRAW' END
     WHERE u.id = unbegin_run.run AND u.queue = unbegin_run.relid AND u.start IS NOT NULL AND u.outcome IS NULL
    RETURNING u.job, u.due, u.epoch, COALESCE(u.activation, u.id) AS root INTO r;
    IF FOUND AND r.epoch IS NULL THEN
        UPDATE mill_private.job_state s SET next_start = COALESCE(s.next_start, r.due) WHERE s.job = r.job AND s.run = r.root;
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.unbegin_run(oid, bigint) IS 'pgmill: a run was claimed and given back before it began';

-- `began` is when its input began, which is later than the claim that `begin_run` noted.
-- The most frequent case is the success of a run that is not its schedule's own. It inserts one row into job_delta: there is nothing
-- to plan or to retry, and nothing to wait for.
CREATE FUNCTION mill_private.end_run(relid oid, run bigint, task bigint, state text, began timestamptz, reason text, error text, output text, code text)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_variable
DECLARE
    ended record;
    whole mill_private.run;
BEGIN
    UPDATE mill_private.run stored SET outcome = CASE WHEN reason IN ('crashed', 'interrupted', 'cancelled', 'skipped') THEN reason
                                                 WHEN state = 'DONE' THEN 'succeeded' ELSE 'failed' END,
           start = CASE WHEN began BETWEEN stored.start AND clock_timestamp() THEN began ELSE stored.start END,
           stop = clock_timestamp(), task = COALESCE(stored.task, task), reason = reason, error = error,
           output = output, sqlstate = CASE WHEN state <> 'DONE' AND code ~ '^[0-9A-Z]{5}$' THEN code END, recall = NULL
     WHERE stored.id = run AND stored.queue = relid AND stored.outcome IS NULL AND NOT stored.ordered
    RETURNING stored.id, stored.job, stored.at, stored.epoch, COALESCE(stored.activation, stored.id) AS root, stored.start, stored.stop INTO ended;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF state = 'DONE' AND reason IS NULL AND ended.start IS NOT NULL THEN
        -- Which run is the schedule's own is written when it is ordered, and does not change.
        INSERT INTO mill_private.job_delta (job, run, moment, lasted)
        SELECT plan.job, ended.id, ended.stop + meta_row.clock, ended.stop - ended.start FROM mill_private.job_state plan, mill.meta meta_row
         WHERE plan.job = ended.job AND plan.run IS DISTINCT FROM ended.root;
        IF FOUND THEN
            IF mill_private.finish_activation(ended.job, ended.at, ended.epoch, 'succeeded') IS NULL THEN
                -- The job was deleted meanwhile.
                PERFORM mill_private.forget_job(ended.job);
            END IF;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO whole FROM mill_private.run stored WHERE stored.id = ended.id;
    PERFORM mill_private.settle_run(whole, state = 'DONE',
                          COALESCE(reason = 'marked' OR reason = 'cancelled' AND error = {cancelled_text}, false));
END
$function$;
COMMENT ON FUNCTION mill_private.end_run(oid, bigint, bigint, text, timestamptz, text, text, text, text) IS 'pgmill: the end of a run, once';

-- `missing`: no row in the queue (TRUNCATE, a restored table), or one that ended unseen by the triggers; they end as cancelled.
-- `waiting`: begun here, while the row waits in PLAN; they go back.
CREATE FUNCTION mill_private.settle_missing_runs(relid oid, missing bigint[], waiting bigint[]) RETURNS int
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
COMMENT ON FUNCTION mill_private.settle_missing_runs(oid, bigint[], bigint[]) IS 'pgmill: settles runs whose rows are gone from the queue';
