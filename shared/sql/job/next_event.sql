-- As next_plan, and in the same question what the jobs of the queue are up to: their version, how long until one is due
-- (0: it is), how long until a waiting run's time comes, and whether a next start waits to be computed.
-- parameters: table OID, until when waiting runs were released, whether the tally is to be entered; locks: rows of job_book,
-- skipping what others have locked, if that is asked; caller: scheduler, before it waits, where the queue runs jobs
SELECT (SELECT ceil(extract(epoch FROM plan - clock_timestamp()) * 1000)::float8 FROM {queue}
         WHERE state = 'PLAN' AND held AND job IS NULL AND plan < 'infinity' ORDER BY plan LIMIT 1) AS ms,
       p.version, p.ms AS due_ms, p.fill,
       (SELECT ceil(extract(epoch FROM plan - p.moment) * 1000)::float8 FROM {queue}
         WHERE state = 'PLAN' AND held AND job IS NOT NULL AND plan > COALESCE($2::timestamptz, '-infinity')
           AND plan < 'infinity'
         ORDER BY plan LIMIT 1) AS waiting_ms
  FROM mill.s_pulse($1::oid, $3::bool) AS p
