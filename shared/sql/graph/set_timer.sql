-- The next time of a new or edited timer, if nobody has edited it since.
-- parameters: id, revision, next, due, trouble; locks: the timer; caller: scheduler that keeps the graph
SELECT mill.s_set_timer($1, $2, $3, $4, $5)
