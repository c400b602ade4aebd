-- Deletes finished rows older than their `keep`, a few at a time.
-- parameters: keep_ms float8
-- locks: the rows
-- caller: scheduler
DELETE FROM {queue} WHERE id IN (
    SELECT id FROM {queue} WHERE state IN ('DONE', 'FAIL', 'GONE')
       AND stop < statement_timestamp() - :keep_ms::float8 * interval '1 ms' AND job IS NULL
     ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED)
