-- Reads whether this session keeps the graph, and whether any of it is in use. `held`: we keep it already; `armed`: its wake-up lock
-- is held.
-- parameters: held bool, armed bool
-- locks: kinds 6 and 3, of the session
-- caller: scheduler
SELECT * FROM mill_private.s_watch_graph(:held, :armed)
