-- Writes the session on the remote into the row, before the input is sent. No row: the task was stopped, deleted or claimed
-- anew meanwhile, and nothing is run. `remote_session` tells that session from later ones with its pid.
-- parameters: id bigint, attempt int, remote_pid int, remote_session text
-- locks: the row
-- caller: worker
UPDATE {queue} t SET pid = :remote_pid::int, remote_session = :remote_session::text
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND t.state = 'WORK'
RETURNING t.id
