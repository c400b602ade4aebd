-- Creates public.task with all its objects, unless a table of that name exists: its scheduler takes that one over.
-- parameters: none (the statements stand in the text); locks: the new table; caller: launcher install, in its transaction
DO $install$
BEGIN
    IF pg_catalog.to_regtype('public.state') IS NULL AND pg_catalog.to_regclass('public.task') IS NULL THEN
        EXECUTE $statement${make_state}$statement$;
    END IF;
    IF pg_catalog.to_regclass('public.task') IS NULL THEN
        EXECUTE $statement${make_task}$statement$;
    END IF;
END
$install$;
