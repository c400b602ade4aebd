-- Fires due timers in one transaction and sets their next times; returns the ids of those that were unchanged. `fires` are
-- the times that fire; `lows` and `highs` those of stretches.
-- parameters: ids int[], revisions int[], expected_nexts timestamptz[], fires timestamptz[], nexts timestamptz[],
--     dues timestamptz[], skipped bigint[], lows timestamptz[], highs timestamptz[]
-- locks: the timers, flows, tokens
-- caller: scheduler that keeps the graph
SELECT * FROM mill_private.s_fire_timers(:ids, :revisions, :expected_nexts, :fires, :nexts, :dues, :skipped, :lows, :highs)
