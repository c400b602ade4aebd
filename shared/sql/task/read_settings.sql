-- Reads settings of the scheduler at the levels below the config: session, role, database, server. Empty counts as unset.
-- parameters: none
-- locks: none
-- caller: scheduler, at the start of a session and on reload
SELECT name, NULLIF(pg_catalog.current_setting(name, true), '') AS value
  FROM unnest(ARRAY[{server_settings}]) AS name
