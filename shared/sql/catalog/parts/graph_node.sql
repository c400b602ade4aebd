-- A job of the graph is activated: its run, what holds it back, and jobs without input, which need no worker.
-- parameters: none; locks: none; caller: whoever installs, once per database

-- How many runs of a flow may start yet; NULL: no limit. The caller has the flow's lock alone.
CREATE FUNCTION mill.places(flow text) RETURNS int
    LANGUAGE plpgsql STABLE AS $function$
DECLARE
    most int := (SELECT f.parallel FROM mill.flow f WHERE f.name = places.flow);
BEGIN
    IF most IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN GREATEST(most - (SELECT count(*) FROM mill.job j JOIN mill_private.run r ON r.job = j.id
                             WHERE j.flow = places.flow AND r.outcome IS NULL AND r.queue <> 0 AND NOT r.held), 0);
END
$function$;

-- The run of an activation. NULL: the job may not run there any more, and has paused itself.
CREATE FUNCTION mill.activate_node(j mill.job, at timestamptz, epoch int, low bool, loops bool, skips bool DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql AS $function$
DECLARE
    run bigint;
BEGIN
    run := mill.activate(j.id, activate_node.at, mill.now(), epoch => CASE WHEN loops THEN -2 ELSE activate_node.epoch END,
        held => loops OR (NOT skips AND j.input IS NOT NULL AND COALESCE(mill.places(j.flow) = 0, false)), skips => skips,
        priority => CASE WHEN low THEN j.priority - 1000 END);
    IF loops AND run IS NOT NULL THEN
        PERFORM mill_private.close_run(run, false, 'loop',
            format('ERROR:  job "%s" has been activated 100 times for %s; it is stopped here', j.name, activate_node.at));
    END IF;
    RETURN run;
END
$function$;

-- The runs of first activations, in this order, of jobs whose flows do not count; their tokens are spent. The tokens of a job
-- that may not run there any more, which has paused itself, wait again. Returns the number of runs.
CREATE FUNCTION mill.activate_all(jobs int[], ats timestamptz[], lows bool[]) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    q record;
    wrong text;
    refused int[] := '{}';
    moment timestamptz := mill.now();
    queues oid[];
    one oid;
    done int;
BEGIN
    FOR q IN SELECT s.queue, j.owner, array_agg(j.id) AS jobs FROM mill.job j JOIN mill.job_book s ON s.job = j.id
               LEFT JOIN mill.queue k ON k.relid = s.queue LEFT JOIN pg_roles r ON r.rolname = j.owner
              WHERE j.id = ANY (activate_all.jobs) AND has_table_privilege(r.oid, k.relid, 'INSERT') IS NOT TRUE GROUP BY 1, 2 LOOP
        wrong := mill.refusal(q.owner, q.queue);
        IF wrong IS NOT NULL THEN
            PERFORM mill.pause_job(u, wrong) FROM unnest(q.jobs) AS u;
            UPDATE mill.token k SET waiting = k.delivered, consumed = '{}', activations = 0, since = clock_timestamp()
              FROM unnest(activate_all.jobs, ats) AS u (job, at) WHERE k.job = u.job AND k.at = u.at AND u.job = ANY (q.jobs);
            refused := refused || q.jobs;
        END IF;
    END LOOP;
    WITH made AS (
        INSERT INTO mill_private.run (job, owner, queue, at, epoch, priority, due)
        SELECT j.id, j.owner, CASE WHEN j.input IS NULL THEN 0 ELSE s.queue END, u.at, 0, j.priority - CASE WHEN u.low THEN 1000 ELSE 0 END, moment
          FROM unnest(activate_all.jobs, ats, lows) WITH ORDINALITY AS u (job, at, low, place)
          JOIN mill.job j ON j.id = u.job JOIN mill.job_book s ON s.job = j.id
         WHERE NOT u.job = ANY (refused) ORDER BY u.place
        RETURNING queue)
    SELECT count(*), array_agg(DISTINCT m.queue) INTO done, queues FROM made m;
    FOREACH one IN ARRAY COALESCE(queues, '{}') LOOP
        PERFORM mill.ring(one);
    END LOOP;
    RETURN done;
END
$function$;

-- These runs, which need no worker, come to their end: all of them in one statement, the books job by job, and all that they
-- deliver as one level of the graph. Their jobs have no schedule of their own.
CREATE FUNCTION mill.end_idle_level(runs bigint[]) RETURNS void
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
    PERFORM mill.open_book(u.job) FROM (SELECT DISTINCT n AS job FROM unnest(jobs) AS n ORDER BY 1) AS u;
    UPDATE mill.job_book s SET total_runs = s.total_runs + u.n, total_successes = s.total_successes + u.n, consecutive_failures = 0,
           last_start = GREATEST(s.last_start, moment), last_finish = GREATEST(s.last_finish, moment),
           last_successful_finish = GREATEST(s.last_successful_finish, moment), last_run_success = true
      FROM (SELECT c.job, count(*) AS n FROM unnest(jobs, counted) AS c (job, counted) WHERE c.counted GROUP BY 1) AS u
     WHERE s.job = u.job;
    PERFORM mill.all_succeeded(jobs, ats, epochs);
END
$function$;

-- One alone. If it is refused, that is noted, and it is tried again later.
CREATE FUNCTION mill.end_idle_run(run bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r mill_private.run;
    pause interval := interval '30 s';
BEGIN
    UPDATE mill_private.run u SET outcome = CASE WHEN u.reason = 'skipped' THEN 'skipped' ELSE 'succeeded' END,
           start = CASE WHEN u.reason IS NULL THEN clock_timestamp() END, stop = clock_timestamp(), error = NULL
     WHERE u.id = end_idle_run.run AND u.outcome IS NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill.mark_end(r, true, false);
    END IF;
EXCEPTION WHEN OTHERS THEN
    -- Only keepers of the graph call this, and they are trusted by the owners of the jobs.
    IF SQLSTATE IN ('40001', '40P01') THEN
        pause := interval '200 ms';
    END IF;
    UPDATE mill_private.run u SET error = SQLERRM, due = mill.now() + pause WHERE u.id = end_idle_run.run;
END
$function$;

-- Brings runs that need no worker to their end, up to so many. Returns their number.
CREATE FUNCTION mill.end_idle_runs(most int) RETURNS int
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
      FROM idle i, LATERAL (SELECT COALESCE(bool_or(mill.has_schedule(j)), true) AS plans FROM mill.job j WHERE j.id = i.job) AS d;
    IF level IS NOT NULL THEN
        BEGIN
            PERFORM mill.end_idle_level(level);
        EXCEPTION WHEN OTHERS THEN
            -- one that the data refuse keeps no other from its end
            PERFORM mill.end_idle_run(u) FROM unnest(level) AS u;
        END;
    END IF;
    PERFORM mill.end_idle_run(u) FROM unnest(single) AS u;
    RETURN COALESCE(cardinality(level), 0) + COALESCE(cardinality(single), 0);
END
$function$;
CREATE FUNCTION mill.s_end_idle_runs(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN mill.end_idle_runs(most);
END
$function$;
COMMENT ON FUNCTION mill.s_end_idle_runs(int) IS 'pgmill: ends runs of jobs without input, and skipped ones';

-- What was finished long ago: tokens of which none waits, stashed values, and what timers have fired. A small batch; how many.
CREATE FUNCTION mill.s_sweep_graph(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    gone int;
    more int;
BEGIN
    WITH old AS (
        SELECT k.job, k.at FROM mill.token k LEFT JOIN mill.job j ON j.id = k.job LEFT JOIN mill.flow f ON f.name = j.flow
         WHERE k.touched < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow)) AND k.waiting = '{}'
           AND k.touched < clock_timestamp() - COALESCE(f.keep, interval '1 month')
         ORDER BY k.touched LIMIT most FOR UPDATE OF k SKIP LOCKED)
    DELETE FROM mill.token k USING old WHERE k.job = old.job AND k.at = old.at;
    GET DIAGNOSTICS gone = ROW_COUNT;
    WITH old AS (
        SELECT s.ctid FROM mill.stash s LEFT JOIN mill.flow f ON f.name = s.flow
         WHERE s.touched < clock_timestamp() - COALESCE(f.keep, interval '1 month') LIMIT most FOR UPDATE OF s SKIP LOCKED)
    DELETE FROM mill.stash s USING old WHERE s.ctid = old.ctid;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    WITH old AS (
        SELECT d.timer, d.at FROM mill.fired d LEFT JOIN mill.timer t ON t.id = d.timer
         WHERE d.made < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND d.made < clock_timestamp() - COALESCE((SELECT max(mill.keep(j.id)) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                                                       WHERE e.from_timer = t.name), interval '0')
         ORDER BY d.made LIMIT most FOR UPDATE OF d SKIP LOCKED)
    DELETE FROM mill.fired d USING old WHERE d.timer = old.timer AND d.at = old.at;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    -- runs that no scheduler deletes, because they were in no queue, or their queue is gone
    WITH old AS (
        SELECT r.id FROM mill_private.run r
         WHERE r.outcome IS NOT NULL AND r.recall IS NULL AND NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = r.queue)
           AND r.stop < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND r.stop < mill.now() - mill.keep(r.job) LIMIT most FOR UPDATE SKIP LOCKED)
    DELETE FROM mill_private.run r USING old WHERE r.id = old.id;
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN gone + more;
END
$function$;

-- A flow's held runs whose time has come, as far as it is not paused and has places: the higher priority first. The caller
-- need not have its lock.
CREATE FUNCTION mill.release_flow(flow text) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    f mill.flow;
    places int;
    done int;
    queues oid[];
    one oid;
BEGIN
    PERFORM mill.enter(ARRAY[release_flow.flow]);
    SELECT * INTO f FROM mill.flow k WHERE k.name = release_flow.flow;
    places := mill.places(f.name);
    IF f.name IS NULL OR f.paused OR places = 0 THEN
        RETURN 0;
    END IF;
    WITH next AS (
        SELECT r.id FROM mill.job j JOIN mill_private.run r ON r.job = j.id
         WHERE j.flow = f.name AND j.scheduled AND r.outcome IS NULL AND r.held AND r.start IS NULL AND r.due <= mill.now()
         -- those that need no worker take no place
         ORDER BY r.queue <> 0, r.priority DESC, r.id LIMIT places FOR NO KEY UPDATE OF r
    ), released AS (
        UPDATE mill_private.run r SET held = false, recall = NULL FROM next n WHERE r.id = n.id RETURNING r.queue)
    SELECT count(*), array_agg(DISTINCT r.queue) INTO done, queues FROM released r;
    FOREACH one IN ARRAY COALESCE(queues, '{}') LOOP
        PERFORM mill.ring(one);
    END LOOP;
    RETURN done;
END
$function$;
-- A run of a job has ended, for good or not: its place in the flow is free.
CREATE OR REPLACE FUNCTION mill.run_ended(j mill.job) RETURNS void
    LANGUAGE plpgsql AS $function$
BEGIN
    IF EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.parallel IS NOT NULL) THEN
        PERFORM mill.release_flow(j.flow);
    END IF;
