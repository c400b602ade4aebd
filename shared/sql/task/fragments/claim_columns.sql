-- What a claim of the scheduler returns: rows that have expired, whether a row still runs under an earlier attempt, and the claimed
-- rows; of those that have begun with it, and of plain ones that will, the whole row. Its commit need not wait for the disk if
-- nothing has begun with it: the begin puts it there. `lazy` says that nothing else is in its transaction. A run of a job does wait:
-- its start counts as a crash, and it may be the server that crashes.
(SELECT array_agg(w.id::bigint) FROM candidates w WHERE w.expired AND NOT w.busy) AS expired,
       EXISTS (SELECT FROM candidates w WHERE w.busy) AS busy, t.id::bigint AS id, t.attempt::int AS attempt, t.job::int AS job,
       {group_bytes},
       (SELECT pg_catalog.set_config('synchronous_commit', 'off', true)
          WHERE :lazy::bool AND NOT EXISTS (SELECT FROM claimed j WHERE j.job IS NOT NULL OR j.backend IS NOT NULL)),
       {begin_columns}
