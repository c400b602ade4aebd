-- Reads what is in use, and when the next timer is due.
-- parameters: left_out int[]
-- locks: none
-- caller: scheduler that keeps the graph, before it waits
SELECT * FROM mill_private.s_check_graph(:left_out)
