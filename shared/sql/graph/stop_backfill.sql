-- Writes why a back-fill cannot continue.
-- parameters: id int, trouble text
-- locks: the row
-- caller: scheduler that keeps the graph
SELECT mill_private.s_stop_backfill(:id, :trouble)
