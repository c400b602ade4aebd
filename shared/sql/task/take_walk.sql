-- Claims up to `rows` due rows by a short walk over the waiting rows in the order max, priority, id. Its cost does not
-- depend on how many rows wait. The walk knows whether its answer is exact: it saw every waiting row, or it found
-- enough, and no row behind it can have more free capacity. If not, it claims nothing and says so.
-- Its commit need not wait for the disk if nothing has begun with it: the begin puts it there. A run of a job does wait: its
-- start counts as a crash, and it may be the server that crashes.
-- Plain tasks begin at once, as many as connections can be lent to them: WORK, with the backend that will run them.
-- `rows`: how many, as many as slots are reserved. `assigned_ids` are tasks that workers are at, `known_*` what is known of them should their rows
-- be deleted. `idle_backends` run nothing; `reserved_backends` are those of pooled connections. `longest_input`: of plain tasks that begin here, in
-- bytes. `lazy`: nothing else is in the transaction. `return_plain`: plain rows are returned though no connection is reserved for them.
-- parameters: rows bigint, assigned_ids bigint[], idle_backends int[], reserved_backends int[], longest_input int,
--     known_ids bigint[], known_groups bytea[], known_remotes bytea[], lazy bool, return_plain bool
-- locks: the rows
-- caller: scheduler
WITH walked AS MATERIALIZED (
    SELECT id, "group", remote, "max", priority, plan, {expired} AS expired, {busy} AS busy
      FROM {queue} t
     WHERE state = 'PLAN' AND NOT held ORDER BY "max" DESC, priority DESC, id LIMIT {walk}
), {running}, due AS (
    SELECT w.id, w.priority, GREATEST(w."max", 0) - COALESCE(r.others, 0) AS capacity,
           row_number() OVER (PARTITION BY w."group", w.remote ORDER BY w."max" DESC, w.priority DESC, w.id) AS place
      FROM walked w LEFT JOIN running r ON r."group" = w."group" AND r.remote IS NOT DISTINCT FROM w.remote
     WHERE w.plan <= statement_timestamp() AND NOT w.expired AND NOT w.busy
), chosen AS (
    SELECT id, capacity, priority FROM due WHERE place - 1 <= capacity
     ORDER BY capacity DESC, priority DESC, id LIMIT :rows::bigint
), verdict AS (
    SELECT (SELECT count(*) FROM walked) < {walk}
        OR ((SELECT count(*) FROM chosen) >= :rows::bigint
            AND (SELECT min(capacity) FROM chosen) >= (SELECT min("max") FROM walked)) AS exact
), locked AS (
    SELECT t.id, c.capacity, c.priority, {plain}
      FROM {queue} t JOIN chosen c ON c.id = t.id CROSS JOIN verdict v
     WHERE v.exact AND {still_planned} FOR UPDATE OF t SKIP LOCKED
), {claim_tail}
SELECT v.exact, (SELECT array_agg(w.id::bigint) FROM walked w WHERE w.expired AND NOT w.busy) AS expired,
       EXISTS (SELECT FROM walked w WHERE w.busy) AS busy, t.id::bigint AS id, t.attempt::int AS attempt, t.job::int AS job,
       {group_bytes},
       {claim_columns}
  FROM verdict v LEFT JOIN taken t ON true ORDER BY t.capacity DESC, t.priority DESC, t.id
