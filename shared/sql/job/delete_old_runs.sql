-- Finished runs that nobody needs any more, of a few jobs at a time; says behind which job to go on, NULL: from the first.
-- parameters: table OID, job to go on behind; locks: the rows; caller: scheduler, once in a while
WITH old AS MATERIALIZED (
    SELECT tasks, last FROM mill.s_old_runs($1::oid, $2::int)
), gone AS (
    DELETE FROM {queue} WHERE id IN (SELECT id FROM {queue} WHERE id = ANY ((SELECT tasks FROM old)::bigint[])
                                        AND state IN ('DONE', 'FAIL', 'GONE') AND job IS NOT NULL FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT last FROM old) AS last
