-- Fires the next times of a back-fill in one transaction; NULL if its row was changed meanwhile. `fired` so far; `spans` and
-- `positions` after each time; `last`: they are the last ones.
-- parameters: id int, fired bigint, times timestamptz[], spans int[], positions int[], last bool
-- locks: the row, flows, tokens
-- caller: scheduler that keeps the graph
SELECT mill_private.s_advance_backfill(:id, :fired, :times, :spans, :positions, :last)
