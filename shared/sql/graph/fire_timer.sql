-- One fire is one transaction; NULL when the timer is no longer as expected.
-- parameters: id, revision, expected next, time that fires, next, due, skipped, lo and hi of a stretch; locks: the timer, flows, tokens; caller: scheduler that keeps the graph
SELECT mill.s_fire($1, $2, $3, $4, $5, $6, $7, $8, $9)
