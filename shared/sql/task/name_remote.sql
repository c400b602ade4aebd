-- Who we are on a remote: the backend, when it began, and when its server did, in microseconds of its own clock.
-- parameters: none; locks: none; caller: worker, on the remote, right after the login
SELECT a.pid, (extract(epoch FROM a.backend_start) * 1000000)::bigint AS began,
       (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint AS server_began
  FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()
