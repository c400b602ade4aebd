-- Deletes runs that are older than they are kept, of a few jobs at a time, with their rows; returns the last job, NULL: the
-- next call begins with the first.
-- parameters: after_job int
-- locks: the runs and rows
-- caller: scheduler, once in a while
WITH old AS MATERIALIZED (
    SELECT tasks, runs, last FROM mill_private.q{oid}_delete_old_runs(:after_job::int)
), gone AS (
    DELETE FROM {queue} WHERE id IN (SELECT id FROM {queue} WHERE id = ANY ((SELECT tasks FROM old)::bigint[])
                                        AND run = ANY ((SELECT runs FROM old)::bigint[])
                                        AND state IN ('DONE', 'FAIL', 'GONE') FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT cardinality(runs)::bigint AS deleted, last FROM old
