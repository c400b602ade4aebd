-- Orders of runs. An order is a row of mill_private.run that is not in its queue yet. The flow of a job may limit how many of
-- its runs are open at once (`parallel`): further ones are held.
-- parameters: none; locks: none; caller: installation, once per database

-- The first run of an activation, or the next one: then activation, attempt and failures are those of the run before. A run of a
-- job without input, or a skipped one, needs no worker: its queue is 0. Returns NULL if the job may not run in its queue any
-- more; it has been paused with the reason.
CREATE FUNCTION mill_private.order_run(job int, at timestamptz, due timestamptz, activation bigint DEFAULT NULL, failures int DEFAULT 0,
                              attempt int DEFAULT 0, epoch int DEFAULT NULL, held bool DEFAULT false, priority int DEFAULT NULL,
                              skips bool DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql AS $function$
DECLARE
    j record;
    wrong text;
    made bigint;
    place oid;
BEGIN
    SELECT k.owner, k.priority, k.input IS NULL AS idle, s.queue INTO j FROM mill.job k JOIN mill_private.job_state s ON s.job = k.id WHERE k.id = order_run.job;
    wrong := mill_private.check_queue_right(j.owner, j.queue);
    IF wrong IS NOT NULL THEN
        PERFORM mill_private.pause_job(job, wrong);
        RETURN NULL;
    END IF;
    place := CASE WHEN j.idle OR skips THEN 0 ELSE j.queue END;
    INSERT INTO mill_private.run (job, owner, queue, activation, at, epoch, attempt, failures, priority, due, held, reason)
    VALUES (order_run.job, j.owner, place, order_run.activation, order_run.at, order_run.epoch, order_run.attempt, order_run.failures,
            COALESCE(order_run.priority, j.priority), order_run.due, order_run.held, CASE WHEN skips THEN 'skipped' END)
    RETURNING id INTO made;
    IF NOT held THEN
        PERFORM mill_private.wake_scheduler(place);
    END IF;
    RETURN made;
END
$function$;
COMMENT ON FUNCTION mill_private.order_run(int, timestamptz, timestamptz, bigint, int, int, int, bool, int, bool) IS
    'pgmill: orders a run of a job; its id';

-- Returns false if there is no retry: clear or rerun has started the logical time of the run anew, or the job may not run in its queue
-- any more and has been paused.
CREATE FUNCTION mill_private.order_retry(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own bool, again timestamptz, moment timestamptz)
    RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    run bigint;
    failed bool := ended.outcome NOT IN ('crashed', 'interrupted');
    delivers_nothing CONSTANT int := -1;
BEGIN
    IF mill_private.is_overtaken(ended.job, ended.at, ended.epoch) AND ended.epoch IS DISTINCT FROM delivers_nothing THEN
        RETURN false;
    END IF;
    run := mill_private.order_run(ended.job, ended.at, again, priority => ended.priority, activation => COALESCE(ended.activation, ended.id),
                                  failures => ended.failures + failed::int, attempt => ended.attempt, epoch => ended.epoch,
                                  held => NOT mill_private.may_start(job_row) AND (own OR NOT mill_private.has_schedule(job_row)));
    IF again > moment THEN
        -- It may be due before this is committed.
        PERFORM mill_private.bump_version(stat.queue);
    END IF;
    RETURN run IS NOT NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.order_retry(mill.job, mill_private.job_state, mill_private.run, bool, timestamptz, timestamptz) IS
    'pgmill: orders the next run of an activation; false: the activation ends';

-- For a job that is paused or resumed. Tries count from zero after a resume.
CREATE FUNCTION mill_private.hold_job_runs(job int, hold bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = hold_job_runs.job);
BEGIN
    IF hold OR mill_private.may_start(j) THEN
        PERFORM mill_private.hold_runs(ARRAY[job], hold);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.hold_job_runs(int, bool) IS
    'pgmill: holds the runs of a job that have not begun, or releases them';

-- The caller holds the lock of the flow exclusively.
CREATE FUNCTION mill_private.free_places(flow text) RETURNS int
    LANGUAGE plpgsql STABLE AS $function$
DECLARE
    most int := (SELECT f.parallel FROM mill.flow f WHERE f.name = free_places.flow);
BEGIN
    IF most IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN GREATEST(most - (SELECT count(*) FROM mill.job j JOIN mill_private.run r ON r.job = j.id
                             WHERE j.flow = free_places.flow AND r.outcome IS NULL AND r.queue <> 0 AND NOT r.held), 0);
END
$function$;
COMMENT ON FUNCTION mill_private.free_places(text) IS 'pgmill: how many more runs of a flow may start; NULL: no limit';

-- Higher priority first. The caller need not hold the lock of the flow. Returns the number of runs.
CREATE FUNCTION mill_private.release_flow_runs(flow text) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    f mill.flow;
    places int;
    done int;
    queues oid[];
    one oid;
BEGIN
    PERFORM mill_private.lock_flows(ARRAY[release_flow_runs.flow]);
    SELECT * INTO f FROM mill.flow k WHERE k.name = release_flow_runs.flow;
    places := mill_private.free_places(f.name);
    IF f.name IS NULL OR f.paused OR places = 0 THEN
        RETURN 0;
    END IF;
    WITH next AS (
        SELECT r.id FROM mill.job j JOIN mill_private.run r ON r.job = j.id
         WHERE j.flow = f.name AND j.scheduled AND r.outcome IS NULL AND r.held AND r.start IS NULL AND r.due <= mill.now()
         -- Runs that need no worker take no place.
         ORDER BY r.queue <> 0, r.priority DESC, r.id LIMIT places FOR NO KEY UPDATE OF r
    ), released AS (
        UPDATE mill_private.run r SET held = false, recall = NULL FROM next n WHERE r.id = n.id RETURNING r.queue)
    SELECT count(*), array_agg(DISTINCT r.queue) INTO done, queues FROM released r;
    FOREACH one IN ARRAY COALESCE(queues, '{}') LOOP
        PERFORM mill_private.wake_scheduler(one);
    END LOOP;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.release_flow_runs(text) IS
    'pgmill: releases held runs of a flow that are due, as many as may start';

CREATE FUNCTION mill_private.free_flow_place(j mill.job) RETURNS void
    LANGUAGE plpgsql AS $function$
BEGIN
    IF EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.parallel IS NOT NULL) THEN
        PERFORM mill_private.release_flow_runs(j.flow);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.free_flow_place(mill.job) IS
    'pgmill: a run of a job has ended, finally or not: its place in the flow is free';

