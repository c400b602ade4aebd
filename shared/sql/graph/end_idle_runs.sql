-- Ends runs that need no worker.
-- parameters: rows int
-- locks: the runs, flows, tokens
-- caller: scheduler that keeps the graph
SELECT mill_private.s_end_idle_runs(:rows)
