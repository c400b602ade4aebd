-- Writes a computed next start, or why there is none; it is ignored if the job was changed meanwhile.
-- parameters: job int, stamp bigint, next_start timestamptz, trouble text
-- locks: the job's row in job_state
-- caller: scheduler
SELECT mill_private.q{oid}_fill_next_start(:job::int, :stamp::bigint, :next_start::timestamptz, :trouble::text)
