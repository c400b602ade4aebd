-- Jobs whose next start has to be computed here, because the server cannot (cron).
-- parameters: none
-- locks: none
-- caller: scheduler, when it was told that there are some
SELECT job, cron, timezone, initial_start, moment, fresh, stamp FROM mill_private.q{oid}_list_unfilled_jobs()
