-- Tokens: what arrows have delivered, per job and logical time, and what follows. The row (job, at) is the lock: adding,
-- consuming and activating happen under it, in the transaction of the end that delivered. `waiting`, `delivered` and
-- `consumed` are multisets of edge ids, so that one parent twice is not two parents.
-- Lock order: runs, flows (by key), tokens (by job and time).
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.token (
    job int NOT NULL,
    at timestamptz NOT NULL,
    waiting int[] NOT NULL DEFAULT '{}',
    since timestamptz,
    delivered int[] NOT NULL DEFAULT '{}',
    consumed int[] NOT NULL DEFAULT '{}',
    activations int NOT NULL DEFAULT 0,
    skips int NOT NULL DEFAULT 0,
    by_hand int NOT NULL DEFAULT 0,
    epoch int NOT NULL DEFAULT 0,
    low bool NOT NULL DEFAULT false,
    touched timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job, at)
) WITH (fillfactor = 70);
-- A token that joins others changes neither of these, so that the row stays on its page and no index learns of it.
CREATE INDEX ON mill.token (job, at) WHERE since IS NOT NULL;
CREATE INDEX ON mill.token (touched);
ALTER TABLE mill.token ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_job ON mill.token FOR SELECT USING (EXISTS (SELECT FROM mill.job j WHERE j.id = token.job));
COMMENT ON TABLE mill.token IS 'pgmill: what the edges of a job have delivered for a logical time';
COMMENT ON COLUMN mill.token.waiting IS 'edges whose tokens wait; one that delivered twice stands here twice';
COMMENT ON COLUMN mill.token.since IS 'since when the oldest of them waits; NULL: none does';
COMMENT ON COLUMN mill.token.touched IS 'when something was delivered last, give or take ten seconds';
COMMENT ON COLUMN mill.token.delivered IS 'all that was delivered; = consumed + waiting';
COMMENT ON COLUMN mill.token.consumed IS 'what has become activations';
COMMENT ON COLUMN mill.token.activations IS 'how often tokens have activated the job for this time';
COMMENT ON COLUMN mill.token.skips IS 'so many of its next activations are skipped, somebody said';
COMMENT ON COLUMN mill.token.by_hand IS 'how often people have started the job for this time';
COMMENT ON COLUMN mill.token.epoch IS 'raised by clear and rerun: runs of an older one deliver nothing';
COMMENT ON COLUMN mill.token.low IS 'it came with a back-fill: behind live work';

