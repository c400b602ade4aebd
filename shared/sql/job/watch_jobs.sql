-- Which of these jobs still exist, and how long their runs may take, in ms (0: no limit).
-- parameters: jobs int[]
-- locks: none
-- caller: scheduler, when it has started some, and when a job was changed
SELECT job, ms, scheduled FROM mill_private.q{oid}_watch_jobs(:jobs::int[])
