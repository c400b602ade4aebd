-- Removes rows of runs from the queue before they have begun, and ends those that a user has ended while they run. A row is
-- locked before its run, as everywhere; one that is locked by another transaction is tried again.
-- parameters: none
-- locks: the rows, then their runs, skipping locked ones
-- caller: scheduler, when it was told that there are some
WITH wanted AS MATERIALIZED (
    SELECT w.run, w.what, w.reason, w.error FROM mill_private.q{oid}_list_recalls() AS w
), rows AS MATERIALIZED (
    SELECT t.id, w.run, w.what, w.reason, w.error FROM {queue} t JOIN wanted w ON t.run = w.run
     WHERE t.run = ANY (ARRAY(SELECT run FROM wanted))
       AND CASE WHEN w.what = 'WITHDRAW' THEN t.state = 'PLAN' ELSE t.state IN ('PLAN', 'TAKE', 'WORK') END
       FOR UPDATE OF t SKIP LOCKED
), gone AS MATERIALIZED (
    SELECT COALESCE(array_agg(w.run), ARRAY[]::bigint[]) AS runs FROM wanted w
     WHERE w.what = 'WITHDRAW' AND NOT EXISTS (SELECT FROM {queue} t WHERE t.run = w.run AND t.state IN ('PLAN', 'TAKE', 'WORK', 'STOP'))
), withdrawn AS MATERIALIZED (
    SELECT mill_private.q{oid}_withdraw_runs((SELECT COALESCE(array_agg(r.run), ARRAY[]::bigint[]) FROM rows r WHERE r.what = 'WITHDRAW') || g.runs) AS runs FROM gone g
), deleted AS (
    DELETE FROM {queue} t USING rows r, withdrawn w
     WHERE t.id = ANY (ARRAY(SELECT id FROM rows)) AND t.id = r.id AND r.what = 'WITHDRAW' AND r.run = ANY (w.runs)
    RETURNING t.id
), ended AS (
    -- t.state is never the value: it gives its type, which is not the same in every table, to the other two
    UPDATE {queue} t SET state = CASE WHEN r.what = 'DONE' THEN 'DONE' WHEN true THEN 'FAIL' ELSE t.state END, held = false,
           start = COALESCE(t.start, statement_timestamp()), stop = statement_timestamp(), reason = r.reason, error = r.error
      FROM rows r WHERE t.id = ANY (ARRAY(SELECT id FROM rows)) AND t.id = r.id AND r.what <> 'WITHDRAW'
    RETURNING t.id
)
SELECT (SELECT count(*) FROM deleted) + (SELECT count(*) FROM ended) + (SELECT cardinality(g.runs) FROM gone g) AS done,
       (SELECT count(*) FROM wanted) AS wanted
