-- Claims up to $1 due rows by looking at the heads of the groups, so that no group hides another. A loose scan: one
-- index probe per group. With more groups than $5 it begins after the hash $4 and goes on there the next time.
-- Its commit need not wait for the disk if nothing has begun with it: the begin puts it there. A run of a job does wait: its
-- start counts as a crash, and it may be the server that crashes.
-- parameters: how many, tasks that workers are at, backends that run nothing, hash to begin after, groups at most, rows per group, and
-- as in the walk backends to be lent, the longest input, and what is known of the tasks that workers are at; whether nothing else is in the
-- transaction, and whether plain rows are told of though no connection is lent to them; locks: the rows; caller: scheduler
WITH RECURSIVE heads AS (
    (SELECT hash, 1 AS number FROM {queue} WHERE state = 'PLAN' AND NOT held AND hash > $4::int ORDER BY hash LIMIT 1)
    UNION ALL
    SELECT (SELECT q.hash FROM {queue} q WHERE q.state = 'PLAN' AND NOT q.held AND q.hash > h.hash
             ORDER BY q.hash LIMIT 1), h.number + 1
      FROM heads h WHERE h.hash IS NOT NULL AND h.number < $5
), listed AS MATERIALIZED (
    SELECT hash FROM heads WHERE hash IS NOT NULL
), candidates AS MATERIALIZED (
    SELECT c.* FROM listed l CROSS JOIN LATERAL (
        SELECT t.id, t."group", t.remote, t."max", t.priority, t.plan, {expired} AS expired, {busy} AS busy
          FROM {queue} t
         WHERE t.state = 'PLAN' AND NOT t.held AND t.hash = l.hash
         ORDER BY t."max" DESC, t.priority DESC, t.id LIMIT $6::bigint) c
), {running}, due AS (
    SELECT w.id, w.priority, GREATEST(w."max", 0) - COALESCE(r.others, 0) AS capacity,
           row_number() OVER (PARTITION BY w."group", w.remote ORDER BY w."max" DESC, w.priority DESC, w.id) AS place
      FROM candidates w LEFT JOIN running r ON r."group" = w."group" AND r.remote IS NOT DISTINCT FROM w.remote
     WHERE w.plan <= statement_timestamp() AND NOT w.expired AND NOT w.busy
), chosen AS (
    SELECT id, capacity, priority FROM due WHERE place - 1 <= capacity
     ORDER BY capacity DESC, priority DESC, id LIMIT $1::bigint
), locked AS (
    SELECT t.id, c.capacity, c.priority, {plain}
      FROM {queue} t JOIN chosen c ON c.id = t.id
     WHERE {still_waits} FOR UPDATE OF t SKIP LOCKED
), {seated}, seen AS (
    SELECT count(*) AS groups, max(hash)::int AS last,
           (SELECT array_agg(c.id::bigint) FROM candidates c WHERE c.expired AND NOT c.busy) AS expired,
           EXISTS (SELECT FROM candidates c WHERE c.busy) AS busy
      FROM listed
)
SELECT s.groups, s.last, s.expired, s.busy, t.id::bigint AS id, t.attempt::int AS attempt, t.job::int AS job,
       {group_bytes},
       {begun}
  FROM seen s LEFT JOIN taken t ON true ORDER BY t.capacity DESC, t.priority DESC, t.id
