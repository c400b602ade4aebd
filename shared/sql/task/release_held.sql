-- Rows that stood aside for their time, and whose time has come.
-- parameters: none; locks: the rows; caller: scheduler, at every look
UPDATE {queue} SET held = false
 WHERE id IN (SELECT id FROM {queue} WHERE state = 'PLAN' AND held AND plan <= statement_timestamp() AND job IS NULL
               ORDER BY plan LIMIT 1000 FOR UPDATE SKIP LOCKED)
