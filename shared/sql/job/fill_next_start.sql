-- The answer: the next start, or why there is none; too late if the job was changed meanwhile.
-- parameters: job, stamp, next start, what is wrong; locks: the job's row in job_book; caller: scheduler
SELECT mill_private.q{oid}_fill_next_start($1::int, $2::bigint, $3::timestamptz, $4::text)
