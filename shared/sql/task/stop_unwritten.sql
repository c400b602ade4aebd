-- Stops a row whose end is refused in every form, so that its group continues and its input does not run again.
-- parameters: id bigint, attempt int
-- locks: the row
-- caller: scheduler, behind `end_unwritten`
UPDATE {queue} t SET state = 'STOP', pid = NULL, reason = 'completion'
 WHERE t.id = (SELECT f.id FROM {queue} f WHERE f.id = :id::bigint AND f.attempt = :attempt::int AND f.state = 'WORK' FOR UPDATE SKIP LOCKED)
   AND t.attempt = :attempt::int AND {still_working}
RETURNING t.id::bigint AS id
