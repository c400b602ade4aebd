-- Settles runs and rows that differ: a TRUNCATE, a restored table or disabled triggers leave runs without a row, and rows
-- without a run. Rows that wait for a run that the catalog does not know are closed.
-- parameters: none
-- locks: the rows and runs concerned
-- caller: scheduler, at the start of a session and about every minute
WITH open AS MATERIALIZED (
    SELECT o.run, o.begun, o.recalled FROM mill_private.q{oid}_list_open_runs() AS o
), missing AS MATERIALIZED (
    SELECT COALESCE(array_agg(o.run) FILTER (WHERE NOT EXISTS (
               SELECT FROM {queue} t WHERE t.run = o.run AND t.state IN ('PLAN', 'TAKE', 'WORK', 'STOP'))), ARRAY[]::bigint[]) AS gone,
           COALESCE(array_agg(o.run) FILTER (WHERE o.begun AND EXISTS (
               SELECT FROM {queue} t WHERE t.run = o.run AND t.state = 'PLAN')), ARRAY[]::bigint[]) AS waiting
      FROM open o WHERE NOT o.recalled
), closed AS (
    UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(), reason = 'cancelled',
           error = 'ERROR:  the catalog does not know the run of this task'
     WHERE t.id = ANY (ARRAY(SELECT f.id FROM {queue} f WHERE f.run IS NOT NULL AND f.state = 'PLAN'
                                AND NOT EXISTS (SELECT FROM open o WHERE o.run = f.run)
                              LIMIT 1000 FOR UPDATE SKIP LOCKED))
    RETURNING t.id
)
SELECT (SELECT count(*) FROM closed) AS closed,
       CASE WHEN cardinality(m.gone || m.waiting) > 0 THEN mill_private.q{oid}_settle_missing_runs(m.gone, m.waiting) ELSE 0 END AS settled
  FROM missing m
