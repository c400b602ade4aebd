-- The worker begins: from here on the row names the backend that runs it (a remote task's is not known yet), and
-- everything the worker must know is read from the row. No row: somebody else has it by now, and nothing is run.
-- parameters: id bigint, attempt int
-- locks: the row
-- caller: worker
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(),
       pid = CASE WHEN t.remote IS NULL THEN pg_catalog.pg_backend_pid() END, remote_session = NULL
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND {still_claimed}
RETURNING {task_row}