-- For jobs whose flows have no limit, in this order. Their tokens are consumed already. Tokens of a job that may not run in its
-- queue any more, and has been paused, wait again. Returns the number of runs.
CREATE FUNCTION mill_private.order_graph_runs(jobs int[], ats timestamptz[], lows bool[]) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    q record;
    wrong text;
    refused int[] := '{}';
    moment timestamptz := mill.now();
    queues oid[];
    one oid;
    done int;
    behind_live_work CONSTANT int := -1000;
BEGIN
    FOR q IN SELECT s.queue, j.owner, array_agg(j.id) AS jobs FROM mill.job j JOIN mill_private.job_state s ON s.job = j.id
               LEFT JOIN mill.queue k ON k.relid = s.queue LEFT JOIN pg_roles r ON r.rolname = j.owner
              WHERE j.id = ANY (order_graph_runs.jobs) AND has_table_privilege(r.oid, k.relid, 'INSERT') IS NOT TRUE GROUP BY 1, 2 LOOP
        wrong := mill_private.check_queue_right(q.owner, q.queue);
        IF wrong IS NOT NULL THEN
            PERFORM mill_private.pause_job(u, wrong) FROM unnest(q.jobs) AS u;
            UPDATE mill.token k SET waiting = k.delivered, consumed = '{}', activations = 0, since = clock_timestamp()
              FROM unnest(order_graph_runs.jobs, ats) AS u (job, at) WHERE k.job = u.job AND k.at = u.at AND u.job = ANY (q.jobs);
            refused := refused || q.jobs;
        END IF;
    END LOOP;
    WITH made AS (
        INSERT INTO mill_private.run (job, owner, queue, at, epoch, priority, due)
        SELECT j.id, j.owner, CASE WHEN j.input IS NULL THEN 0 ELSE s.queue END, u.at, 0, j.priority + CASE WHEN u.low THEN behind_live_work ELSE 0 END, moment
          FROM unnest(order_graph_runs.jobs, ats, lows) WITH ORDINALITY AS u (job, at, low, place)
          JOIN mill.job j ON j.id = u.job JOIN mill_private.job_state s ON s.job = j.id
         WHERE NOT u.job = ANY (refused) ORDER BY u.place
        RETURNING queue)
    SELECT count(*), array_agg(DISTINCT m.queue) INTO done, queues FROM made m;
    FOREACH one IN ARRAY COALESCE(queues, '{}') LOOP
        PERFORM mill_private.wake_scheduler(one);
    END LOOP;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.order_graph_runs(int[], timestamptz[], bool[]) IS 'pgmill: orders the runs of activations';
