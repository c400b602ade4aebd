-- Tells `mill.why` what keeps the queue from being served, or that nothing does; nothing is written if it is known.
-- parameters: trouble text
-- locks: the queue's row in the catalog
-- caller: scheduler
SELECT mill_private.q{oid}_record_error(:trouble::text)
 WHERE (SELECT q.trouble FROM mill.queue q WHERE q.relid = {oid}) IS DISTINCT FROM :trouble::text
