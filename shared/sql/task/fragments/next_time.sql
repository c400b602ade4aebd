-- The next time of a repeating row: from now (drift), or the first of plan + k * repeat after now. A task that has
-- waited after crashes keeps its own plan in `at`. k is bounded from both sides by arithmetic (a month has 28 to 31
-- days, a day may be an hour longer or shorter), never by a loop from 1.
CASE WHEN t.drift OR COALESCE(t.at, t.plan) = '-infinity' THEN statement_timestamp() + t.repeat ELSE COALESCE((
    SELECT COALESCE(t.at, t.plan) + k * t.repeat FROM (
        SELECT extract(epoch FROM statement_timestamp() - COALESCE(t.at, t.plan)) AS elapsed,
               extract(year FROM t.repeat) * 12 + extract(month FROM t.repeat) AS months,
               extract(day FROM t.repeat) * 86400 + extract(hour FROM t.repeat) * 3600
                   + extract(minute FROM t.repeat) * 60 + extract(second FROM t.repeat) AS seconds,
               CASE WHEN extract(day FROM t.repeat) = 0 AND extract(month FROM t.repeat) = 0 AND extract(year FROM t.repeat) = 0
                    THEN 0 ELSE 14400 END AS slack) AS part,
        LATERAL (SELECT GREATEST(1, floor((elapsed - slack) / GREATEST(months * 2678400 + seconds, 0.000001))) AS low,
                        floor((elapsed + slack) / GREATEST(months * 2419200 + seconds, 0.000001)) + 1 AS high) AS bound,
        LATERAL generate_series(low::bigint, LEAST(GREATEST(high, low), low + 100000)::bigint) AS k
     WHERE COALESCE(t.at, t.plan) + k * t.repeat > statement_timestamp() ORDER BY k LIMIT 1), statement_timestamp() + t.repeat) END
