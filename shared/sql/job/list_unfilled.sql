-- Lists jobs whose next start the scheduler has to compute, because the server cannot (cron).
-- parameters: none
-- locks: none
-- caller: scheduler, when it was told that there are some
SELECT job, cron, timezone, initial_start, moment, fresh, stamp FROM mill_private.q{oid}_list_unfilled_jobs()
