-- Reads the backend on a remote, its start and the start of its server, in microseconds of the remote clock. The path is the
-- remote user's own, so operators are qualified, too.
-- parameters: none
-- locks: none
-- caller: worker, on the remote, right after the login
SELECT a.pid, (extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000)::bigint AS began,
       (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000)::bigint AS server_began
  FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
