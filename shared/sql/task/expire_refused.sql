-- Ends a row that was not started in time and whose repetition the data refuse, as a failure with that reason.
-- parameters: id bigint, refusal text
-- locks: the row
-- caller: scheduler
UPDATE {queue} t SET state = 'FAIL', start = statement_timestamp(), stop = statement_timestamp(),
       error = pg_catalog.concat('ERROR:  task not active', chr(10), :refusal::text), reason = 'completion'
 WHERE t.id = :id::bigint AND t.state = 'PLAN' AND {expired}
