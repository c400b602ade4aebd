-- Lists every database, and whether "*" may serve it: it accepts connections, also those of this login, and is neither a
-- template nor half dropped.
-- parameters: none
-- locks: none
-- caller: launcher, at every poll
SELECT d.oid, d.datname::text AS name,
       d.datallowconn AND NOT d.datistemplate AND d.datconnlimit <> -2
           AND pg_catalog.has_database_privilege(d.oid, 'CONNECT') AS servable
  FROM pg_catalog.pg_database d ORDER BY d.oid
