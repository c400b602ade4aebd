-- Expires rows that were not started in time; those that repeat get their next repetition.
-- parameters: ids bigint[]
-- locks: the rows, but for those that somebody else has locked
-- caller: scheduler
WITH free AS (
    SELECT t.id FROM {queue} t WHERE t.id = ANY (:ids::bigint[]) AND t.state = 'PLAN' FOR UPDATE SKIP LOCKED
), gone AS (
    UPDATE {queue} t SET state = 'GONE', start = statement_timestamp(), stop = statement_timestamp(),
           error = 'ERROR:  task not active', reason = 'expired', crashes = 0
      FROM free f WHERE t.id = f.id AND t.state = 'PLAN' AND {expired}
    RETURNING t.*
), again AS (
    INSERT INTO {queue} (parent, plan, {copied_columns})
    SELECT t.id, {next_time}{copied_values} FROM gone t WHERE t.repeat > interval '0' ORDER BY t.id
    RETURNING id
)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM again) AS again
