-- Claims up to `rows` due rows by a short walk over the waiting rows in the order max, priority, id. Its cost does not
-- depend on how many rows wait. The walk knows whether its answer is exact: it saw every waiting row, or it found
-- enough, and no row behind it can have more free capacity. If not, it claims nothing and says so.
-- `rows`: how many, as many as slots are reserved. `assigned_ids` are tasks that workers are at, `known_*` what is known of
-- them should their rows be deleted. `idle_backends` run nothing; `reserved_backends` are those of pooled connections.
-- `longest_input`: of plain tasks that begin here, in bytes. `lazy`: nothing else is in the transaction. `return_plain`: plain
-- rows are returned though no connection is reserved for them.
-- parameters: rows bigint, assigned_ids bigint[], idle_backends int[], reserved_backends int[], longest_input int,
--     known_ids bigint[], known_groups bytea[], known_remotes bytea[], lazy bool, return_plain bool
-- locks: the rows
-- caller: scheduler
WITH candidates AS MATERIALIZED (
    SELECT id, "group", remote, "max", priority, plan, {expired} AS expired, {busy} AS busy
      FROM {queue} t
     WHERE state = 'PLAN' AND NOT held ORDER BY "max" DESC, priority DESC, id LIMIT {walk}
), {claim_choice}, verdict AS (
    SELECT (SELECT count(*) FROM candidates) < {walk}
        OR ((SELECT count(*) FROM chosen) >= :rows::bigint
            AND (SELECT min(capacity) FROM chosen) >= (SELECT min("max") FROM candidates)) AS exact
), locked AS (
    SELECT t.id, c.capacity, c.priority, {plain}
      FROM {queue} t JOIN chosen c ON c.id = t.id CROSS JOIN verdict v
     WHERE v.exact AND {still_planned} FOR UPDATE OF t SKIP LOCKED
), {claim_tail}
SELECT v.exact, {claim_columns}
  FROM verdict v LEFT JOIN claimed t ON true ORDER BY t.capacity DESC, t.priority DESC, t.id
