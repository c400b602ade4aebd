-- Lists the running tasks that users have stopped, stopped and planned again, or deleted. (The run of a job that somebody
-- stops is closed as cancelled at once, skipped or marked as he says.) Of which attempt is said as well: a task of a batch
-- may have gone back meanwhile and run again in another worker.
-- parameters: ids bigint[], attempts int[]
-- locks: none
-- caller: scheduler, when notified and at every poll
SELECT r.id, r.attempt FROM unnest(:ids::bigint[], :attempts::int[]) AS r (id, attempt)
  LEFT JOIN {queue} t ON t.id = ANY (:ids::bigint[]) AND t.id = r.id AND t.attempt = r.attempt
 WHERE t.id IS NULL OR t.state IN ('STOP', 'PLAN')
    OR (t.job IS NOT NULL AND t.state IN ('DONE', 'FAIL') AND t.reason IN ('cancelled', 'skipped', 'marked'))
