-- What became of a remote task cannot be found out: it ends as crashed, with its repetition and its pause.
-- parameters: id, attempt; locks: the row, and those that its pause plans anew; caller: scheduler, at a reset
WITH crashed AS (
    UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(), error = 'ERROR:  task crashed', reason = 'crashed'
     WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.state = 'WORK' AND t.remote IS NOT NULL
    RETURNING t.*
), again AS (
    INSERT INTO {queue} ({repeat_columns})
    SELECT {repeat_values} FROM crashed t WHERE t.repeat > interval '0'
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
