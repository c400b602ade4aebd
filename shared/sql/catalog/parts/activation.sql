-- What follows from the end of a run.
-- An activation is a run with its retries. `settle_run` updates the plan and the counters of the job, and orders the next run of the
-- activation or finishes it. `finish_activation` delivers tokens along the edges of the job. A job that has all the tokens it
-- needs is activated: its run is ordered. The functions of this part call each other.
-- Functions that only functions with a fixed search_path call set none of their own: it costs as much as a short statement.
-- parameters: none; locks: none; caller: installation, once per database

-- `low`: behind live work, for a back-fill. `loops`: the job is activated again and again; the run fails at once.
-- Returns NULL if the job may not run in its queue any more; it has been paused with the reason.
CREATE FUNCTION mill_private.order_graph_run(j mill.job, at timestamptz, epoch int, low bool, loops bool, skips bool DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql AS $function$
DECLARE
    run bigint;
    no_retry CONSTANT int := -2;
    behind_live_work CONSTANT int := -1000;
BEGIN
    run := mill_private.order_run(j.id, order_graph_run.at, mill.now(), epoch => CASE WHEN loops THEN no_retry ELSE order_graph_run.epoch END,
        held => loops OR (NOT skips AND j.input IS NOT NULL AND COALESCE(mill_private.free_places(j.flow) = 0, false)), skips => skips,
        priority => CASE WHEN low THEN j.priority + behind_live_work END);
    IF loops AND run IS NOT NULL THEN
        PERFORM mill_private.close_run(run, false, 'loop',
            format('ERROR:  job "%s" has been activated 100 times for %s: loop stopped', j.name, order_graph_run.at));
    END IF;
    RETURN run;
END
$function$;
COMMENT ON FUNCTION mill_private.order_graph_run(mill.job, timestamptz, int, bool, bool, bool) IS
    'pgmill: orders the run of an activation';

-- The caller holds the lock of the token and of the flow. Returns the number of activations.
CREATE FUNCTION mill_private.consume_tokens(token_row mill.token, job_row mill.job) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    picked int[];
    left_over int[];
    one int;
    place int;
    done int := 0;
    most_activations CONSTANT int := 100;
BEGIN
    WHILE cardinality(token_row.waiting) > 0 LOOP
        picked := mill_private.pick_tokens(job_row, token_row.at, token_row.waiting);
        EXIT WHEN picked IS NULL OR done = 0 AND mill_private.is_paused(job_row);
        left_over := token_row.waiting;
        FOREACH one IN ARRAY picked LOOP
            place := array_position(left_over, one);
            left_over := left_over[:place - 1] || left_over[place + 1:];
        END LOOP;
        -- A job that may not run in its queue any more has been paused: its tokens wait.
        EXIT WHEN mill_private.order_graph_run(job_row, token_row.at, token_row.epoch, token_row.low, token_row.activations >= most_activations,
                                                token_row.skips > 0) IS NULL;
        token_row.skips := GREATEST(token_row.skips - 1, 0);
        token_row.waiting := left_over;
        token_row.consumed := token_row.consumed || picked;
        token_row.activations := token_row.activations + 1;
        done := done + 1;
    END LOOP;
    IF done > 0 THEN
        UPDATE mill.token stored SET waiting = token_row.waiting, consumed = token_row.consumed, activations = token_row.activations, skips = token_row.skips,
               since = CASE WHEN cardinality(token_row.waiting) > 0 THEN stored.since END
         WHERE stored.job = token_row.job AND stored.at = token_row.at;
    END IF;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.consume_tokens(mill.token, mill.job) IS
    'pgmill: activates a job for a logical time as often as its waiting tokens allow';

-- One level of the graph: the sources are jobs with their outcomes, or timers. One statement locks all targets in the order of job
-- and time, so that no two transactions deadlock. Returns the number of activations.
CREATE FUNCTION mill_private.deliver_tokens(timers bool, sources text[], ats timestamptz[], outcomes text[], lows bool[]) RETURNS int
    -- The generic plan is good for any number of sources and saves planning.
    LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
    ready_jobs int[];
    ready_ats timestamptz[];
    ready_lows bool[];
    others mill.token[];
    other mill.token;
    done int := 0;
BEGIN
    WITH edges AS (
        SELECT edge.id, edge.job, edge.shift, source.place, source.name, source.at, source.low
          FROM unnest(sources, ats, lows) WITH ORDINALITY AS source (name, at, low, place)
          JOIN mill.edge ON edge.from_timer = source.name WHERE timers
        UNION ALL
        SELECT edge.id, edge.job, edge.shift, source.place, source.name, source.at, source.low
          FROM unnest(sources, ats, outcomes, lows) WITH ORDINALITY AS source (name, at, outcome, low, place)
          JOIN mill.edge ON edge.from_job = source.name AND edge."on" IN (source.outcome, 'done') WHERE NOT timers
    ), arrived AS (
        SELECT edge.job, CASE WHEN edge.shift = interval '0' THEN edge.at ELSE mill_private.shift_time(edge.at, edge.shift,
                   CASE WHEN timers THEN (SELECT timer.timezone FROM mill.timer WHERE timer.name = edge.name)
                        ELSE mill_private.get_job_zone(edge.name) END) END AS at,
               array_agg(edge.id ORDER BY edge.id) AS edges, bool_and(edge.low) AS low, min(edge.place) AS place
          FROM edges AS edge GROUP BY 1, 2
    ), judged AS MATERIALIZED (
        -- The most frequent case is one write: the first tokens to arrive, enough for one activation, and a flow without `parallel`.
        SELECT target.id AS job, arrival.at, arrival.edges, arrival.low, arrival.place,
               (target.threshold IS NULL AND arrival.edges = ARRAY(SELECT edge.id FROM mill.edge
                       WHERE edge.job = arrival.job AND edge."on" <> 'failure' ORDER BY edge.id)
                   OR arrival.edges = mill_private.pick_tokens(target, arrival.at, arrival.edges))
               AND target.scheduled AND NOT EXISTS (SELECT FROM mill.flow target_flow
                       WHERE target_flow.name = target.flow AND (target_flow.paused OR target_flow.parallel IS NOT NULL)) AS enough
          FROM arrived arrival JOIN mill.job target ON target.name = arrival.job
    ), kept AS (
        INSERT INTO mill.token AS stored (job, at, waiting, delivered, consumed, activations, since, low)
        SELECT verdict.job, verdict.at, CASE WHEN verdict.enough THEN '{}' ELSE verdict.edges END, verdict.edges,
               CASE WHEN verdict.enough THEN verdict.edges ELSE '{}' END,
               CASE WHEN verdict.enough THEN 1 ELSE 0 END, CASE WHEN verdict.enough THEN NULL ELSE clock_timestamp() END, verdict.low
          FROM judged verdict ORDER BY verdict.job, verdict.at
        ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET waiting = stored.waiting || EXCLUDED.delivered,
            delivered = stored.delivered || EXCLUDED.delivered, since = COALESCE(stored.since, clock_timestamp()), low = stored.low AND EXCLUDED.low,
            touched = CASE WHEN stored.touched < EXCLUDED.touched - interval '10 s' THEN EXCLUDED.touched ELSE stored.touched END
        RETURNING stored AS token)
    -- Only a row that was inserted with all the tokens it needs has no `since`.
    SELECT array_agg(verdict.job ORDER BY verdict.place, verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NULL),
           array_agg(verdict.at ORDER BY verdict.place, verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NULL),
           array_agg(verdict.low ORDER BY verdict.place, verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NULL),
           array_agg(stored.token ORDER BY verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NOT NULL)
      INTO ready_jobs, ready_ats, ready_lows, others
      FROM kept stored JOIN judged verdict ON verdict.job = (stored.token).job AND verdict.at = (stored.token).at;
    IF ready_jobs IS NOT NULL THEN
        done := mill_private.order_graph_runs(ready_jobs, ready_ats, ready_lows);
    END IF;
    IF others IS NOT NULL THEN
        FOREACH other IN ARRAY others LOOP
            done := done + mill_private.consume_tokens(other, (SELECT target FROM mill.job target WHERE target.id = other.job));
        END LOOP;
    END IF;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.deliver_tokens(bool, text[], timestamptz[], text[], bool[]) IS
    'pgmill: delivers tokens along the edges of these sources';

-- Called exactly once for each activation, in the transaction that ended it. `outcome` is succeeded or failed. Returns the number
-- of activations that follow; NULL: the job does not exist any more.
CREATE FUNCTION mill_private.finish_activation(job int, at timestamptz, epoch int, outcome text) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    kind text := CASE outcome WHEN 'succeeded' THEN 'success' ELSE 'failure' END;
    ways record;
    mine record;
    arrived mill.token;
    job_row mill.job;
    single bool := false;
    enough bool;
    counts bool;
    fills bool;
    done int := 0;
BEGIN
    SELECT source.name, source.flow, one_flow.parallel IS NOT NULL AS counts, outgoing.* INTO ways
      FROM mill.job source LEFT JOIN mill.flow one_flow ON one_flow.name = source.flow, LATERAL (
        SELECT count(*) AS n, min(edge_out.id) AS edge, min(successor.id) AS target, bool_or(edge_out.shift <> interval '0') AS shifted,
               bool_or(successor.flow IS DISTINCT FROM source.flow) AS abroad
          FROM mill.edge edge_out JOIN mill.job successor ON successor.name = edge_out.job
         WHERE edge_out.from_job = source.name AND edge_out."on" IN (kind, 'done')) AS outgoing
     WHERE source.id = finish_activation.job;
    IF ways.n IS NULL THEN
        RETURN NULL;
    ELSIF ways.n > 0 AND at IS NOT NULL THEN
        IF ways.abroad THEN
            PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT one_flow) FROM mill.edge edge_out JOIN mill.job successor ON successor.name = edge_out.job,
                LATERAL unnest(ARRAY[successor.flow, ways.flow]) AS one_flow WHERE edge_out.from_job = ways.name AND edge_out."on" IN (kind, 'done')));
        ELSIF ways.counts THEN
            PERFORM mill_private.lock_flows(ARRAY[ways.flow]);
        ELSIF NOT pg_try_advisory_xact_lock_shared({flow_key}, hashtext(COALESCE(ways.flow, ''))) THEN
            PERFORM mill_private.lock_flows(ARRAY[ways.flow]);
        END IF;
        single := ways.n = 1 AND NOT ways.shifted;
        IF single THEN
            -- One edge needs one INSERT. A run that was overtaken by clear or rerun delivers nothing.
            INSERT INTO mill.token AS stored (job, at, waiting, delivered, since, low)
            SELECT ways.target, finish_activation.at, ARRAY[ways.edge], ARRAY[ways.edge], clock_timestamp(), COALESCE(own.low, false)
              FROM (SELECT) AS one LEFT JOIN mill.token own ON own.job = finish_activation.job AND own.at = finish_activation.at
             WHERE COALESCE(own.epoch, 0) = COALESCE(finish_activation.epoch, 0)
            ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET waiting = stored.waiting || EXCLUDED.delivered,
                delivered = stored.delivered || EXCLUDED.delivered, since = COALESCE(stored.since, clock_timestamp()), low = stored.low AND EXCLUDED.low,
                touched = CASE WHEN stored.touched < EXCLUDED.touched - interval '10 s' THEN EXCLUDED.touched ELSE stored.touched END
            RETURNING stored.* INTO arrived;
        ELSE
            SELECT stored.epoch, stored.low INTO mine FROM mill.token stored WHERE stored.job = finish_activation.job AND stored.at = finish_activation.at;
            IF COALESCE(finish_activation.epoch, 0) = COALESCE(mine.epoch, 0) THEN
                done := mill_private.deliver_tokens(false, ARRAY[ways.name], ARRAY[finish_activation.at], ARRAY[kind], ARRAY[COALESCE(mine.low, false)]);
            END IF;
        END IF;
    END IF;
    IF single OR ways.flow IS NOT NULL THEN
        -- Read under the locks of the flow and the token: a back-fill may wait for the end of this time, another run for the place. Fewer
        -- tokens than there are edges that must deliver are never enough.
        SELECT EXISTS (SELECT FROM mill.backfill open_backfill WHERE open_backfill.finished IS NULL),
               EXISTS (SELECT FROM mill.flow one_flow WHERE one_flow.name = ways.flow AND one_flow.parallel IS NOT NULL),
               (SELECT cardinality(arrived.waiting) >= COALESCE(successor.threshold, (SELECT count(*) FROM mill.edge edge_out
                           WHERE edge_out.job = successor.name AND edge_out."on" <> 'failure' AND NOT edge_out.first))
                  FROM mill.job successor WHERE successor.id = arrived.job)
          INTO fills, counts, enough;
        IF enough THEN
            SELECT successor.* INTO job_row FROM mill.job successor WHERE successor.id = arrived.job;
            done := mill_private.consume_tokens(arrived, job_row);
        END IF;
        IF fills AND ways.flow IS NOT NULL AND at IS NOT NULL THEN
            -- 0 is the keeper
            PERFORM mill_private.wake_scheduler(0);
        END IF;
        IF counts THEN
            PERFORM mill_private.release_flow_runs(ways.flow);
        END IF;
    END IF;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.finish_activation(int, timestamptz, int, text) IS
    'pgmill: the end of an activation: delivers tokens and frees the place in the flow';

