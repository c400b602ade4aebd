-- Ends a task as crashed, with its repetition and its pause: the outcome of a remote task is unknown, or a task has killed
-- its worker or its server process too often. Not if somebody else has the row locked: it is tried again. `death` is how it
-- died; NULL: nobody knows, of a remote task.
-- parameters: id bigint, attempt int, death text
-- locks: the row, and those that its pause plans anew
-- caller: scheduler, at a reset, and when `plan_again` says that it is spent
WITH ours AS MATERIALIZED (
    SELECT f.id FROM {queue} f WHERE f.id = :id::bigint AND f.attempt = :attempt::int AND f.state = 'WORK'
       AND (f.remote IS NOT NULL OR :death::text IS NOT NULL) FOR UPDATE SKIP LOCKED
), crashed AS (
    UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(), reason = 'crashed', crashes = 0,
           error = pg_catalog.concat('ERROR:  task crashed', ': ' || :death::text || ', ' || (t.crashes + 1) || ' times in a row')
      FROM ours o WHERE t.id = o.id AND t.attempt = :attempt::int AND t.state = 'WORK'
    RETURNING t.*
), again AS (
    INSERT INTO {queue} (parent, plan, {copied_columns})
    SELECT t.id, {next_time}{copied_values} FROM crashed t WHERE t.repeat > interval '0'
    RETURNING id
), paused AS (
    UPDATE {queue} t SET plan = CASE WHEN t.drift THEN statement_timestamp() - t."max" * interval '1 ms'
                                     ELSE t.plan - t."max" * interval '1 ms' * (
                                         floor(extract(epoch FROM statement_timestamp() - t.plan) * 1000 / - t."max"::float8) + 1) END
      FROM crashed c
     WHERE c."max" < 0 AND t.state = 'PLAN' AND t."max" < 0 AND t.hash = c.hash AND t."group" = c."group"
       AND t.remote IS NOT DISTINCT FROM c.remote AND t.plan <= statement_timestamp() AND t.plan > '-infinity'
    RETURNING t.id
)
SELECT (SELECT count(*) FROM crashed) AS crashed, (SELECT count(*) FROM again) AS again, (SELECT count(*) FROM paused) AS paused
