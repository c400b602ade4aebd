-- Sets the next times of new or edited timers, unless they were edited since.
-- parameters: ids int[], revisions int[], nexts timestamptz[], dues timestamptz[], reasons text[]
-- locks: the timers
-- caller: scheduler that keeps the graph
SELECT mill_private.s_set_timers(:ids, :revisions, :nexts, :dues, :reasons)
