-- Tokens: what edges have delivered, per job and logical time.
-- The row (job, at) is the lock: tokens are added and consumed and the job is activated under it, in the transaction of the end that
-- delivered. `waiting`, `delivered` and `consumed` are multisets of edge ids: one edge may deliver twice.
-- Lock order: runs, job states, flows (by key), tokens (by job and time).
-- parameters: none; locks: none; caller: installation, once per database

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
-- A token that joins others changes neither index, so that the row stays on its page.
CREATE INDEX ON mill.token (job, at) WHERE since IS NOT NULL;
CREATE INDEX ON mill.token (touched);
ALTER TABLE mill.token ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_job ON mill.token FOR SELECT USING (EXISTS (SELECT FROM mill.job j WHERE j.id = token.job));
COMMENT ON TABLE mill.token IS 'pgmill: what the edges of a job have delivered for a logical time';
COMMENT ON COLUMN mill.token.job IS 'the id of the job';
COMMENT ON COLUMN mill.token.at IS 'the logical time';
COMMENT ON COLUMN mill.token.waiting IS 'edges whose tokens wait; one that has delivered twice is listed twice';
COMMENT ON COLUMN mill.token.since IS 'when the oldest waiting token arrived; NULL: none waits';
COMMENT ON COLUMN mill.token.delivered IS 'all edges that have delivered: consumed and waiting';
COMMENT ON COLUMN mill.token.consumed IS 'edges whose tokens have become activations';
COMMENT ON COLUMN mill.token.activations IS 'how often tokens have activated the job for this time';
COMMENT ON COLUMN mill.token.skips IS 'how many of its next activations are skipped, by mill.skip';
COMMENT ON COLUMN mill.token.by_hand IS 'how often people have started the job for this time';
COMMENT ON COLUMN mill.token.epoch IS 'raised by clear and rerun: runs of an older epoch deliver nothing';
COMMENT ON COLUMN mill.token.low IS 'it was delivered by a back-fill, and its run starts after live work';
COMMENT ON COLUMN mill.token.touched IS 'when a token was delivered last, to within ten seconds';

-- What a timer has fired, and how often its own clock, back-fills and people have fired it. mill.integrity compares tokens with it. Rows
-- are kept as long as tokens.
CREATE TABLE mill.fired (
    timer int NOT NULL,
    at timestamptz NOT NULL,
    live int NOT NULL DEFAULT 0,
    filled int NOT NULL DEFAULT 0,
    by_hand int NOT NULL DEFAULT 0,
    revision int NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    PRIMARY KEY (timer, at)
);
CREATE INDEX ON mill.fired (made);
COMMENT ON TABLE mill.fired IS 'pgmill: the logical times that timers have fired';
COMMENT ON COLUMN mill.fired.timer IS 'the id of the timer';
COMMENT ON COLUMN mill.fired.at IS 'the logical time';
COMMENT ON COLUMN mill.fired.live IS 'by its own clock: once, and never again';
COMMENT ON COLUMN mill.fired.filled IS 'by back-fills';
COMMENT ON COLUMN mill.fired.by_hand IS 'by mill.fire';
COMMENT ON COLUMN mill.fired.revision IS 'of the timer, when it fired last';
COMMENT ON COLUMN mill.fired.made IS 'when it was fired first';
COMMENT ON COLUMN mill.fired.seen IS 'the transactions that had ended by then: edges made by them were known';

