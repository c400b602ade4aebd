-- The task tables that the catalog knows, and how a scheduler makes its own known.
-- A queue's user need not own the catalog: s_register runs as the catalog's owner, for whoever logged in, and takes a
-- table only from somebody who could serve it. A restored table has another OID under the same name.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.queue (
    relid oid PRIMARY KEY,
    schema name NOT NULL,
    name name NOT NULL,
    owner name NOT NULL
);
COMMENT ON TABLE mill.queue IS 'pgmill: the task tables that a scheduler has served in this database';
INSERT INTO mill.face (level, object, rights) VALUES ('use', 'TABLE mill.queue', 'SELECT');
CREATE FUNCTION mill.s_version() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT m.version FROM mill.meta m);
COMMENT ON FUNCTION mill.s_version() IS 'pgmill: the version of this catalog; the same in every version';
CREATE FUNCTION mill.s_register(queue oid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    found record;
BEGIN
    SELECT c.oid AS relid, n.nspname AS schema, c.relname AS name, pg_get_userbyid(c.relowner) AS owner,
           pg_has_role(session_user, c.relowner, 'USAGE')
               OR has_table_privilege(session_user, c.oid, 'SELECT')
              AND has_table_privilege(session_user, c.oid, 'INSERT')
              AND has_table_privilege(session_user, c.oid, 'UPDATE')
              AND has_table_privilege(session_user, c.oid, 'DELETE') AS serves
      INTO found
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = s_register.queue AND c.relkind IN ('r', 'p');
    IF found.relid IS NULL THEN
        RAISE EXCEPTION 'there is no table %', s_register.queue::regclass USING ERRCODE = '42P01';
    ELSIF NOT found.serves THEN
        RAISE EXCEPTION '% may not serve %.%', quote_ident(session_user), quote_ident(found.schema),
            quote_ident(found.name) USING ERRCODE = '42501';
    END IF;
    DELETE FROM mill.queue q
     WHERE q.relid <> found.relid AND ((q.schema, q.name) = (found.schema, found.name)
        OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = q.relid));
    INSERT INTO mill.queue AS q (relid, schema, name, owner) VALUES (found.relid, found.schema, found.name, found.owner)
    ON CONFLICT (relid) DO UPDATE SET schema = EXCLUDED.schema, name = EXCLUDED.name, owner = EXCLUDED.owner
     WHERE (q.schema, q.name, q.owner) IS DISTINCT FROM (EXCLUDED.schema, EXCLUDED.name, EXCLUDED.owner);
END
$function$;
COMMENT ON FUNCTION mill.s_register(oid) IS 'pgmill: a scheduler makes its task table known to the catalog';
