-- The ends of tasks whose workers have left their results, and the claim of what they make room for, where only one
-- group waits and runs, and all of its tasks are plain: what `end` and `claim_heads` do, in one statement. The claim does
-- not see what is written here, so what is ended here is left out of what runs. Whatever is locked is skipped, so it waits for
-- nobody. It knows whether it is exact: no other group waits, and the rows in front are due, new and plain. If not, it claims
-- nothing and says so; the ends are written all the same.
-- `assigned_ids` are tasks that workers are at, all of them of `group`; there are as many `reserved_backends` (of pooled connections) as `rows`.
-- `longest_input`: of tasks that begin here, in bytes.
-- parameters: ids bigint[], attempts int[], failures bool[], outputs text[], errors text[], rows bigint,
--     assigned_ids bigint[], group text, reserved_backends int[], longest_input int
-- locks: the rows
-- caller: scheduler
WITH handed AS MATERIALIZED (
    SELECT t.id, h.failed, h.output, h.error
      FROM {queue} t, unnest(:ids::bigint[], :attempts::int[], :failures::bool[], :outputs::text[], :errors::text[])
               AS h (id, attempt, failed, output, error)
     WHERE t.id = ANY (:ids::bigint[]) AND t.id = h.id AND t.attempt = h.attempt AND {still_working}
       AND (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE
       FOR UPDATE OF t SKIP LOCKED
), ended AS (
    -- t.state is never taken: it gives its type, which is not the same in every table, to the other two
    UPDATE {queue} t SET state = CASE WHEN h.failed THEN 'FAIL' WHEN true THEN 'DONE' ELSE t.state END, stop = statement_timestamp(),
           output = h.output, error = h.error, reason = NULL
      FROM handed h WHERE t.id = h.id AND t.id = ANY (:ids::bigint[]) AND {still_working}
    RETURNING t.id::bigint AS id
), written AS MATERIALIZED (
    SELECT COALESCE(array_agg(e.id), '{}') AS ids FROM ended e
), near AS MATERIALIZED (
    SELECT t.id, t."max", t.priority, (t."group" = :group::text AND t.remote IS NULL AND t.plan <= statement_timestamp() AND NOT {expired}
               AND t.pid IS NULL AND {plain_row} AND octet_length(t.input) <= :longest_input::int) IS TRUE AS fit
      FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held
     ORDER BY t."max" DESC, t.priority DESC, t.id LIMIT :rows::bigint FOR UPDATE SKIP LOCKED
), verdict AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT FROM near n WHERE NOT n.fit)
           AND NOT EXISTS (SELECT FROM {queue} o WHERE o.state = 'PLAN' AND NOT o.held AND o.hash < pg_catalog.hashtext(:group::text))
           AND NOT EXISTS (SELECT FROM {queue} o WHERE o.state = 'PLAN' AND NOT o.held AND o.hash > pg_catalog.hashtext(:group::text)) AS exact,
           cardinality(:assigned_ids::bigint[]) + (SELECT count(*) FROM {queue} r, written w
               WHERE r.state IN ('TAKE', 'WORK') AND r.hash = pg_catalog.hashtext(:group::text) AND r."group" = :group::text AND r.remote IS NULL
                 AND r.id <> ALL (:assigned_ids::bigint[]) AND r.id <> ALL (w.ids)) AS others
), seated AS (
    SELECT n.id, n.place, (:reserved_backends::int[])[n.place] AS backend
      FROM (SELECT n.*, row_number() OVER (ORDER BY n."max" DESC, n.priority DESC, n.id) AS place FROM near n) AS n, verdict v
     WHERE v.exact AND n.place - 1 <= n."max" - v.others
), taken AS (
    UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, pid = l.backend, start = statement_timestamp(), remote_session = NULL
      FROM seated l WHERE t.id = l.id AND {still_planned}
    RETURNING l.place, l.backend, true AS plain, {task_row}
)
SELECT v.exact, (SELECT w.ids FROM written w) AS written, NULL::bigint[] AS expired, false AS busy,
       t.id::bigint AS id, t.attempt::int AS attempt, t.job::int AS job, {group_bytes},
       {begin_columns}
  FROM verdict v LEFT JOIN taken t ON true ORDER BY t.place