-- Everything that moves tokens of a flow shares its lock; pause, clear and rerun have it alone, and so has whoever
-- counts for `parallel`. Jobs without a flow have one together.
CREATE FUNCTION mill.enter(flows text[], alone bool DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $function$
DECLARE
    f record;
BEGIN
    -- the most frequent case: one flow, and nobody counts
    IF cardinality(flows) = 1 AND NOT alone
            AND NOT EXISTS (SELECT FROM mill.flow w WHERE w.name = flows[1] AND w.parallel IS NOT NULL) THEN
        PERFORM pg_advisory_xact_lock_shared({flow_key}, hashtext(COALESCE(flows[1], '')));
        RETURN;
    END IF;
    FOR f IN SELECT hashtext(COALESCE(u.name, '')) AS key, enter.alone OR COALESCE(bool_or(w.parallel IS NOT NULL), false) AS alone
               FROM unnest(flows) AS u (name) LEFT JOIN mill.flow w ON w.name = u.name GROUP BY 1 ORDER BY 1 LOOP
        IF f.alone THEN
            PERFORM pg_advisory_xact_lock({flow_key}, f.key);
        ELSE
            PERFORM pg_advisory_xact_lock_shared({flow_key}, f.key);
        END IF;
    END LOOP;
END
$function$;

-- A time moved by a shift: months and days on the calendar of the zone, hours by the stopwatch.
CREATE FUNCTION mill.land(at timestamptz, shift interval, zone text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    days int := extract(day FROM shift)::int;
    months int := (extract(year FROM shift) * 12 + extract(month FROM shift))::int;
    hours interval := shift - make_interval(months => months, days => days);
    wall timestamp;
BEGIN
    IF days <> 0 OR months <> 0 THEN
        IF zone = 'UTC' THEN
            at := ((at AT TIME ZONE 'UTC') + make_interval(months => months, days => days)) AT TIME ZONE 'UTC';
        ELSE
            wall := (at AT TIME ZONE zone) + make_interval(months => months, days => days);
            at := mill.zone_first(wall, zone);
        END IF;
    END IF;
    RETURN at + hours;
END
$function$;

-- The timers from which tokens come to a job.
CREATE FUNCTION mill.upstream(job text) RETURNS SETOF mill.timer
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE way (name) AS (
        SELECT $1 UNION SELECT e.from_job FROM way w JOIN mill.edge e ON e.job = w.name WHERE e.from_job IS NOT NULL)
    SELECT t.* FROM mill.timer t
     WHERE EXISTS (SELECT FROM way w JOIN mill.edge e ON e.job = w.name WHERE e.from_timer = t.name)
$function$;
-- The zone in which a job's times are counted: its timers', if they have one in common.
CREATE FUNCTION mill.zone_of(job text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT CASE WHEN count(DISTINCT t.timezone) = 1 THEN min(t.timezone) ELSE 'UTC' END FROM mill.upstream($1) t
$function$;
-- The first time: the smallest that a timer has fired or will fire.
CREATE FUNCTION mill.first_time(t mill.timer) RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT LEAST(t.first, t.next, CASE WHEN t.catchup IN ('earliest', 'latest', 'random') THEN t.start END,
                 (SELECT min(b.lo) FROM mill.backfill b WHERE b.timer = t.name))
$function$;
-- Does an edge count as delivered, because its source has no time so early?
CREATE FUNCTION mill.before_first(e mill.edge, at timestamptz) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT e.first THEN
        RETURN false;
    ELSIF e.from_timer IS NOT NULL THEN
        RETURN COALESCE((SELECT mill.land(at, - e.shift, t.timezone) < mill.first_time(t)
                           FROM mill.timer t WHERE t.name = e.from_timer), false);
    END IF;
    RETURN COALESCE(mill.land(at, - e.shift, mill.zone_of(e.from_job))
                    < (SELECT min(mill.first_time(t)) FROM mill.upstream(e.from_job) t), false);
END
$function$;

-- Which tokens a job's next activation would consume; NULL: it is not ready.
CREATE FUNCTION mill.ready(j mill.job, at timestamptz, waiting int[]) RETURNS int[]
    LANGUAGE plpgsql STABLE AS $function$
DECLARE
    needed int[];
    missing bool;
    picked int[];
BEGIN
    IF cardinality(waiting) = 0 THEN
        RETURN NULL;
    ELSIF j.threshold IS NOT NULL THEN
        RETURN CASE WHEN cardinality(waiting) >= j.threshold THEN waiting[1:j.threshold] END;
    END IF;
    SELECT array_agg(e.id), bool_or(NOT e.id = ANY (waiting) AND NOT (e.first AND mill.before_first(e, ready.at))),
           array_agg(e.id ORDER BY e.id) FILTER (WHERE e.id = ANY (waiting))
      INTO needed, missing, picked
      FROM mill.edge e WHERE e.job = j.name AND e."on" <> 'failure';
    IF needed IS NULL THEN
        RETURN waiting[1:1];
    END IF;
    RETURN CASE WHEN NOT missing THEN picked END;
END
$function$;

-- Is the job paused, or its flow? Then its tokens wait.
CREATE FUNCTION mill.stands(j mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN NOT j.scheduled OR (j.flow IS NOT NULL AND EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.paused));
END
$function$;

-- Activates a job for a time as often as its waiting tokens allow. The caller holds the token's row and the flow's lock.
CREATE FUNCTION mill.consume(t mill.token, j mill.job) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    picked int[];
    left_over int[];
    one int;
    place int;
    done int := 0;
BEGIN
    WHILE cardinality(t.waiting) > 0 LOOP
        picked := mill.ready(j, t.at, t.waiting);
        EXIT WHEN picked IS NULL OR done = 0 AND mill.stands(j);
        left_over := t.waiting;
        FOREACH one IN ARRAY picked LOOP
            place := array_position(left_over, one);
            left_over := left_over[:place - 1] || left_over[place + 1:];
        END LOOP;
        -- a job that may not run there any more has paused itself: its tokens wait
        EXIT WHEN mill.activate_node(j, t.at, t.epoch, t.low, t.activations >= 100, t.skips > 0) IS NULL;
        t.skips := GREATEST(t.skips - 1, 0);
        t.waiting := left_over;
        t.consumed := t.consumed || picked;
        t.activations := t.activations + 1;
        done := done + 1;
    END LOOP;
    IF done > 0 THEN
        UPDATE mill.token k SET waiting = t.waiting, consumed = t.consumed, activations = t.activations, skips = t.skips,
               since = CASE WHEN cardinality(t.waiting) > 0 THEN k.since END
         WHERE k.job = t.job AND k.at = t.at;
    END IF;
    RETURN done;
END
$function$;

-- One level of the graph: what ends here (jobs with their outcomes, or times of timers) delivers along its edges, all in one
-- statement that locks the targets in the order of job and time, whoever delivers. How many activations it came to.
CREATE FUNCTION mill.deliver(timers bool, sources text[], ats timestamptz[], outcomes text[], lows bool[]) RETURNS int
    -- the plan for any number of sources is good for one as well, and costs no planning
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
        SELECT e.id, e.job, e.shift, s.place, s.name, s.at, s.low FROM unnest(sources, ats, lows) WITH ORDINALITY AS s (name, at, low, place)
          JOIN mill.edge e ON e.from_timer = s.name WHERE timers
        UNION ALL
        SELECT e.id, e.job, e.shift, s.place, s.name, s.at, s.low
          FROM unnest(sources, ats, outcomes, lows) WITH ORDINALITY AS s (name, at, outcome, low, place)
          JOIN mill.edge e ON e.from_job = s.name AND e."on" IN (s.outcome, 'done') WHERE NOT timers
    ), arrived AS (
        SELECT e.job, CASE WHEN e.shift = interval '0' THEN e.at ELSE mill.land(e.at, e.shift,
                   CASE WHEN timers THEN (SELECT t.timezone FROM mill.timer t WHERE t.name = e.name) ELSE mill.zone_of(e.name) END) END AS at,
               array_agg(e.id ORDER BY e.id) AS edges, bool_and(e.low) AS low, min(e.place) AS place
          FROM edges e GROUP BY 1, 2
    ), judged AS MATERIALIZED (
        -- the most frequent case, in one write: the first to arrive, enough for one activation, and nobody counts
        SELECT j.id AS job, a.at, a.edges, a.low, a.place, (j.threshold IS NULL AND a.edges = ARRAY(SELECT e.id FROM mill.edge e
                       WHERE e.job = a.job AND e."on" <> 'failure' ORDER BY e.id) OR a.edges = mill.ready(j, a.at, a.edges)) AND j.scheduled
               AND NOT EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND (f.paused OR f.parallel IS NOT NULL)) AS enough
          FROM arrived a JOIN mill.job j ON j.name = a.job
    ), kept AS (
        INSERT INTO mill.token AS k (job, at, waiting, delivered, consumed, activations, since, low)
        SELECT d.job, d.at, CASE WHEN d.enough THEN '{}' ELSE d.edges END, d.edges, CASE WHEN d.enough THEN d.edges ELSE '{}' END,
               CASE WHEN d.enough THEN 1 ELSE 0 END, CASE WHEN d.enough THEN NULL ELSE clock_timestamp() END, d.low
          FROM judged d ORDER BY d.job, d.at
        ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET waiting = k.waiting || EXCLUDED.delivered,
            delivered = k.delivered || EXCLUDED.delivered, since = COALESCE(k.since, clock_timestamp()), low = k.low AND EXCLUDED.low,
            touched = CASE WHEN k.touched < EXCLUDED.touched - interval '10 s' THEN EXCLUDED.touched ELSE k.touched END
        RETURNING k AS token)
    -- only a row that was made with all that it needs is without `since`
    SELECT array_agg(d.job ORDER BY d.place, d.job, d.at) FILTER (WHERE (k.token).since IS NULL),
           array_agg(d.at ORDER BY d.place, d.job, d.at) FILTER (WHERE (k.token).since IS NULL),
           array_agg(d.low ORDER BY d.place, d.job, d.at) FILTER (WHERE (k.token).since IS NULL),
           array_agg(k.token ORDER BY d.job, d.at) FILTER (WHERE (k.token).since IS NOT NULL)
      INTO ready_jobs, ready_ats, ready_lows, others
      FROM kept k JOIN judged d ON d.job = (k.token).job AND d.at = (k.token).at;
    IF ready_jobs IS NOT NULL THEN
        done := mill.activate_all(ready_jobs, ready_ats, ready_lows);
    END IF;
    IF others IS NOT NULL THEN
        FOREACH other IN ARRAY others LOOP
            done := done + mill.consume(other, (SELECT j FROM mill.job j WHERE j.id = other.job));
        END LOOP;
    END IF;
    RETURN done;
END
$function$;

-- Have clear or rerun overtaken a run? Then it is recorded, tried no more, and delivers nothing. Epoch -1: a run that
-- delivers nothing from the start; -2: one that is not to be tried again either.
CREATE FUNCTION mill.overtaken(job int, at timestamptz, epoch int) RETURNS bool
    LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN COALESCE(overtaken.epoch, 0)
        <> COALESCE((SELECT k.epoch FROM mill.token k WHERE k.job = overtaken.job AND k.at = overtaken.at), 0);
END
$function$;

-- The activation is over, for good: it delivers along its edges, and its place in the flow is free. Called exactly once for
-- each, in the transaction that ended it. How many others it came to; NULL: there is no such job any more. outcome:
-- succeeded, failed.
CREATE OR REPLACE FUNCTION mill.activation_ended(job int, at timestamptz, epoch int, outcome text) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    kind text := CASE outcome WHEN 'succeeded' THEN 'success' ELSE 'failure' END;
    ways record;
    mine record;
    t mill.token;
    j mill.job;
    single bool := false;
    enough bool;
    counts bool;
    fills bool;
    done int := 0;
BEGIN
    SELECT s.name, s.flow, f.parallel IS NOT NULL AS counts, w.* INTO ways
      FROM mill.job s LEFT JOIN mill.flow f ON f.name = s.flow, LATERAL (
        SELECT count(*) AS n, min(e.id) AS edge, min(g.id) AS target, bool_or(e.shift <> interval '0') AS shifted,
               bool_or(g.flow IS DISTINCT FROM s.flow) AS abroad
          FROM mill.edge e JOIN mill.job g ON g.name = e.job WHERE e.from_job = s.name AND e."on" IN (kind, 'done')) AS w
     WHERE s.id = activation_ended.job;
    IF ways.n IS NULL THEN
        RETURN NULL;
    ELSIF ways.n > 0 AND at IS NOT NULL THEN
        IF ways.abroad THEN
            PERFORM mill.enter((SELECT array_agg(DISTINCT f) FROM mill.edge e JOIN mill.job g ON g.name = e.job,
                LATERAL unnest(ARRAY[g.flow, ways.flow]) AS f WHERE e.from_job = ways.name AND e."on" IN (kind, 'done')));
        ELSIF ways.counts THEN
            PERFORM mill.enter(ARRAY[ways.flow]);
        ELSIF NOT pg_try_advisory_xact_lock_shared({flow_key}, hashtext(COALESCE(ways.flow, ''))) THEN
            PERFORM mill.enter(ARRAY[ways.flow]);
        END IF;
        single := ways.n = 1 AND NOT ways.shifted;
        IF single THEN
            -- one edge is soon told; overtaken, it delivers nothing
            INSERT INTO mill.token AS k (job, at, waiting, delivered, since, low)
            SELECT ways.target, activation_ended.at, ARRAY[ways.edge], ARRAY[ways.edge], clock_timestamp(), COALESCE(m.low, false)
              FROM (SELECT) AS one LEFT JOIN mill.token m ON m.job = activation_ended.job AND m.at = activation_ended.at
             WHERE COALESCE(m.epoch, 0) = COALESCE(activation_ended.epoch, 0)
            ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET waiting = k.waiting || EXCLUDED.delivered,
                delivered = k.delivered || EXCLUDED.delivered, since = COALESCE(k.since, clock_timestamp()), low = k.low AND EXCLUDED.low,
                touched = CASE WHEN k.touched < EXCLUDED.touched - interval '10 s' THEN EXCLUDED.touched ELSE k.touched END
            RETURNING k.* INTO t;
        ELSE
            SELECT k.epoch, k.low INTO mine FROM mill.token k WHERE k.job = activation_ended.job AND k.at = activation_ended.at;
            IF COALESCE(activation_ended.epoch, 0) = COALESCE(mine.epoch, 0) THEN
                done := mill.deliver(false, ARRAY[ways.name], ARRAY[activation_ended.at], ARRAY[kind], ARRAY[COALESCE(mine.low, false)]);
            END IF;
        END IF;
    END IF;
    IF single OR ways.flow IS NOT NULL THEN
        -- Asked once the flow's lock and the token's row are ours: a back-fill may wait for the end of this time, another run
        -- for the place, and fewer tokens than there are edges that have to deliver are never enough.
        SELECT EXISTS (SELECT FROM mill.backfill b WHERE b.finished IS NULL),
               EXISTS (SELECT FROM mill.flow f WHERE f.name = ways.flow AND f.parallel IS NOT NULL),
               (SELECT cardinality(t.waiting) >= COALESCE(g.threshold, (SELECT count(*) FROM mill.edge e
                           WHERE e.job = g.name AND e."on" <> 'failure' AND NOT e.first)) FROM mill.job g WHERE g.id = t.job)
          INTO fills, counts, enough;
        IF enough THEN
            SELECT g.* INTO j FROM mill.job g WHERE g.id = t.job;
            done := mill.consume(t, j);
        END IF;
        IF fills AND ways.flow IS NOT NULL AND at IS NOT NULL THEN
            PERFORM mill.ring(0);
        END IF;
        IF counts THEN
            PERFORM mill.release_flow(ways.flow);
        END IF;
    END IF;
    RETURN done;
END
$function$;
-- The same for many that have succeeded together, each of them once: one level of the graph, and free places. Those of a
-- job that delivers nothing to anybody only free their places.
CREATE FUNCTION mill.all_succeeded(jobs int[], ats timestamptz[], epochs int[]) RETURNS void
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
        PERFORM mill.enter(flows || own);
        -- one look into the index for each, however many tokens there have become since this was planned
        SELECT array_agg(j.name ORDER BY j.id, u.at), array_agg(u.at ORDER BY j.id, u.at), array_agg(COALESCE(k.low, false) ORDER BY j.id, u.at)
          INTO names, times, lows
          FROM unnest(jobs, ats, epochs) AS u (job, at, epoch) JOIN mill.job j ON j.id = u.job
          LEFT JOIN LATERAL (SELECT n.low, n.epoch FROM mill.token n WHERE n.job = u.job AND n.at = u.at LIMIT 1) AS k ON true
         WHERE u.epoch = COALESCE(k.epoch, 0);
        IF names IS NOT NULL THEN
            PERFORM mill.deliver(false, names, times, array_fill('success'::text, ARRAY[cardinality(names)]), lows);
        END IF;
    END IF;
    PERFORM mill.release_flow(f.name) FROM mill.flow f WHERE f.name = ANY (own) AND f.parallel IS NOT NULL;
END
$function$;

-- After a change of the graph or at resume: whatever is ready by now goes on. Of one job, or of all jobs of a flow.
CREATE FUNCTION mill.consider(job_ids int[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    t mill.token;
    j mill.job;
    done int := 0;
BEGIN
    PERFORM mill.enter((SELECT array_agg(DISTINCT n.flow) FROM mill.job n WHERE n.id = ANY (job_ids)));
    FOR t IN SELECT * FROM mill.token k WHERE k.job = ANY (job_ids) AND k.since IS NOT NULL ORDER BY k.job, k.at FOR UPDATE LOOP
        SELECT * INTO j FROM mill.job n WHERE n.id = t.job;
        done := done + mill.consume(t, j);
    END LOOP;
    RETURN done;
END
$function$;

-- A deleted edge takes its waiting tokens with it; what is left may be enough now.
CREATE FUNCTION mill.edge_gone() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    target int := (SELECT j.id FROM mill.job j WHERE j.name = OLD.job);
BEGIN
    IF target IS NULL OR EXISTS (SELECT FROM mill.edge WHERE id = OLD.id) THEN
        RETURN NULL;
    END IF;
    UPDATE mill.token k SET waiting = array_remove(k.waiting, OLD.id), delivered = array_remove(k.delivered, OLD.id),
           consumed = array_remove(k.consumed, OLD.id), since = CASE WHEN array_remove(k.waiting, OLD.id) <> '{}' THEN k.since END
     WHERE k.job = target AND k.delivered @> ARRAY[OLD.id];
    PERFORM mill.consider(ARRAY[target]);
    RETURN NULL;
END
$function$;
CREATE CONSTRAINT TRIGGER edge_gone AFTER DELETE ON mill.edge DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mill.edge_gone();
-- Another threshold, or the job is resumed: the waiting tokens are looked at again. A deleted job takes its tokens along.
CREATE FUNCTION mill.job_reconsidered() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM mill.token WHERE job = OLD.id;
    ELSE
        IF EXISTS (SELECT FROM mill.token k WHERE k.job = NEW.id AND k.since IS NOT NULL) THEN
            PERFORM mill.consider(ARRAY[NEW.id]);
        END IF;
        IF NEW.flow IS NOT NULL THEN
            PERFORM mill.release_flow(NEW.flow);
        END IF;
        PERFORM mill.ring(0);
    END IF;
    RETURN NULL;
END
$function$;
CREATE TRIGGER reconsidered AFTER DELETE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill.job_reconsidered();
CREATE CONSTRAINT TRIGGER reconsider AFTER UPDATE OF threshold, scheduled, flow ON mill.job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.threshold IS DISTINCT FROM OLD.threshold OR NEW.flow IS DISTINCT FROM OLD.flow OR (NEW.scheduled AND NOT OLD.scheduled))
    EXECUTE FUNCTION mill.job_reconsidered();
