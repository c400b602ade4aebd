-- What is in use, and when the next timer is due.
-- parameters: left_out int[]
-- locks: none
-- caller: scheduler that keeps the graph, before it waits
SELECT * FROM mill.s_look_graph(:left_out)
