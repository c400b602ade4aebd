-- Inserts a job of pg_cron. It belongs to its old user if this session may say so and that user may use the queue. It comes
-- in paused if its old user is not kept, or is not the queue's user: that one may be the stronger. pg_cron never tries again
-- before the next time: so the wait after a failure is longer than any schedule. `user` is its user in pg_cron;
-- `keep_scheduled`: jobs of others are not paused.
-- parameters: name text, input text, cron text, schedule_interval interval, timezone text, scheduled bool,
--     user text, queue text, queue_owner text, keep_scheduled bool
-- locks: the row
-- caller: the launcher's import
WITH kept AS (
    SELECT (SELECT r.rolname FROM pg_catalog.pg_roles r
             WHERE r.rolname = :user::text AND pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER')
               AND pg_catalog.has_table_privilege(r.oid, pg_catalog.to_regclass(:queue::text), 'INSERT')) AS owner
)
INSERT INTO mill.job (name, input, cron, schedule_interval, timezone, scheduled, owner, queue, max_retries, retry_period)
SELECT :name, :input, :cron, :schedule_interval, :timezone, :scheduled AND (:keep_scheduled::bool OR COALESCE(k.owner = :queue_owner::text, false)),
       COALESCE(k.owner, current_user), :queue, -1, interval '1 year'
  FROM kept k
RETURNING id, owner::text AS owner, scheduled
