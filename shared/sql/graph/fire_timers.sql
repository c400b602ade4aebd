-- Timers that are due fire, in one transaction, in which they also move on; the ids of those that were as expected.
-- parameters: ids, revisions, expected nexts, times that fire, nexts, dues, skipped, los and his of stretches; locks: the timers, flows, tokens; caller: scheduler that keeps the graph
SELECT * FROM mill_private.s_fire_timers($1, $2, $3, $4, $5, $6, $7, $8, $9)
