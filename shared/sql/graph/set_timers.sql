-- The next times of new or edited timers, if nobody has edited them since.
-- parameters: ids, revisions, nexts, dues, troubles; locks: the timers; caller: scheduler that keeps the graph
SELECT mill_private.s_set_timers($1, $2, $3, $4, $5)
