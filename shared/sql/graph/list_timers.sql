-- Lists new, edited and due timers, in the order in which they fire.
-- parameters: rows int, left_out int[]
-- locks: none
-- caller: scheduler that keeps the graph
SELECT * FROM mill_private.s_list_timers(:rows, :left_out)
