-- Writes for `mill.why` what keeps the queue from being served, or that nothing does; an equal text is not written again.
-- parameters: trouble text
-- locks: the queue's row in the catalog
-- caller: scheduler
SELECT mill_private.q{oid}_record_error(:trouble::text)
 WHERE (SELECT q.trouble FROM mill.queue q WHERE q.relid = {oid}) IS DISTINCT FROM :trouble::text
