-- Reads which table has the name of the queue. A rename tells nobody, and our statements go by the name.
-- parameters: none
-- locks: none
-- caller: scheduler, at every full pass
SELECT pg_catalog.to_regclass({queue_text})::pg_catalog.oid AS relid
