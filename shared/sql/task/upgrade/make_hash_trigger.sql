-- Creates the trigger for the hash of a table that has it as a plain column: adding it as a generated one would rewrite a
-- large table.
-- parameters: none
-- locks: the table, against writers
-- caller: scheduler
CREATE OR REPLACE FUNCTION {schema}.mill_hash() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    NEW.hash := pg_catalog.hashtext(NEW."group" OPERATOR(pg_catalog.||) COALESCE(NEW.remote, ''));
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION {schema}.mill_hash() IS 'pgmill: keeps the hash of group and remote, for the indexes';
CREATE OR REPLACE TRIGGER mill_hash BEFORE INSERT OR UPDATE ON {queue} FOR EACH ROW
    WHEN (NEW.hash IS DISTINCT FROM pg_catalog.hashtext(NEW."group" OPERATOR(pg_catalog.||) COALESCE(NEW.remote, '')))
    EXECUTE FUNCTION {schema}.mill_hash();
