-- Begins an upgrade by hand: notifies the launcher, stops all schedulers of the database, and checks the version of the
-- catalog.
-- parameters: none (they stand in the text); locks: install, all queues', mill.meta; caller: whoever runs the printed text
BEGIN;
{restart}SET LOCAL lock_timeout = '{lock_timeout}';
SELECT pg_catalog.pg_advisory_xact_lock({install_key}, 0);
SELECT pg_catalog.pg_advisory_xact_lock({queue_key}, q.relid::int) FROM (SELECT relid FROM mill.queue ORDER BY relid) AS q;
LOCK TABLE mill.meta IN ACCESS EXCLUSIVE MODE;
DO $guard$
BEGIN
    IF (SELECT m.version FROM mill.meta m) IS DISTINCT FROM {from} THEN
        RAISE EXCEPTION 'this upgrade is for a catalog of version %', {from};
    END IF;
END
$guard$;
