-- Reads whether a test has moved the clock that decides when jobs are due.
-- parameters: none
-- locks: none
-- caller: scheduler, at the start of a session
SELECT mill_private.s_clock() <> interval '0' AS moved
