-- Tests only. What the version after next has and this one has not, as a fresh installation makes it.
-- parameters: none; locks: none; caller: installation, once per database
CREATE TYPE mill.taste AS ENUM ('sweet', 'sour');
ALTER TABLE mill.queue ADD COLUMN taste mill.taste NOT NULL DEFAULT 'sweet';
COMMENT ON COLUMN mill.queue.taste IS 'pgmill: there only in tests';
CREATE FUNCTION mill_private.s_novelty() RETURNS text
    LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN 'new';
CREATE FUNCTION mill.novelty() RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN 'new';
INSERT INTO mill_private.grant_list (level, object, rights) VALUES
    ('use', 'FUNCTION mill.novelty()', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_novelty()', 'EXECUTE');
