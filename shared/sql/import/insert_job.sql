-- A job that was pg_cron's. It belongs to its old user if this session may say so and that user may use the queue. It
-- comes in paused if its old user is not kept, or is not the queue's user: that one may be the stronger. pg_cron never
-- tries again before the next time: so the wait after a failure is longer than any schedule.
-- parameters: $1 name, $2 input, $3 cron, $4 interval, $5 zone, $6 scheduled, $7 its user, $8 queue, $9 the queue's user,
-- $10 jobs of others are not paused
-- locks: the row; caller: the launcher's import
WITH kept AS (
    SELECT (SELECT r.rolname FROM pg_catalog.pg_roles r
             WHERE r.rolname = $7::text AND pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER')
               AND pg_catalog.has_table_privilege(r.oid, pg_catalog.to_regclass($8::text), 'INSERT')) AS owner
)
INSERT INTO mill.job (name, input, cron, schedule_interval, timezone, scheduled, owner, queue, max_retries, retry_period)
SELECT $1, $2, $3, $4, $5, $6 AND ($10::bool OR COALESCE(k.owner = $9::text, false)),
       COALESCE(k.owner, current_user), $8, -1, interval '1 year'
  FROM kept k
RETURNING id, owner::text AS owner, scheduled
