-- The same where the data refuse the repetition or the pause: it ends as a failure that says so.
-- parameters: id, attempt, the refusal, how it died; locks: the row; caller: scheduler
UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(),
       error = pg_catalog.concat('ERROR:  task crashed', ': ' || $4::text || ', ' || (t.crashes + 1) || ' times in a row', chr(10), $3::text),
       reason = 'completion', crashes = 0
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.state = 'WORK' AND (t.remote IS NOT NULL OR $4::text IS NOT NULL)