-- Everything that moves tokens of a flow shares its lock. Pause, clear and rerun take it exclusively, and so does a transaction that
-- counts the open runs of a flow with `parallel`. Jobs without a flow share one lock.
CREATE FUNCTION mill_private.lock_flows(flows text[], alone bool DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $function$
DECLARE
    f record;
BEGIN
    -- The most frequent case: one flow without `parallel`.
    IF cardinality(flows) = 1 AND NOT alone
            AND NOT EXISTS (SELECT FROM mill.flow w WHERE w.name = flows[1] AND w.parallel IS NOT NULL) THEN
        PERFORM pg_advisory_xact_lock_shared({flow_key}, hashtext(COALESCE(flows[1], '')));
        RETURN;
    END IF;
    FOR f IN SELECT hashtext(COALESCE(u.name, '')) AS key, lock_flows.alone OR COALESCE(bool_or(w.parallel IS NOT NULL), false) AS alone
               FROM unnest(flows) AS u (name) LEFT JOIN mill.flow w ON w.name = u.name GROUP BY 1 ORDER BY 1 LOOP
        IF f.alone THEN
            PERFORM pg_advisory_xact_lock({flow_key}, f.key);
        ELSE
            PERFORM pg_advisory_xact_lock_shared({flow_key}, f.key);
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.lock_flows(text[], bool) IS
    'pgmill: locks flows by advisory locks of this transaction, in the order of their keys';

CREATE FUNCTION mill_private.list_upstream_timers(job text) RETURNS SETOF mill.timer
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE way (name) AS (
        SELECT $1 UNION SELECT e.from_job FROM way w JOIN mill.edge e ON e.job = w.name WHERE e.from_job IS NOT NULL)
    SELECT t.* FROM mill.timer t
     WHERE EXISTS (SELECT FROM way w JOIN mill.edge e ON e.job = w.name WHERE e.from_timer = t.name)
$function$;
COMMENT ON FUNCTION mill_private.list_upstream_timers(text) IS 'pgmill: the timers from which tokens reach a job';

CREATE FUNCTION mill_private.get_job_zone(job text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT CASE WHEN count(DISTINCT t.timezone) = 1 THEN min(t.timezone) ELSE 'UTC' END FROM mill_private.list_upstream_timers($1) t
$function$;
COMMENT ON FUNCTION mill_private.get_job_zone(text) IS
    'pgmill: the time zone of a job''s logical times: that of its timers if they have one in common, else UTC';

CREATE FUNCTION mill_private.get_first_time(t mill.timer) RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT LEAST(t.first, t.next, CASE WHEN t.catchup IN ('earliest', 'latest', 'random') THEN t.start END,
                 (SELECT min(b.lo) FROM mill.backfill b WHERE b.timer = t.name))
$function$;
COMMENT ON FUNCTION mill_private.get_first_time(mill.timer) IS
    'pgmill: the smallest logical time that a timer has fired or will fire';

CREATE FUNCTION mill_private.is_before_first(e mill.edge, at timestamptz) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT e.first THEN
        RETURN false;
    ELSIF e.from_timer IS NOT NULL THEN
        RETURN COALESCE((SELECT mill_private.shift_time(at, - e.shift, t.timezone) < mill_private.get_first_time(t)
                           FROM mill.timer t WHERE t.name = e.from_timer), false);
    END IF;
    RETURN COALESCE(mill_private.shift_time(at, - e.shift, mill_private.get_job_zone(e.from_job))
                    < (SELECT min(mill_private.get_first_time(t)) FROM mill_private.list_upstream_timers(e.from_job) t), false);
END
$function$;
COMMENT ON FUNCTION mill_private.is_before_first(mill.edge, timestamptz) IS
    'pgmill: whether an edge counts as delivered, because its source has no logical time that early';

CREATE FUNCTION mill_private.pick_tokens(j mill.job, at timestamptz, waiting int[]) RETURNS int[]
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
    SELECT array_agg(e.id), bool_or(NOT e.id = ANY (waiting) AND NOT (e.first AND mill_private.is_before_first(e, pick_tokens.at))),
           array_agg(e.id ORDER BY e.id) FILTER (WHERE e.id = ANY (waiting))
      INTO needed, missing, picked
      FROM mill.edge e WHERE e.job = j.name AND e."on" <> 'failure';
    IF needed IS NULL THEN
        RETURN waiting[1:1];
    END IF;
    RETURN CASE WHEN NOT missing THEN picked END;
END
$function$;
COMMENT ON FUNCTION mill_private.pick_tokens(mill.job, timestamptz, int[]) IS
    'pgmill: the tokens that the next activation of a job would consume; NULL: it is not ready';

CREATE FUNCTION mill_private.is_paused(j mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN NOT j.scheduled OR (j.flow IS NOT NULL AND EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.paused));
END
$function$;
COMMENT ON FUNCTION mill_private.is_paused(mill.job) IS 'pgmill: whether a job or its flow is paused, so that its tokens wait';

-- Such a run is recorded, not retried, and delivers nothing. Two epochs never match that of a token: -1 for a run that delivers
-- nothing from the start, -2 for one that must not be retried either (`order_graph_run`).
CREATE FUNCTION mill_private.is_overtaken(job int, at timestamptz, epoch int) RETURNS bool
    LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN COALESCE(is_overtaken.epoch, 0)
        <> COALESCE((SELECT k.epoch FROM mill.token k WHERE k.job = is_overtaken.job AND k.at = is_overtaken.at), 0);
END
$function$;
COMMENT ON FUNCTION mill_private.is_overtaken(int, timestamptz, int) IS
    'pgmill: whether clear or rerun has reset the logical time of a run';

-- A run in a flow with `parallel` is held first and released by `release_flow_runs`.
CREATE FUNCTION mill_private.may_start(job mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN job.scheduled AND NOT EXISTS (SELECT FROM mill.flow f WHERE f.name = job.flow AND (f.paused OR f.parallel IS NOT NULL));
END
$function$;
COMMENT ON FUNCTION mill_private.may_start(mill.job) IS 'pgmill: whether a run of a job may start, apart from its time';

CREATE FUNCTION mill_private.get_retention(job int) RETURNS interval
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT f.keep FROM mill.job j JOIN mill.flow f ON f.name = j.flow WHERE j.id = get_retention.job), interval '1 month');
END
$function$;
COMMENT ON FUNCTION mill_private.get_retention(int) IS 'pgmill: how long runs and tokens of a job are kept';
