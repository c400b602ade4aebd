-- Pauses the job of a run whose row the queue refuses, with the reason, and holds the run.
-- parameters: run bigint, refusal text
-- locks: the run
-- caller: scheduler
SELECT mill_private.q{oid}_refuse_run(:run::bigint, :refusal::text)
