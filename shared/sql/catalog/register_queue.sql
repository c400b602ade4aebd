-- Registers a served task table with the catalog.
-- parameters: table_oid oid
-- locks: the row
-- caller: scheduler, as the queue's user
SELECT mill_private.s_register(:table_oid)
