-- The queue refuses the row of this run: its job is paused with the reason, and the run held.
-- parameters: run bigint, refusal text
-- locks: the run
-- caller: scheduler
SELECT mill_private.q{oid}_refuse_run(:run::bigint, :refusal::text)
