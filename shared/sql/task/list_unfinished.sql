-- Lists rows that were claimed and have not ended. A pid of another server has a minus. Those that are not our workers' are
-- settled.
-- parameters: none
-- locks: none
-- caller: scheduler, at the start of a session, after a worker's death, every `reset`
SELECT id::bigint AS id, attempt::int AS attempt, CASE WHEN remote_session IS NULL THEN pid ELSE - pid END::int AS pid FROM {queue} WHERE state IN ('TAKE', 'WORK')
