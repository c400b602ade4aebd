-- What the keeper calls, the scheduler that fires timers and ends runs that need no worker: the functions s_*.
-- A timer moves on in the transaction in which it fires; timers that are due together share one. The program computes next times
-- (SQL cannot compute cron). A timer fires only if its row is as it was when that was computed, and still due, so that two
-- schedulers cannot fire the same time. Commits need not wait for the disk: a crash of the server undoes a fire with all that
-- follows, and any later commit of a run makes it durable.
-- parameters: none; locks: none; caller: installation, once per database

-- First those whose next time is to be computed, then those that are due, in the order in which they fire. `except_for` are timers that
-- have failed a moment ago.
CREATE FUNCTION mill_private.s_list_timers(most int, except_for int[]) RETURNS TABLE (id int, name text, revision int, stale text,
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
      FROM mill.timer t WHERE t.due <= moment AND t.stale IS NULL AND NOT t.id = ANY (except_for) AND NOT mill_private.is_timer_paused(t)
     ORDER BY t.due, t.id LIMIT most;
END
$function$;
COMMENT ON FUNCTION mill_private.s_list_timers(int, int[]) IS 'pgmill: timers that the keeper has to compute or fire';

-- Skips timers that were edited again meanwhile. Returns the number of timers.
CREATE FUNCTION mill_private.s_set_timers(ids int[], revisions int[], nexts timestamptz[], dues timestamptz[], reasons text[]) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    done int;
BEGIN
    UPDATE mill.timer t SET next = u.next, due = CASE WHEN t.enabled THEN u.due END, stale = NULL, trouble = u.trouble
      FROM unnest(ids, revisions, nexts, dues, reasons) AS u (id, revision, next, due, trouble)
     WHERE t.id = u.id AND t.revision = u.revision AND t.stale IS NOT NULL;
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.s_set_timers(int[], int[], timestamptz[], timestamptz[], text[]) IS
    'pgmill: stores the next times of new or edited timers';

-- Skips a timer that is not as expected or that somebody else has locked. `los` and `his` are ranges of missed times, which become
-- back-fills. Returns the timers that were as expected, and the number of activations.
CREATE FUNCTION mill_private.s_fire_timers(ids int[], revisions int[], expecteds timestamptz[], fires timestamptz[], nexts timestamptz[],
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
                      AND t.due <= moment AND NOT mill_private.is_timer_paused(t)
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
    activated := CASE WHEN names IS NULL THEN 0 ELSE mill_private.fire_times(names, times, 'live') END;
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill_private.s_fire_timers(int[], int[], timestamptz[], timestamptz[], timestamptz[], timestamptz[], bigint[], timestamptz[], timestamptz[]) IS
    'pgmill: fires a time of each of these timers, or skips missed times, and moves them on';

-- A logical time is open while one of its runs has not ended or waits for a retry.
CREATE FUNCTION mill_private.count_open_times(flow text) RETURNS int
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN (SELECT count(DISTINCT r.at) FROM mill.job j JOIN mill_private.run r ON r.job = j.id
             WHERE j.flow = count_open_times.flow AND r.outcome IS NULL);
END
$function$;
COMMENT ON FUNCTION mill_private.count_open_times(text) IS 'pgmill: how many logical times of a flow are open';

CREATE FUNCTION mill_private.count_free_times(timer text) RETURNS int
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    f record;
    room int;
BEGIN
    FOR f IN SELECT DISTINCT w.name, w."window" FROM mill.edge e JOIN mill.job j ON j.name = e.job JOIN mill.flow w ON w.name = j.flow
              WHERE e.from_timer = count_free_times.timer AND w."window" IS NOT NULL LOOP
        room := LEAST(room, f."window" - mill_private.count_open_times(f.name));
    END LOOP;
    RETURN CASE WHEN room < 0 THEN 0 ELSE room END;
END
$function$;
COMMENT ON FUNCTION mill_private.count_free_times(text) IS
    'pgmill: how many more logical times a back-fill of this timer may open; NULL: no limit';

CREATE FUNCTION mill_private.needs_no_worker(timer text) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((
        WITH RECURSIVE way (name) AS (
            SELECT e.job FROM mill.edge e WHERE e.from_timer = needs_no_worker.timer
            UNION SELECT e.job FROM way w JOIN mill.edge e ON e.from_job = w.name)
        SELECT bool_and(j.input IS NULL AND j.scheduled AND NOT mill_private.has_schedule(j) AND f.parallel IS NULL AND NOT COALESCE(f.paused, false))
          FROM way w JOIN mill.job j ON j.name = w.name LEFT JOIN mill.flow f ON f.name = j.flow), false);
END
$function$;
COMMENT ON FUNCTION mill_private.needs_no_worker(text) IS
    'pgmill: whether everything downstream of a timer needs no worker, and none of it is paused or limited';

-- Level by level, so that other transactions never see one of these times open. Returns false, with nothing done, if more stays open
-- than the window allows or a statement was refused.
CREATE FUNCTION mill_private.fire_and_finish(t mill.timer, times timestamptz[]) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    room int := mill_private.count_free_times(t.name);
BEGIN
    PERFORM mill_private.fire_times(array_fill(t.name, ARRAY[cardinality(times)]), times, 'filled');
    -- up to 100 levels of the graph, 1000 runs each
    FOR level IN 1..100 LOOP
        EXIT WHEN mill_private.end_idle_runs(1000) = 0;
    END LOOP;
    IF mill_private.count_free_times(t.name) < LEAST(room, 1) THEN
        RAISE EXCEPTION 'more than the window';
    END IF;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END
$function$;
COMMENT ON FUNCTION mill_private.fire_and_finish(mill.timer, timestamptz[]) IS
    'pgmill: fires logical times of a timer and ends all that follows from them';

CREATE FUNCTION mill_private.s_list_backfills(most int) RETURNS TABLE (id int, lo timestamptz, hi timestamptz, "order" text,
        fired bigint, at timestamptz, span int, pos int, start timestamptz, period interval, cron text, timezone text, room int)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
    SELECT o.* FROM (
        SELECT b.id, b.lo, b.hi, b."order", b.fired, b.at, b.span, b.pos, b.start, b.period, b.cron, b.timezone, mill_private.count_free_times(b.timer) AS room
          FROM mill.backfill b JOIN mill.timer t ON t.name = b.timer
         WHERE b.finished IS NULL AND NOT b.paused AND b.trouble IS NULL AND t.enabled AND NOT mill_private.is_timer_paused(t)
         ORDER BY b.id) AS o
     WHERE COALESCE(o.room, 1) > 0 LIMIT most
$function$;
COMMENT ON FUNCTION mill_private.s_list_backfills(int) IS 'pgmill: back-fills that can go on';

-- As many times as the window allows, or all that are given if none of them stays open. `spans` and `poss` are the position after
-- each time. Returns how many were fired; NULL, with nothing done, if the row is not as expected.
CREATE FUNCTION mill_private.s_advance_backfill(id int, was_fired bigint, times timestamptz[], spans int[], poss int[], ends bool) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    backfill_row mill.backfill;
    timer_row mill.timer;
    n int := cardinality(times);
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- Lock the timer first, as a DELETE of it does, which deletes its back-fills.
    PERFORM FROM mill.timer stored WHERE stored.name = (SELECT one.timer FROM mill.backfill one WHERE one.id = s_advance_backfill.id) FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO backfill_row FROM mill.backfill stored WHERE stored.id = s_advance_backfill.id FOR NO KEY UPDATE SKIP LOCKED;
    IF backfill_row.id IS NULL OR backfill_row.fired <> was_fired OR backfill_row.paused OR backfill_row.finished IS NOT NULL THEN
        RETURN NULL;
    END IF;
    SELECT * INTO timer_row FROM mill.timer stored WHERE stored.name = backfill_row.timer;
    IF timer_row.id IS NULL OR NOT timer_row.enabled OR mill_private.is_timer_paused(timer_row) THEN
        RETURN NULL;
    END IF;
    -- Exclusively where a window is counted: otherwise this transaction would not see the times that others open meanwhile.
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT one.name) FROM mill.edge edge_row JOIN mill.job job_row ON job_row.name = edge_row.job
                          JOIN mill.flow one ON one.name = job_row.flow WHERE edge_row.from_timer = timer_row.name AND one."window" IS NOT NULL), true);
    IF n > 0 AND NOT (mill_private.needs_no_worker(timer_row.name) AND mill_private.fire_and_finish(timer_row, times)) THEN
        n := LEAST(n, mill_private.count_free_times(timer_row.name));
        IF n > 0 THEN
            PERFORM mill_private.fire_times(array_fill(timer_row.name, ARRAY[n]), times[1:n], 'filled');
        END IF;
    END IF;
    UPDATE mill.backfill stored SET fired = stored.fired + n, at = COALESCE(times[n], stored.at), span = COALESCE(spans[n], stored.span),
           pos = COALESCE(poss[n], stored.pos),
           finished = CASE WHEN ends AND n = cardinality(times) THEN clock_timestamp() END
     WHERE stored.id = backfill_row.id;
    IF n > 0 THEN
        UPDATE mill.timer stored SET first = LEAST(stored.first, (SELECT min(fired_at) FROM unnest(times[1:n]) AS fired_at)),
               last = GREATEST(stored.last, (SELECT max(fired_at) FROM unnest(times[1:n]) AS fired_at))
         WHERE stored.id = timer_row.id;
    END IF;
    RETURN n;
