-- Reads who leads: the session that holds the lock, its address, and what it writes about itself in a comment of its
-- statements (see the launcher's `host`). What we may not see of another role's session is NULL.
-- parameters: kind int, launcher_name text
-- locks: none
-- caller: launcher that stands by
SELECT l.pid AS backend, a.backend_start::text AS began, pg_catalog.host(a.client_addr) AS address,
       s.said[1] AS host, s.said[2]::int AS process, s.said[3]::bigint AS since_ms
  FROM pg_catalog.pg_locks l
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN LATERAL (SELECT pg_catalog.regexp_match(a.query,
      '^/[*] pgmill launcher on ([^ ]+) pid ([0-9]+) since ([0-9]+) [*]/') AS said) s ON true
 WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.mode = 'ExclusiveLock'
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
   AND l.classid = :kind::int::oid AND l.objid::bigint = pg_catalog.hashtext(:launcher_name)::bigint & 4294967295
 LIMIT 1
