-- The session on the remote is there: from here on the row names it, and only then is the input sent. No row: the
-- task was stopped, deleted or claimed anew meanwhile, and nothing is run.
-- `remote_session` tells that session from later ones with its pid.
-- parameters: id bigint, attempt int, remote_pid int, remote_session text
-- locks: the row
-- caller: worker
UPDATE {queue} t SET pid = :remote_pid::int, remote_session = :remote_session::text
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND t.state = 'WORK'
RETURNING t.id
