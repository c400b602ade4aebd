-- Ends a crashed task as failed, where the data refuse its repetition or its pause. `death` is how it died; NULL: nobody
-- knows, of a remote task.
-- parameters: id bigint, attempt int, refusal text, death text
-- locks: the row
-- caller: scheduler
UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(),
       error = pg_catalog.concat('ERROR:  task crashed', ': ' || :death::text || ', ' || (t.crashes + 1) || ' times in a row', chr(10), :refusal::text),
       reason = 'completion', crashes = 0
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND t.state = 'WORK' AND (t.remote IS NOT NULL OR :death::text IS NOT NULL)
