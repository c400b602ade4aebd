-- What pg_stat_activity says about the scheduler: it carries the sleep, which a reload may change.
-- parameters: name text
-- locks: none
-- caller: scheduler, after a reload
SELECT pg_catalog.set_config('application_name', :name, false)
