-- Runs that need no worker: of jobs without input, and skipped ones. The keeper of the graph ends them.
-- parameters: none; locks: none; caller: installation, once per database

-- One statement ends all of them. Then the states of their jobs are updated one by one, and all their tokens are delivered as one level
-- of the graph. Their jobs have no schedule of their own.
CREATE FUNCTION mill_private.end_idle_level(runs bigint[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
    moment timestamptz := mill.now();
    jobs int[];
    ats timestamptz[];
    epochs int[];
    counted bool[];
BEGIN
    WITH ended AS (
        UPDATE mill_private.run u SET outcome = CASE WHEN u.reason = 'skipped' THEN 'skipped' ELSE 'succeeded' END, start = clock_timestamp(),
               stop = clock_timestamp(), error = NULL WHERE u.id = ANY (runs) AND u.outcome IS NULL
        RETURNING u.job, u.at, COALESCE(u.epoch, 0) AS epoch, u.reason IS NULL AS counted)
    SELECT array_agg(e.job), array_agg(e.at), array_agg(e.epoch), array_agg(e.counted) INTO jobs, ats, epochs, counted FROM ended e;
    IF jobs IS NULL THEN
        RETURN;
    END IF;
    PERFORM mill_private.lock_job_state(u.job) FROM (SELECT DISTINCT n AS job FROM unnest(jobs) AS n ORDER BY 1) AS u;
    UPDATE mill_private.job_state s SET total_runs = s.total_runs + u.n, total_successes = s.total_successes + u.n, consecutive_failures = 0,
           last_start = GREATEST(s.last_start, moment), last_finish = GREATEST(s.last_finish, moment),
           last_successful_finish = GREATEST(s.last_successful_finish, moment), last_run_success = true
      FROM (SELECT c.job, count(*) AS n FROM unnest(jobs, counted) AS c (job, counted) WHERE c.counted GROUP BY 1) AS u
     WHERE s.job = u.job;
    PERFORM mill_private.finish_activations(jobs, ats, epochs);
END
$function$;
COMMENT ON FUNCTION mill_private.end_idle_level(bigint[]) IS 'pgmill: ends runs that need no worker, together';

-- If its end is refused, the error is noted and the run is tried again later.
CREATE FUNCTION mill_private.end_idle_run(run bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r mill_private.run;
    pause interval := interval '30 s';
BEGIN
    UPDATE mill_private.run u SET outcome = CASE WHEN u.reason = 'skipped' THEN 'skipped' ELSE 'succeeded' END,
           start = CASE WHEN u.reason IS NULL THEN clock_timestamp() END, stop = clock_timestamp(), error = NULL
     WHERE u.id = end_idle_run.run AND u.outcome IS NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill_private.settle_run(r, true, false);
    END IF;
EXCEPTION WHEN OTHERS THEN
    -- Only keepers of the graph call this, and owners of jobs trust them. A serialization failure or a deadlock (40001, 40P01) is
    -- retried sooner.
    IF SQLSTATE IN ('40001', '40P01') THEN
        pause := interval '200 ms';
    END IF;
    UPDATE mill_private.run u SET error = SQLERRM, due = mill.now() + pause WHERE u.id = end_idle_run.run;
END
$function$;
COMMENT ON FUNCTION mill_private.end_idle_run(bigint) IS 'pgmill: ends one run that needs no worker';

CREATE FUNCTION mill_private.end_idle_runs(most int) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
    moment timestamptz := mill.now();
    level bigint[];
    single bigint[];
BEGIN
    WITH idle AS (
        SELECT n.id, n.job, n.at FROM mill_private.run n
         WHERE n.queue = 0 AND n.ordered AND NOT n.held AND n.outcome IS NULL AND n.due <= moment
         ORDER BY n.due, n.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED)
    SELECT array_agg(i.id ORDER BY i.job, i.at, i.id) FILTER (WHERE NOT d.plans), array_agg(i.id ORDER BY i.job, i.at, i.id) FILTER (WHERE d.plans)
      INTO level, single
      FROM idle i, LATERAL (SELECT COALESCE(bool_or(mill_private.has_schedule(j)), true) AS plans FROM mill.job j WHERE j.id = i.job) AS d;
    IF level IS NOT NULL THEN
        BEGIN
            PERFORM mill_private.end_idle_level(level);
        EXCEPTION WHEN OTHERS THEN
            -- One run whose end is refused must not keep the others from theirs.
            PERFORM mill_private.end_idle_run(u) FROM unnest(level) AS u;
        END;
    END IF;
    PERFORM mill_private.end_idle_run(u) FROM unnest(single) AS u;
    RETURN COALESCE(cardinality(level), 0) + COALESCE(cardinality(single), 0);
END
$function$;
COMMENT ON FUNCTION mill_private.end_idle_runs(int) IS
    'pgmill: ends runs that need no worker and are due, up to a number; returns how many';
