-- Timers fire: their logical times deliver tokens.
-- parameters: none; locks: none; caller: installation, once per database

-- A timer pauses with its flow, or when everything that it feeds is paused.
CREATE FUNCTION mill_private.is_timer_paused(t mill.timer) RETURNS bool
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
COMMENT ON FUNCTION mill_private.is_timer_paused(mill.timer) IS 'pgmill: whether a timer is paused';

-- `how` is live (by its own clock), filled (by a back-fill) or by_hand. Returns the number of activations.
CREATE FUNCTION mill_private.fire_times(names text[], times timestamptz[], how text) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
BEGIN
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT j.flow) FROM (SELECT DISTINCT u AS name FROM unnest(names) AS u) AS n
                          JOIN mill.edge e ON e.from_timer = n.name JOIN mill.job j ON j.name = e.job));
    INSERT INTO mill.fired AS f (timer, at, live, filled, by_hand, revision)
    SELECT t.id, u.at, (how = 'live')::int, (how = 'filled')::int, (how = 'by_hand')::int, t.revision
      FROM unnest(names, times) AS u (name, at) JOIN mill.timer t ON t.name = u.name ORDER BY t.id, u.at
    ON CONFLICT ON CONSTRAINT fired_pkey DO UPDATE SET live = f.live + EXCLUDED.live, filled = f.filled + EXCLUDED.filled,
        by_hand = f.by_hand + EXCLUDED.by_hand, revision = EXCLUDED.revision;
    RETURN mill_private.deliver_tokens(true, names, times, NULL, array_fill(how = 'filled', ARRAY[cardinality(names)]));
END
$function$;
COMMENT ON FUNCTION mill_private.fire_times(text[], timestamptz[], text) IS
    'pgmill: fires logical times of timers: notes them in mill.fired and delivers their tokens';
