-- Releases held rows whose time has come. By an array of ids, because a join could read the whole table if it was small when
-- the statement was planned.
-- parameters: none
-- locks: the rows
-- caller: scheduler, in every full pass
UPDATE {queue} SET held = false
 WHERE id = ANY (ARRAY(SELECT id FROM {queue} WHERE state = 'PLAN' AND held AND plan <= statement_timestamp() AND job IS NULL
                        ORDER BY plan LIMIT 1000 FOR UPDATE SKIP LOCKED))
