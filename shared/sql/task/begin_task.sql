-- The worker begins: from here on the row names the backend that runs it, and everything the worker must know is
-- read from the row. No row: somebody else has it by now, and nothing is run.
-- parameters: id, attempt; locks: the row; caller: worker
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(), pid = pg_catalog.pg_backend_pid()
 WHERE t.id = $1 AND t.attempt = $2 AND t.state = 'TAKE'
RETURNING t.input, t."group", t.remote, t.atomic, t.header, t.string, t.delimiter, t.escape, t.quote, t."null",
          (extract(epoch FROM t.timeout) * 1000)::bigint AS timeout_ms,
          pg_catalog.current_setting('log_error_verbosity') AS verbosity,
          pg_catalog.pg_postmaster_start_time() AS postmaster
