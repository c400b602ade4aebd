-- Jobs whose next start has to be computed here, because the server cannot (cron).
-- parameters: table OID; locks: none; caller: scheduler, when it was told that there are some
SELECT job, cron, timezone, initial_start, moment, fresh, stamp FROM mill.s_unfilled($1::oid)
