-- The task of the worker that sends it.
SELECT :ids::bigint AS id, :attempts::int AS attempt, pg_catalog.pg_backend_pid() AS backend
