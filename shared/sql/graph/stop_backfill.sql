-- A back-fill that nobody can go on with says why.
-- parameters: id int, trouble text
-- locks: the row
-- caller: scheduler that keeps the graph
SELECT mill_private.s_stop_backfill(:id, :trouble)
