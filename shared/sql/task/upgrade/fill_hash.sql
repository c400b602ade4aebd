-- Fills missing or wrong hashes of waiting and running rows, a few at a time; the trigger maintains the rest.
-- parameters: rows bigint
-- locks: the rows
-- caller: scheduler, when the hash is a plain column
UPDATE {queue} t SET hash = pg_catalog.hashtext(t."group" || COALESCE(t.remote, ''))
 WHERE t.id IN (SELECT id FROM {queue} WHERE state IN ('PLAN', 'TAKE', 'WORK')
                   AND hash IS DISTINCT FROM pg_catalog.hashtext("group" || COALESCE(remote, ''))
                 LIMIT :rows::bigint FOR UPDATE SKIP LOCKED)
