-- A served task table becomes known to the catalog.
-- parameters: table OID, schema, name; locks: the row; caller: scheduler, as the catalog's owner
INSERT INTO mill.queue (relid, schema, name, owner) VALUES ($1, $2::text, $3::text, current_user)
ON CONFLICT (relid) DO UPDATE SET schema = EXCLUDED.schema, name = EXCLUDED.name, owner = EXCLUDED.owner
    WHERE (queue.schema, queue.name, queue.owner) IS DISTINCT FROM (EXCLUDED.schema, EXCLUDED.name, EXCLUDED.owner)
