-- Tests only. A label that a later step uses: committed before it, if the type is there already.
-- parameters: none; locks: the type; caller: upgrade, in a transaction of its own
DO $before$
BEGIN
    IF pg_catalog.to_regtype('mill.taste') IS NOT NULL THEN
        ALTER TYPE mill.taste ADD VALUE IF NOT EXISTS 'sour';
    END IF;
END
$before$;
