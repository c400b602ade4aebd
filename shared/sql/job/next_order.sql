-- Reads the ordered run whose row would be inserted first.
-- parameters: none
-- locks: none
-- caller: scheduler, if the queue has refused one of several rows
SELECT mill_private.q{oid}_next_order() AS run
