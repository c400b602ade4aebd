-- Which of these jobs still exist, how long their runs may take, in ms (0: no limit), and why the catalog has paused them.
-- parameters: jobs int[]
-- locks: none
-- caller: scheduler, when it has started some, and when a job was changed
SELECT job, ms, scheduled, name, why FROM mill_private.q{oid}_watch_jobs(:jobs::int[])
