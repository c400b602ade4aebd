-- Lists existing jobs with these names.
-- parameters: names text[]
-- locks: none
-- caller: the launcher's import
SELECT j.id, j.name, j.input, j.cron, j.schedule_interval, j.timezone, j.scheduled FROM mill.job j WHERE j.name = ANY (:names::text[])