END
$function$;
COMMENT ON FUNCTION mill_private.s_advance_backfill(int, bigint, timestamptz[], int[], int[], bool) IS
    'pgmill: fires the next times of a back-fill';

CREATE FUNCTION mill_private.s_stop_backfill(id int, trouble text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
    UPDATE mill.backfill b SET trouble = $2 WHERE b.id = $1
$function$;
COMMENT ON FUNCTION mill_private.s_stop_backfill(int, text) IS 'pgmill: notes why a back-fill cannot go on';

CREATE FUNCTION mill_private.s_end_idle_runs(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN mill_private.end_idle_runs(most);
END
$function$;
COMMENT ON FUNCTION mill_private.s_end_idle_runs(int) IS 'pgmill: ends runs of jobs without input, and skipped ones';

-- A small batch. Returns the number of rows.
CREATE FUNCTION mill_private.s_sweep_graph(most int) RETURNS int
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
        SELECT s.ctid FROM mill_private.stash s LEFT JOIN mill.flow f ON f.name = s.flow
         WHERE s.touched < clock_timestamp() - COALESCE(f.keep, interval '1 month') LIMIT most FOR UPDATE OF s SKIP LOCKED)
    DELETE FROM mill_private.stash s USING old WHERE s.ctid = old.ctid;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    WITH old AS (
        SELECT d.timer, d.at FROM mill.fired d LEFT JOIN mill.timer t ON t.id = d.timer
         WHERE d.made < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND d.made < clock_timestamp() - COALESCE((SELECT max(mill_private.get_retention(j.id)) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                                                       WHERE e.from_timer = t.name), interval '0')
         ORDER BY d.made LIMIT most FOR UPDATE OF d SKIP LOCKED)
    DELETE FROM mill.fired d USING old WHERE d.timer = old.timer AND d.at = old.at;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    -- Runs that no scheduler deletes, because they were in no queue or their queue does not exist any more.
    WITH old AS (
        SELECT r.id FROM mill_private.run r
         WHERE r.outcome IS NOT NULL AND r.recall IS NULL AND NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = r.queue)
           AND r.stop < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND r.stop < mill.now() - mill_private.get_retention(r.job) LIMIT most FOR UPDATE SKIP LOCKED)
    DELETE FROM mill_private.run r USING old WHERE r.id = old.id;
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN gone + more;
END
$function$;
COMMENT ON FUNCTION mill_private.s_sweep_graph(int) IS
    'pgmill: deletes old tokens, stashed values, fired times, and runs that no scheduler deletes';

