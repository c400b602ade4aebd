-- Lists back-fills that can continue, with the room in their flows.
-- parameters: rows int
-- locks: none
-- caller: scheduler that keeps the graph
SELECT * FROM mill_private.s_list_backfills(:rows)
