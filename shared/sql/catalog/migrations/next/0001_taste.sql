-- Tests only. From 0.1.0 to the first step of the version after next: a type, and a column of a table that is filled.
-- parameters: none; locks: mill.meta, mill.queue; caller: upgrade
CREATE TYPE mill.taste AS ENUM ('sweet');
ALTER TABLE mill.queue ADD COLUMN taste mill.taste NOT NULL DEFAULT 'sweet';
COMMENT ON COLUMN mill.queue.taste IS 'pgmill: there only in tests';
