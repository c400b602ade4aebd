-- Which of these jobs are still there, and how long their runs may take, in ms (0: for ever).
-- parameters: job ids; locks: none; caller: scheduler, when it has started some, and when a job was changed
SELECT job, ms, scheduled FROM mill.s_watch($1::int[])
