-- The same where the data refuse the repetition or the pause: it ends as a failure that says so.
-- parameters: id, attempt, the refusal; locks: the row; caller: scheduler
UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(),
       error = pg_catalog.concat('ERROR:  task crashed', chr(10), $3::text), reason = 'completion'
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.state = 'WORK' AND t.remote IS NOT NULL
