-- Rows that somebody claimed and nobody finished. Those that are not our children's are settled.
-- parameters: none; locks: none; caller: scheduler, at the start of a session and every `reset`
SELECT id, attempt FROM {queue} WHERE state IN ('TAKE', 'WORK')
