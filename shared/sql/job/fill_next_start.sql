-- The answer: the next start, or why there is none; too late if the job was changed meanwhile.
-- parameters: job int, stamp bigint, next_start timestamptz, trouble text
-- locks: the job's row in job_book
-- caller: scheduler
SELECT mill_private.q{oid}_fill(:job::int, :stamp::bigint, :next_start::timestamptz, :trouble::text)
