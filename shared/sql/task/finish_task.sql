-- The end of an attempt. No row: the task is no longer ours (deleted, stopped, taken anew), and nothing is written.
-- parameters: id, attempt, state, output, error, reason; locks: the row; caller: worker
UPDATE {queue} t SET state = $3::text::{state}, stop = statement_timestamp(), output = $4, error = $5, reason = $6
 WHERE t.id = $1 AND t.attempt = $2 AND t.state = 'WORK'
RETURNING t.id
