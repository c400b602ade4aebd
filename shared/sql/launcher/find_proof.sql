-- Reads whether the leading session of the launcher is on this server. Locks of all databases are shown. The number that it
-- holds comes in two halves.
-- parameters: proof_high int, proof_low int
-- locks: none
-- caller: scheduler
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.mode = 'ExclusiveLock'
                  AND l.classid::bigint = :proof_high::int::bigint & 4294967295 AND l.objid::bigint = :proof_low::int::bigint & 4294967295) AS found
