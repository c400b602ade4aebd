-- The queue's schema. Only run when it is missing: IF NOT EXISTS alone would still ask for the right to create it.
-- parameters: none
-- locks: the schema's name
-- caller: scheduler
CREATE SCHEMA IF NOT EXISTS {schema}