CREATE FUNCTION mill_private.finish_activations(jobs int[], ats timestamptz[], epochs int[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
    flows text[];
    own text[] := (SELECT array_agg(DISTINCT j.flow) FROM mill.job j WHERE j.id = ANY (jobs));
    names text[];
    times timestamptz[];
    lows bool[];
BEGIN
    SELECT array_agg(DISTINCT t.flow) INTO flows FROM mill.job j JOIN mill.edge e ON e.from_job = j.name AND e."on" IN ('success', 'done')
      JOIN mill.job t ON t.name = e.job WHERE j.id = ANY (jobs);
    IF flows IS NOT NULL THEN
        PERFORM mill_private.lock_flows(flows || own);
        -- LATERAL with LIMIT 1: one index scan per run, even if this was planned while there were few tokens.
        SELECT array_agg(j.name ORDER BY j.id, u.at), array_agg(u.at ORDER BY j.id, u.at), array_agg(COALESCE(k.low, false) ORDER BY j.id, u.at)
          INTO names, times, lows
          FROM unnest(jobs, ats, epochs) AS u (job, at, epoch) JOIN mill.job j ON j.id = u.job
          LEFT JOIN LATERAL (SELECT n.low, n.epoch FROM mill.token n WHERE n.job = u.job AND n.at = u.at LIMIT 1) AS k ON true
         WHERE u.epoch = COALESCE(k.epoch, 0);
        IF names IS NOT NULL THEN
            PERFORM mill_private.deliver_tokens(false, names, times, array_fill('success'::text, ARRAY[cardinality(names)]), lows);
        END IF;
    END IF;
    PERFORM mill_private.release_flow_runs(f.name) FROM mill.flow f WHERE f.name = ANY (own) AND f.parallel IS NOT NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.finish_activations(int[], timestamptz[], int[]) IS
    'pgmill: the end of activations that have succeeded together';

-- `by_user`: a person stopped, deleted or marked it. The most frequent case is the success of a schedule's own run.
-- Failures, crashes and interruptions call functions of their own.
CREATE FUNCTION mill_private.settle_run(ended mill_private.run, success bool, by_user bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    moment timestamptz := mill.now();
    job_row mill.job := (SELECT stored FROM mill.job stored WHERE stored.id = ended.job);
    began bool := ended.start IS NOT NULL;
    failed bool := began AND NOT success AND ended.outcome NOT IN ('crashed', 'interrupted');
    stat mill_private.job_state;
    own bool;
    again timestamptz;
    over bool := true;
BEGIN
    IF job_row.id IS NULL THEN
        -- The job was deleted meanwhile. Its numbers go with the end of its last run.
        PERFORM mill_private.forget_job(ended.job);
        RETURN;
    END IF;
    stat := mill_private.lock_job_state(ended.job);
    IF stat.job IS NULL THEN
        RETURN;
    END IF;
    own := stat.run IS NOT NULL AND stat.run = COALESCE(ended.activation, ended.id);
    IF own AND NOT began THEN
        stat.next_start := NULL;
    END IF;
    stat := mill_private.count_ended_run(stat, ended, success, moment);
    IF began AND NOT success THEN
        again := mill_private.compute_retry_start(job_row, stat, ended, own, by_user, moment);
    END IF;
    IF again IS NOT NULL THEN
        over := NOT mill_private.order_retry(job_row, stat, ended, own, again, moment);
    END IF;
    IF own THEN
        stat.stamp := stat.stamp + 1;
        IF over OR failed THEN
            -- A next start that the run has set itself wins.
            stat.fill := job_row.cron IS NOT NULL AND stat.next_start IS NULL;
        END IF;
        IF over THEN
            stat.run := NULL;
            stat.next_start := COALESCE(stat.next_start, mill_private.compute_next_start(job_row, moment, moment));
        ELSE
            stat.next_start := again;
        END IF;
    END IF;
    UPDATE mill_private.job_state stored SET (last_start, last_finish, last_successful_finish, last_run_success, next_start, total_runs,
            total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes, total_duration,
            total_duration_failures, run, fill, stamp)
        = (stat.last_start, stat.last_finish, stat.last_successful_finish, stat.last_run_success, stat.next_start, stat.total_runs,
           stat.total_successes, stat.total_failures, stat.total_crashes, stat.consecutive_failures, stat.consecutive_crashes,
           stat.total_duration, stat.total_duration_failures, stat.run, stat.fill, stat.stamp)
     WHERE stored.job = ended.job;
    IF NOT over THEN
        PERFORM mill_private.free_flow_place(job_row);
        RETURN;
    ELSIF own THEN
        -- The plan has changed.
        PERFORM mill_private.wake_scheduler(stat.queue);
    END IF;
    IF failed THEN
        PERFORM mill_private.pause_failing_job(job_row, stat.consecutive_failures);
    END IF;
    PERFORM mill_private.finish_activation(ended.job, ended.at, ended.epoch, CASE WHEN success THEN 'succeeded' ELSE 'failed' END);
END
$function$;
COMMENT ON FUNCTION mill_private.settle_run(mill_private.run, bool, bool) IS
    'pgmill: settles the end of a run: numbers and plan of its job, and the next run or the end of the activation';

-- A run that has not begun ends here, and its row, if it is in the queue, is recalled. One that is under way is ended by the
-- scheduler of its queue.
CREATE FUNCTION mill_private.close_run(run bigint, success bool, reason text, error text) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r mill_private.run;
BEGIN
    UPDATE mill_private.run u SET recall = CASE WHEN success THEN 'DONE' ELSE 'FAIL' END, reason = close_run.reason, error = close_run.error
     WHERE u.id = close_run.run AND u.outcome IS NULL AND u.start IS NOT NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill_private.wake_scheduler(r.queue);
        RETURN true;
    END IF;
    UPDATE mill_private.run u SET outcome = CASE WHEN close_run.reason IN ('cancelled', 'skipped') THEN close_run.reason
                                                 WHEN success THEN 'succeeded' ELSE 'failed' END,
           stop = clock_timestamp(), reason = close_run.reason, error = close_run.error, held = false,
           recall = CASE WHEN NOT u.ordered THEN 'WITHDRAW' END
     WHERE u.id = close_run.run AND u.outcome IS NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill_private.settle_run(r, success, true);
        PERFORM mill_private.wake_scheduler(r.queue);
    END IF;
    RETURN false;
END
$function$;
COMMENT ON FUNCTION mill_private.close_run(bigint, bool, text, text) IS
    'pgmill: ends a run for a user; true: it is under way, and the scheduler of its queue will end it';
