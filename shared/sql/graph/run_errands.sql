-- Jobs without input come to their end.
-- parameters: how many; locks: their rows, flows, tokens; caller: scheduler that keeps the graph
SELECT mill.s_run_errands($1)