END
$function$;
-- What, beside its time, keeps a run of the job back: the job is paused, or its flow, or that has no place (`release_flow` sees
-- to that).
CREATE OR REPLACE FUNCTION mill.may_start(job mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN job.scheduled AND NOT EXISTS (SELECT FROM mill.flow f WHERE f.name = job.flow AND (f.paused OR f.parallel IS NOT NULL));
END
$function$;
-- A flow is paused: its runs that have not begun are held; resumed: those whose time has come go on, and tokens that are ready.
-- More places: more of them.
CREATE FUNCTION mill.flow_follow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    jobs int[] := (SELECT array_agg(j.id ORDER BY j.id) FROM mill.job j WHERE j.flow = NEW.name);
BEGIN
    PERFORM mill.enter(ARRAY[NEW.name], true);
    IF jobs IS NULL THEN
        RETURN NULL;
    ELSIF NEW.paused AND NOT OLD.paused THEN
        PERFORM mill_private.hold_runs(jobs, true);
    ELSIF NOT NEW.paused THEN
        PERFORM mill.release_flow(NEW.name);
        IF OLD.paused THEN
            PERFORM mill.consider(jobs);
        END IF;
    END IF;
    RETURN NULL;
END
$function$;
CREATE TRIGGER follow AFTER UPDATE OF paused, parallel ON mill.flow FOR EACH ROW
    WHEN (NEW.paused <> OLD.paused OR NEW.parallel IS DISTINCT FROM OLD.parallel) EXECUTE FUNCTION mill.flow_follow();
-- How long the runs of a job are kept.
CREATE OR REPLACE FUNCTION mill.keep(job int) RETURNS interval
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT f.keep FROM mill.job j JOIN mill.flow f ON f.name = j.flow WHERE j.id = keep.job), interval '1 month');
END
$function$;
