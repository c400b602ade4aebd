-- Settings of the scheduler at the levels below our config: session, role, database, server. Empty counts as unset.
-- parameters: none
-- locks: none
-- caller: scheduler, at the start of a session and on reload
SELECT name, NULLIF(pg_catalog.current_setting(name, true), '') AS value
  FROM unnest(ARRAY['pg_task.sleep', 'pg_task.reset', 'pg_task.limit', 'pg_task.run', 'pg_task.idle', 'pg_work.idle',
                    'pg_work.close', 'pg_work.fetch', 'pg_task.fetch', 'pg_task.keep']) AS name
