-- A few times of a back-fill, in one transaction; NULL when its row is no longer as expected.
-- `fired` so far; `spans` and `positions` after each time; `last`: they are the last ones.
-- parameters: id int, fired bigint, times timestamptz[], spans int[], positions int[], last bool
-- locks: the row, flows, tokens
-- caller: scheduler that keeps the graph
SELECT mill_private.s_advance_backfill(:id, :fired, :times, :spans, :positions, :last)
