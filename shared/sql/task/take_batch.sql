-- A worker whose last tasks were short takes several at once, straight to WORK, as `take_next` takes one: the first rows
-- of its group in their order, up to the first that wants to be alone (atomic, with a session of its own to keep, with
-- consequences, with a short time limit, or where so many could be beyond its own count). That one is taken alone when it
-- comes first.
-- One statement for any number: it is planned once in a session, and with our settings the number has no say in the plan.
-- `max` is what the worker was started for, `executed` how many tasks it has run, `first_start` when the first of them began; `last_*` are
-- the last row taken, where a scan start is asked for.
-- parameters: group text, max int, executed int, first_start float8, rows int, last_max int, last_priority int,
--     last_id bigint
-- locks: the rows
-- caller: worker
WITH near AS MATERIALIZED (
    SELECT t.id, {key} AS key,
           t.atomic OR t.save OR t.repeat > interval '0' OR (t.count > 0 AND t.count - :rows::int < :executed::int)
               OR (t.timeout > interval '0' AND t.timeout < interval '1 second') AS alone
      FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext(:group::text) AND t.hash <= pg_catalog.hashtext(:group::text)
       AND t."group" = :group::text AND t.remote IS NULL AND t.plan <= statement_timestamp() AND t."max" >= :max::int
       AND NOT {expired} AND t.pid IS NULL AND t.job IS NULL {scan}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN :executed::int < t.count AND {young}
                ELSE :executed::int < t.count OR {young} END {proof}
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT :rows::int FOR UPDATE SKIP LOCKED
)
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = pg_catalog.pg_backend_pid(), remote_session = NULL
  FROM near n
 WHERE t.id = n.id AND (COALESCE(n.key < (SELECT min(a.key) FROM near a WHERE a.alone), true)
                        OR n.key = (SELECT min(f.key) FROM near f))
RETURNING {batch_row}
