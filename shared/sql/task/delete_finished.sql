-- Deletes ended rows that have neither output nor error, if their column delete is true.
-- parameters: ids bigint[], attempts int[]
-- locks: the rows
-- caller: worker, in the transaction that ended the rows
DELETE FROM {queue} t USING unnest(:ids::bigint[], :attempts::int[]) AS r (id, attempt)
 WHERE t.id = ANY (:ids::bigint[]) AND t.id = r.id AND t.attempt = r.attempt AND t.state = 'DONE' AND t.delete AND t.output IS NULL AND t.error IS NULL
