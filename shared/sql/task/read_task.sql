-- Reads the state of an attempt, and whether its backend still lives. Only a backend that began before the task did is its
-- own: a reused pid belongs to an innocent session. A remote task's pid means nothing here: where its session is, is told
-- instead. A connection that another task uses since serves that one: its backend is a stranger to this task. Whether the backend
-- is one of ours is told as well: a user who may change rows can write any session's pid into one. `foreign_backends` do not
-- run it: they are kept, or serve other tasks by now.
-- parameters: id bigint, attempt int, foreign_backends int[]
-- locks: none
-- caller: scheduler, for a task whose worker is gone
SELECT t.state::text AS state, a.pid AS backend, {own_backend} AS ours, t.pid AS pid, t.remote::text AS remote,
       t.remote_session::text AS remote_session
  FROM {queue} t
  LEFT JOIN pg_catalog.pg_stat_activity a ON t.state = 'WORK' AND t.remote_session IS NULL AND a.pid = t.pid AND a.backend_start <= t.start
       AND a.pid <> ALL (:foreign_backends::int[])
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int
