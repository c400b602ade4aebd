-- A worker whose last tasks were short takes several at once, straight to WORK, as `take_next` takes one: the first rows
-- of its group in their order, up to the first that wants to be alone (atomic, with a session of its own to keep, with
-- consequences, with a short time limit, or where so many could be beyond its own count). That one is taken alone when it
-- comes first. What is the same for all of them is told with the first.
-- parameters: group, max that the worker was started for, tasks run so far, start of the first one; where a floor is asked for: max,
-- priority and id of the last row taken; locks: the rows; caller: worker
WITH near AS MATERIALIZED (
    SELECT t.id, t."max", t.priority,
           t.atomic OR t.save OR t.repeat > interval '0' OR (t.count > 0 AND t.count - {size} < $3::int)
               OR (t.timeout > interval '0' AND t.timeout < interval '1 second') AS alone
      FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext($1::text) AND t.hash <= pg_catalog.hashtext($1::text)
       AND t."group" = $1::text AND t.remote IS NULL AND t.plan <= statement_timestamp() AND t."max" >= $2::int
       AND NOT {expired} AND t.pid IS NULL AND t.job IS NULL {floor}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN $3::int < t.count AND {young}
                ELSE $3::int < t.count OR {young} END
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT {size} FOR UPDATE SKIP LOCKED
), judged AS (
    SELECT n.id, row_number() OVER so_far AS place, bool_or(n.alone) OVER so_far AS barred
      FROM near n WINDOW so_far AS (ORDER BY n."max" DESC, n.priority DESC, n.id)
)
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = pg_catalog.pg_backend_pid(), remote_session = NULL
  FROM judged j WHERE t.id = j.id AND (j.place = 1 OR NOT j.barred)
RETURNING {batch_row}
