-- New and edited timers, and those that are due, in the order in which they fire.
-- parameters: how many, timers to leave out; locks: none; caller: scheduler that keeps the graph
SELECT * FROM mill_private.s_list_timers($1, $2)
