-- Sets the application_name of the scheduler, which contains `sleep`.
-- parameters: name text
-- locks: none
-- caller: scheduler, after a reload
SELECT pg_catalog.set_config('application_name', :name, false)
