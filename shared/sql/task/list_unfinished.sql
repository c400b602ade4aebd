-- Rows that somebody claimed and nobody finished. Those that are not our workers' are settled.
-- parameters: none; locks: none; caller: scheduler, at the start of a session, after a worker's death, every `reset`
SELECT id::bigint AS id, attempt::int AS attempt, pid::int AS pid FROM {queue} WHERE state IN ('TAKE', 'WORK')
