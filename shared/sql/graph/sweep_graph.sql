-- Deletes old tokens and stashed values.
-- parameters: rows int
-- locks: the rows
-- caller: scheduler that keeps the graph, once a minute
SELECT mill_private.s_sweep_graph(:rows)
