-- What is in use, and when the next timer is due.
-- parameters: timers to leave out; locks: none; caller: scheduler that keeps the graph, before it waits
SELECT * FROM mill.s_look_graph($1)
