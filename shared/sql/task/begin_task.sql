-- The worker begins: from here on the row names the backend that runs it (a remote task's is not known yet), and
-- everything the worker must know is read from the row. No row: somebody else has it by now, and nothing is run.
-- parameters: id, attempt; locks: the row; caller: worker
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(),
       pid = CASE WHEN t.remote IS NULL THEN pg_catalog.pg_backend_pid() END, remote_session = NULL
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND {still_taken}
RETURNING {task_row}
