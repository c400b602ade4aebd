-- Orders runs of the due jobs, the oldest first, as many as slots are reserved.
-- parameters: slots int
-- locks: rows of job_state, skipping locked ones
-- caller: scheduler, in a pass in which something is due
SELECT started, until FROM mill_private.q{oid}_start_jobs(:slots::int)
