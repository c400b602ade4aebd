-- What is in use, and when the next timer is due.
-- parameters: timers to leave out; locks: none; caller: scheduler that keeps the graph, before it waits
SELECT * FROM mill_private.s_check_graph($1)
