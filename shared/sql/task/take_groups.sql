-- Claims up to `rows` due rows by looking at the heads of the groups, so that no group hides another. A loose scan: one
-- index probe per group. With more groups than `groups` it begins after the hash `after_hash` and goes on there the next time.
-- Its commit need not wait for the disk if nothing has begun with it: the begin puts it there. A run of a job does wait: its
-- start counts as a crash, and it may be the server that crashes.
-- `rows`: how many, as many as slots are reserved. `assigned_ids` are tasks that workers are at, `known_*` what is known of them should their rows
-- be deleted. `idle_backends` run nothing; `reserved_backends` are those of pooled connections. `longest_input`: of plain tasks that begin here, in
-- bytes. `lazy`: nothing else is in the transaction. `return_plain`: plain rows are returned though no connection is reserved for them.
-- parameters: rows bigint, assigned_ids bigint[], idle_backends int[], after_hash int, groups int,
--     rows_per_group bigint, reserved_backends int[], longest_input int, known_ids bigint[], known_groups bytea[],
--     known_remotes bytea[], lazy bool, return_plain bool
-- locks: the rows
-- caller: scheduler
WITH RECURSIVE heads AS (
    (SELECT hash, 1 AS number FROM {queue} WHERE state = 'PLAN' AND NOT held AND hash > :after_hash::int ORDER BY hash LIMIT 1)
    UNION ALL
    SELECT (SELECT q.hash FROM {queue} q WHERE q.state = 'PLAN' AND NOT q.held AND q.hash > h.hash
             ORDER BY q.hash LIMIT 1), h.number + 1
      FROM heads h WHERE h.hash IS NOT NULL AND h.number < :groups
), listed AS MATERIALIZED (
    SELECT hash FROM heads WHERE hash IS NOT NULL
), candidates AS MATERIALIZED (
    SELECT c.* FROM listed l CROSS JOIN LATERAL (
        SELECT t.id, t."group", t.remote, t."max", t.priority, t.plan, {expired} AS expired, {busy} AS busy
          FROM {queue} t
         WHERE t.state = 'PLAN' AND NOT t.held AND t.hash = l.hash
         ORDER BY t."max" DESC, t.priority DESC, t.id LIMIT :rows_per_group::bigint) c
), {running}, due AS (
    SELECT w.id, w.priority, GREATEST(w."max", 0) - COALESCE(r.others, 0) AS capacity,
           row_number() OVER (PARTITION BY w."group", w.remote ORDER BY w."max" DESC, w.priority DESC, w.id) AS place
      FROM candidates w LEFT JOIN running r ON r."group" = w."group" AND r.remote IS NOT DISTINCT FROM w.remote
     WHERE w.plan <= statement_timestamp() AND NOT w.expired AND NOT w.busy
), chosen AS (
    SELECT id, capacity, priority FROM due WHERE place - 1 <= capacity
     ORDER BY capacity DESC, priority DESC, id LIMIT :rows::bigint
), locked AS (
    SELECT t.id, c.capacity, c.priority, {plain}
      FROM {queue} t JOIN chosen c ON c.id = t.id
     WHERE {still_planned} FOR UPDATE OF t SKIP LOCKED
), {claim_tail}, seen AS (
    SELECT count(*) AS groups, max(hash)::int AS last,
           (SELECT array_agg(c.id::bigint) FROM candidates c WHERE c.expired AND NOT c.busy) AS expired,
           EXISTS (SELECT FROM candidates c WHERE c.busy) AS busy
      FROM listed
)
SELECT s.groups, s.last, s.expired, s.busy, t.id::bigint AS id, t.attempt::int AS attempt, t.job::int AS job,
       {group_bytes},
       {claim_columns}
  FROM seen s LEFT JOIN taken t ON true ORDER BY t.capacity DESC, t.priority DESC, t.id
