-- The session on the remote is there: from here on the row names it, and only then is the input sent. No row: the
-- task was stopped, deleted or taken anew meanwhile, and nothing is run.
-- parameters: id, attempt, pid on the remote, what tells that session from later ones; locks: the row; caller: worker
UPDATE {queue} t SET pid = $3::int, remote_session = $4::text
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.state = 'WORK'
RETURNING t.id
