-- The queue refuses the row of the run that would be put next: its job is paused with the reason, and the run held.
-- parameters: the refusal; locks: the run; caller: scheduler
SELECT mill_private.q{oid}_refuse($1::text) AS run
