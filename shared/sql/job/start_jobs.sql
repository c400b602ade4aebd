-- Releases waiting runs whose time has come, and starts due jobs, the oldest first, as many as slots are reserved.
-- parameters: table OID, slots, until when it was done the last time; locks: rows of job_book and of the queue, skipping
-- what others have locked; caller: scheduler, at a look at which something is due
SELECT started, until FROM mill.s_start($1::oid, $2::int, COALESCE($3::timestamptz, '-infinity'))
