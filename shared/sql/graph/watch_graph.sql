-- Is the graph ours to keep, and is any of it in use?
-- parameters: whether we keep it already, whether its bell is armed; locks: kinds 6 and 3, of the session; caller: scheduler
SELECT * FROM mill_private.s_watch_graph($1, $2)
