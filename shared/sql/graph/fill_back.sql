-- A few times of a back-fill, in one transaction; NULL when its row is no longer as expected.
-- parameters: id, fired so far, times, and span and position after each, whether they are the last; locks: the row, flows, tokens; caller: scheduler that keeps the graph
SELECT mill_private.s_advance_backfill($1, $2, $3, $4, $5, $6)
