-- Tests only. The second step: a label, a function for users, another one for schedulers.
-- parameters: none; locks: none; caller: upgrade
ALTER TYPE mill.taste ADD VALUE IF NOT EXISTS 'sour';
CREATE FUNCTION mill.novelty() RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN 'new';
CREATE FUNCTION mill_private.s_novelty() RETURNS text
    LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN 'new';
INSERT INTO mill_private.grant_list (level, object, rights) VALUES
    ('use', 'FUNCTION mill.novelty()', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_novelty()', 'EXECUTE');