CREATE FUNCTION mill_private.s_check_graph(except_for int[]) RETURNS TABLE (used bool, idle bool, due_ms float8)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    idle := EXISTS (SELECT FROM mill_private.run r WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL AND r.due <= mill.now());
    used := idle OR EXISTS (SELECT FROM mill.timer) OR EXISTS (SELECT FROM mill.backfill b WHERE b.finished IS NULL)
        OR EXISTS (SELECT FROM mill_private.run r WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL);
    due_ms := CASE WHEN EXISTS (SELECT FROM mill.timer t WHERE t.stale IS NOT NULL AND NOT t.id = ANY (except_for)) THEN 0
        ELSE (SELECT GREATEST(ceil(extract(epoch FROM t.due - mill.now()) * 1000), 0) FROM mill.timer t
               WHERE t.due IS NOT NULL AND NOT t.id = ANY (except_for) AND NOT mill_private.is_timer_paused(t) ORDER BY t.due LIMIT 1) END;
    due_ms := LEAST(due_ms, (SELECT GREATEST(ceil(extract(epoch FROM r.due - mill.now()) * 1000), 0) FROM mill_private.run r
                              WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL ORDER BY r.due, r.id LIMIT 1));
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill_private.s_check_graph(int[]) IS
    'pgmill: whether anything of the graph is used, whether runs wait that need no worker, and in how many ms the next timer is due';

-- Takes the lock of the keeper if it is free. While nothing of the graph is used, takes the wake-up lock as well, and then checks the graph
-- once more: a change before that lock was held has notified nobody.
CREATE FUNCTION mill_private.s_watch_graph(held bool, armed bool) RETURNS TABLE (keeps bool, hears bool, used bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    keeps := held OR pg_try_advisory_lock({graph_key}, 0);
    hears := keeps AND (armed OR pg_try_advisory_lock({wakeup_key}, 0));
    used := keeps AND (SELECT g.used FROM mill_private.s_check_graph('{}') g);
    IF used AND hears THEN
        PERFORM pg_advisory_unlock({wakeup_key}, 0);
        hears := false;
    END IF;
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill_private.s_watch_graph(bool, bool) IS 'pgmill: whether this session keeps the graph';
