-- A worker whose last tasks were short takes several at once, straight to WORK, as `take_next` takes one: the first rows
-- of its group in their order, up to the first that wants to be alone (atomic, with a session of its own to keep, with
-- consequences, with a short time limit, or where so many could be beyond its own count). That one is taken alone when it
-- comes first.
-- One statement for any number: it is planned once in a session, and with our settings the number has no say in the plan.
-- parameters: group, max that the worker was started for, tasks run so far, start of the first one, how many; where a floor is
-- asked for: max, priority and id of the last row taken; locks: the rows; caller: worker
WITH near AS MATERIALIZED (
    SELECT t.id, {key} AS key,
           t.atomic OR t.save OR t.repeat > interval '0' OR (t.count > 0 AND t.count - $5::int < $3::int)
               OR (t.timeout > interval '0' AND t.timeout < interval '1 second') AS alone
      FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext($1::text) AND t.hash <= pg_catalog.hashtext($1::text)
       AND t."group" = $1::text AND t.remote IS NULL AND t.plan <= statement_timestamp() AND t."max" >= $2::int
       AND NOT {expired} AND t.pid IS NULL AND t.job IS NULL {floor}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN $3::int < t.count AND {young}
                ELSE $3::int < t.count OR {young} END {beside}
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT $5::int FOR UPDATE SKIP LOCKED
)
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = pg_catalog.pg_backend_pid(), remote_session = NULL
  FROM near n
 WHERE t.id = n.id AND (COALESCE(n.key < (SELECT min(a.key) FROM near a WHERE a.alone), true)
                        OR n.key = (SELECT min(f.key) FROM near f))
RETURNING {batch_row}
