-- As next_plan, and in the same query what the jobs of the queue are up to: their version, how long until a run is due (0: one
-- is), how long until the time of a run that is kept back, whether a next start waits to be computed,
-- whether rows are recalled, and whether numbers of a deleted job are left.
-- `released_until`: until when runs that were kept back have been released.
-- parameters: released_until timestamptz, apply_deltas bool
-- locks: rows of job_state, skipping locked ones, if that is asked
-- caller: scheduler, before it waits, where the queue runs jobs
SELECT (SELECT ceil(extract(epoch FROM plan - clock_timestamp()) * 1000)::float8 FROM {queue}
         WHERE state = 'PLAN' AND held AND job IS NULL AND plan < 'infinity' ORDER BY plan LIMIT 1) AS ms,
       p.version, p.due_ms, p.wait_ms AS waiting_ms, p.fill, p.orders, p.recalls, p.leftover
  FROM mill_private.q{oid}_poll_jobs(COALESCE(:released_until::timestamptz, '-infinity'), :apply_deltas::bool) AS p
