-- Whether the session by which the launcher leads is on this server. Locks of all databases are shown.
-- parameters: the two halves of the number that it holds; locks: none; caller: scheduler
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.mode = 'ExclusiveLock'
                  AND l.classid::bigint = $1::int::bigint & 4294967295 AND l.objid::bigint = $2::int::bigint & 4294967295) AS found
