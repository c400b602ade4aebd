-- Ends an attempt whose result the database has refused in every form: a failure with that reason, without consequences. Not
-- if somebody else has the row locked: it is tried again.
-- parameters: id bigint, attempt int
-- locks: the row
-- caller: scheduler, once in a while
UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(), reason = 'completion', crashes = 0,
       error = 'ERROR:  the end of the task could not be written'
 WHERE t.id = (SELECT f.id FROM {queue} f WHERE f.id = :id::bigint AND f.attempt = :attempt::int AND f.state = 'WORK' FOR UPDATE SKIP LOCKED)
   AND t.attempt = :attempt::int AND {still_working}
RETURNING t.id::bigint AS id
