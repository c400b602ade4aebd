-- What the scheduler that keeps the timers asks: which timers want their next time, which are due, and: fire. A timer moves
-- on in the transaction in which it fires; those that are due together share one. The next time comes from the program
-- (cron is its business); the row must be as it was when that was computed, and due still, so that two schedulers cannot
-- fire the same time. Commits here need not wait for the disk: what a fire has made is lost together with the fire, and
-- any later commit of a run brings it along.
-- parameters: none; locks: none; caller: whoever installs, once per database
-- A timer stands still with its flow, or when all that it feeds is paused.
CREATE FUNCTION mill.stands_still(t mill.timer) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM mill.flow f WHERE f.paused) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM mill.flow f WHERE f.name = t.flow AND f.paused)
        OR COALESCE((SELECT bool_and(COALESCE(f.paused, false)) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                       LEFT JOIN mill.flow f ON f.name = j.flow WHERE e.from_timer = t.name), false);
END
$function$;

-- Timers whose next time is to be computed, and those that are due, in the order in which they fire; but for those that
-- have given trouble a moment ago.
CREATE FUNCTION mill.s_list_timers(most int, except_for int[]) RETURNS TABLE (id int, name text, revision int, stale text,
        start timestamptz, stop timestamptz, period interval, cron text, timezone text, shift interval, catchup text,
        catchup_age interval, last timestamptz, next timestamptz, due timestamptz, now timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    moment timestamptz := mill.now();
BEGIN
    RETURN QUERY
    SELECT t.id, t.name, t.revision, t.stale, t.start, NULLIF(t.stop, 'infinity'), t.period, t.cron, t.timezone, t.shift, t.catchup,
           t.catchup_age, t.last, t.next, t.due, moment
      FROM mill.timer t WHERE t.stale IS NOT NULL AND NOT t.id = ANY (except_for) ORDER BY t.id LIMIT most;
    RETURN QUERY
    SELECT t.id, t.name, t.revision, t.stale, t.start, NULLIF(t.stop, 'infinity'), t.period, t.cron, t.timezone, t.shift, t.catchup,
           t.catchup_age, t.last, t.next, t.due, moment
      FROM mill.timer t WHERE t.due <= moment AND t.stale IS NULL AND NOT t.id = ANY (except_for) AND NOT mill.stands_still(t)
     ORDER BY t.due, t.id LIMIT most;
END
$function$;

-- The next times of timers that were new or edited. Not those that have been edited again meanwhile.
CREATE FUNCTION mill.s_set_timers(ids int[], revisions int[], nexts timestamptz[], dues timestamptz[], troubles text[]) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    done int;
BEGIN
    UPDATE mill.timer t SET next = u.next, due = CASE WHEN t.enabled THEN u.due END, stale = NULL, trouble = u.trouble
      FROM unnest(ids, revisions, nexts, dues, troubles) AS u (id, revision, next, due, trouble)
     WHERE t.id = u.id AND t.revision = u.revision AND t.stale IS NOT NULL;
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END
$function$;

-- Fires a time of each of these timers, or skips missed ones, and moves them on, in this order. Those that are not as
-- expected, or that somebody else has, are left out. Which were as expected, and how many activations it came to in all.
CREATE FUNCTION mill.s_fire(ids int[], revisions int[], expecteds timestamptz[], fires timestamptz[], nexts timestamptz[],
        dues timestamptz[], skippeds bigint[], los timestamptz[], his timestamptz[]) RETURNS TABLE (fired int[], activated int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
    moment timestamptz := mill.now();
    names text[];
    times timestamptz[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    fired := ARRAY(SELECT t.id FROM unnest(ids, revisions, expecteds) WITH ORDINALITY AS u (id, revision, expected, place)
                     JOIN mill.timer t ON t.id = u.id
                    WHERE t.revision = u.revision AND t.stale IS NULL AND t.next IS NOT DISTINCT FROM u.expected AND t.enabled
                      AND t.due <= moment AND NOT mill.stands_still(t)
                    ORDER BY u.place FOR NO KEY UPDATE OF t SKIP LOCKED);
    UPDATE mill.timer t SET first = LEAST(t.first, u.fires), last = GREATEST(t.last, u.fires), next = u.next, due = u.due,
           skipped = t.skipped + u.skipped
      FROM unnest(ids, fires, nexts, dues, skippeds) AS u (id, fires, next, due, skipped) JOIN unnest(fired) AS f (id) ON f.id = u.id
     WHERE t.id = u.id;
    INSERT INTO mill.backfill (timer, lo, hi, "order")
    SELECT t.name, u.lo, u.hi, t.catchup FROM unnest(ids, los, his) AS u (id, lo, hi) JOIN unnest(fired) AS f (id) ON f.id = u.id
      JOIN mill.timer t ON t.id = u.id WHERE u.lo IS NOT NULL ORDER BY t.id;
    SELECT array_agg(t.name ORDER BY u.place), array_agg(u.fires ORDER BY u.place) INTO names, times
      FROM unnest(ids, fires) WITH ORDINALITY AS u (id, fires, place) JOIN unnest(fired) AS f (id) ON f.id = u.id
      JOIN mill.timer t ON t.id = u.id WHERE u.fires IS NOT NULL;
    activated := CASE WHEN names IS NULL THEN 0 ELSE mill.fire_now(names, times, 'live') END;
    RETURN NEXT;
END
$function$;
-- The journal of fires: what a timer has fired, and how often its own clock, back-fills and people had it fire that. It is
-- what the tokens are compared with; kept as long as they are.
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
COMMENT ON COLUMN mill.fired.live IS 'by its own clock: once, and never again';
COMMENT ON COLUMN mill.fired.filled IS 'by back-fills';
COMMENT ON COLUMN mill.fired.by_hand IS 'by mill.fire';
COMMENT ON COLUMN mill.fired.seen IS 'what was over by then: what that has made was known';
COMMENT ON COLUMN mill.fired.revision IS 'of the timer, when it fired last';

-- The tokens of some times of timers. how: live, filled, by_hand.
CREATE FUNCTION mill.fire_now(names text[], times timestamptz[], how text) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
BEGIN
    PERFORM mill.enter((SELECT array_agg(DISTINCT j.flow) FROM (SELECT DISTINCT u AS name FROM unnest(names) AS u) AS n
                          JOIN mill.edge e ON e.from_timer = n.name JOIN mill.job j ON j.name = e.job));
    INSERT INTO mill.fired AS f (timer, at, live, filled, by_hand, revision)
    SELECT t.id, u.at, (how = 'live')::int, (how = 'filled')::int, (how = 'by_hand')::int, t.revision
      FROM unnest(names, times) AS u (name, at) JOIN mill.timer t ON t.name = u.name ORDER BY t.id, u.at
    ON CONFLICT ON CONSTRAINT fired_pkey DO UPDATE SET live = f.live + EXCLUDED.live, filled = f.filled + EXCLUDED.filled,
        by_hand = f.by_hand + EXCLUDED.by_hand, revision = EXCLUDED.revision;
    RETURN mill.deliver(true, names, times, NULL, array_fill(how = 'filled', ARRAY[cardinality(names)]));
END
$function$;

-- How many more times may be opened by a back-fill of this timer; NULL: no limit.
CREATE FUNCTION mill.room(timer text) RETURNS int
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    f record;
    room int;
BEGIN
    FOR f IN SELECT DISTINCT w.name, w."window" FROM mill.edge e JOIN mill.job j ON j.name = e.job JOIN mill.flow w ON w.name = j.flow
              WHERE e.from_timer = room.timer AND w."window" IS NOT NULL LOOP
        room := LEAST(room, f."window" - mill.open_times(f.name));
    END LOOP;
    RETURN CASE WHEN room < 0 THEN 0 ELSE room END;
END
$function$;
-- The logical times of a flow that are open: with a run that has not ended, or that waits for its retry.
CREATE FUNCTION mill.open_times(flow text) RETURNS int
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN (SELECT count(DISTINCT r.at) FROM mill.job j JOIN mill_private.run r ON r.job = j.id
             WHERE j.flow = open_times.flow AND r.outcome IS NULL);
END
$function$;

-- The back-fills that can go on.
CREATE FUNCTION mill.s_list_backfills(most int) RETURNS TABLE (id int, lo timestamptz, hi timestamptz, "order" text,
        fired bigint, at timestamptz, span int, pos int, start timestamptz, period interval, cron text, timezone text, room int)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
    SELECT o.* FROM (
        SELECT b.id, b.lo, b.hi, b."order", b.fired, b.at, b.span, b.pos, b.start, b.period, b.cron, b.timezone, mill.room(b.timer) AS room
          FROM mill.backfill b JOIN mill.timer t ON t.name = b.timer
         WHERE b.finished IS NULL AND NOT b.paused AND b.trouble IS NULL AND t.enabled AND NOT mill.stands_still(t)
         ORDER BY b.id) AS o
     WHERE COALESCE(o.room, 1) > 0 LIMIT most
$function$;

-- Does all that follows from a timer go without a worker, and is none of it paused or counted?
CREATE FUNCTION mill.runs_by_itself(timer text) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((
        WITH RECURSIVE way (name) AS (
            SELECT e.job FROM mill.edge e WHERE e.from_timer = runs_by_itself.timer
            UNION SELECT e.job FROM way w JOIN mill.edge e ON e.from_job = w.name)
        SELECT bool_and(j.input IS NULL AND j.scheduled AND NOT mill.has_schedule(j) AND f.parallel IS NULL AND NOT COALESCE(f.paused, false))
          FROM way w JOIN mill.job j ON j.name = w.name LEFT JOIN mill.flow f ON f.name = j.flow), false);
END
$function$;
-- Fires these times and brings all that follows from them to its end, level by level: when others see it, none of them is
-- open. False: more has stayed open than the window allows, or something was refused, and nothing was done.
CREATE FUNCTION mill.fill_whole(t mill.timer, times timestamptz[]) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    room int := mill.room(t.name);
BEGIN
    PERFORM mill.fire_now(array_fill(t.name, ARRAY[cardinality(times)]), times, 'filled');
    FOR level IN 1..100 LOOP
        EXIT WHEN mill.end_idle_runs(1000) = 0;
    END LOOP;
    IF mill.room(t.name) < LEAST(room, 1) THEN
        RAISE EXCEPTION 'more than the window';
    END IF;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END
$function$;

-- The next times of a back-fill, as many as the window lets through, or as are given, if none of them stays open; where it
-- then stands was computed with them. NULL: it was not as expected, and nothing was done; else how many were fired.
CREATE FUNCTION mill.s_fill_back(id int, was_fired bigint, times timestamptz[], spans int[], poss int[], ends bool) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    b mill.backfill;
    t mill.timer;
    n int := cardinality(times);
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- the timer first, as a DELETE of it does, which takes its back-fills along
    PERFORM FROM mill.timer k WHERE k.name = (SELECT f.timer FROM mill.backfill f WHERE f.id = s_fill_back.id) FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO b FROM mill.backfill k WHERE k.id = s_fill_back.id FOR NO KEY UPDATE SKIP LOCKED;
    IF b.id IS NULL OR b.fired <> was_fired OR b.paused OR b.finished IS NOT NULL THEN
        RETURN NULL;
    END IF;
    SELECT * INTO t FROM mill.timer k WHERE k.name = b.timer;
    IF t.id IS NULL OR NOT t.enabled OR mill.stands_still(t) THEN
        RETURN NULL;
    END IF;
    -- alone where it counts: what others open meanwhile would not be seen
    PERFORM mill.enter((SELECT array_agg(DISTINCT f.name) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                          JOIN mill.flow f ON f.name = j.flow WHERE e.from_timer = t.name AND f."window" IS NOT NULL), true);
    IF n > 0 AND NOT (mill.runs_by_itself(t.name) AND mill.fill_whole(t, times)) THEN
        n := LEAST(n, mill.room(t.name));
        IF n > 0 THEN
            PERFORM mill.fire_now(array_fill(t.name, ARRAY[n]), times[1:n], 'filled');
        END IF;
    END IF;
    UPDATE mill.backfill k SET fired = k.fired + n, at = COALESCE(times[n], k.at), span = COALESCE(spans[n], k.span), pos = COALESCE(poss[n], k.pos),
           finished = CASE WHEN ends AND n = cardinality(times) THEN clock_timestamp() END
     WHERE k.id = b.id;
    IF n > 0 THEN
        UPDATE mill.timer k SET first = LEAST(k.first, (SELECT min(u) FROM unnest(times[1:n]) AS u)),
               last = GREATEST(k.last, (SELECT max(u) FROM unnest(times[1:n]) AS u))
         WHERE k.id = t.id;
    END IF;
    RETURN n;
END
$function$;
CREATE FUNCTION mill.s_stop_backfill(id int, trouble text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
    UPDATE mill.backfill b SET trouble = $2 WHERE b.id = $1
$function$;

-- What the scheduler that keeps the timers wants to know before it sleeps: is there anything of the graph at all, are there
-- runs that need no worker, stretches to fill, and how many milliseconds until the next timer is due.
CREATE FUNCTION mill.s_look_graph(except_for int[]) RETURNS TABLE (used bool, idle bool, due_ms float8)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    idle := EXISTS (SELECT FROM mill_private.run r WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL AND r.due <= mill.now());
    used := idle OR EXISTS (SELECT FROM mill.timer) OR EXISTS (SELECT FROM mill.backfill b WHERE b.finished IS NULL)
        OR EXISTS (SELECT FROM mill_private.run r WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL);
    due_ms := CASE WHEN EXISTS (SELECT FROM mill.timer t WHERE t.stale IS NOT NULL AND NOT t.id = ANY (except_for)) THEN 0
        ELSE (SELECT GREATEST(ceil(extract(epoch FROM t.due - mill.now()) * 1000), 0) FROM mill.timer t
               WHERE t.due IS NOT NULL AND NOT t.id = ANY (except_for) AND NOT mill.stands_still(t) ORDER BY t.due LIMIT 1) END;
    due_ms := LEAST(due_ms, (SELECT GREATEST(ceil(extract(epoch FROM r.due - mill.now()) * 1000), 0) FROM mill_private.run r
                              WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL ORDER BY r.due, r.id LIMIT 1));
    RETURN NEXT;
END
$function$;
-- Is the catalog's graph ours to keep? Tried until the lock is held; then, while nothing of it is used, its bell is held too,
-- and what is in use is looked for once more, because whoever came before the bell was held rang nobody.
CREATE FUNCTION mill.s_watch_graph(held bool, armed bool) RETURNS TABLE (keeps bool, hears bool, used bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    keeps := held OR pg_try_advisory_lock({graph_key}, 0);
    hears := keeps AND (armed OR pg_try_advisory_lock({bell_key}, 0));
    used := keeps AND (SELECT g.used FROM mill.s_look_graph('{}') g);
    IF used AND hears THEN
        PERFORM pg_advisory_unlock({bell_key}, 0);
        hears := false;
    END IF;
    RETURN NEXT;
END
$function$;
