-- Claims up to `rows` due rows from the heads of the groups, so that no group hides another. A loose scan: one index probe
-- per group. With more groups than `groups` it begins after the hash `after_hash` and goes on there the next time. The other
-- parameters are those of `claim_walk`.
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
), {claim_choice}, locked AS (
    SELECT t.id, c.capacity, c.priority, {plain}
      FROM {queue} t JOIN chosen c ON c.id = t.id
     WHERE {still_planned} FOR UPDATE OF t SKIP LOCKED
), {claim_tail}, seen AS (
    SELECT count(*) AS groups, max(hash)::int AS last FROM listed
)
SELECT s.groups, s.last, {claim_columns}
  FROM seen s LEFT JOIN claimed t ON true ORDER BY t.capacity DESC, t.priority DESC, t.id
