-- Back-fills that can go on, with the room in their flows.
-- parameters: how many; locks: none; caller: scheduler that keeps the graph
SELECT * FROM mill_private.s_list_backfills($1)
