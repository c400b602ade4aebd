-- Runs that need no worker come to their end.
-- parameters: how many; locks: the runs, flows, tokens; caller: scheduler that keeps the graph
SELECT mill_private.s_end_idle_runs($1)
