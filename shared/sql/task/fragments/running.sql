-- How many run, per group. A group is the pair (group, remote), compared exactly. `assigned_ids` are the tasks that
-- workers are at: one that was stopped counts until its worker has let go of it, and so does one that was deleted, by
-- what is known of it (`known_*`, as bytes: a SQL_ASCII database has texts that it would not take back as such;
-- `known_ids` stands there twice, or the server might look through the whole table for them). Of a batch one task runs
-- at a time: all rows of one backend are one.
running AS (SELECT "group", remote, count(*) FILTER (WHERE pid IS NULL) + count(DISTINCT pid) AS others FROM (
        SELECT "group", remote, CASE WHEN state = 'WORK' AND remote IS NULL THEN pid END AS pid
          FROM {queue} WHERE state IN ('TAKE', 'WORK')
        UNION ALL
        SELECT "group", remote, NULL FROM {queue} WHERE id = ANY (:assigned_ids::bigint[])
           AND (state IN ('STOP', 'PLAN') OR (job IS NOT NULL AND state NOT IN ('TAKE', 'WORK')))
        UNION ALL
        SELECT pg_catalog.convert_from(k."group", pg_catalog.getdatabaseencoding()),
               pg_catalog.convert_from(k.remote, pg_catalog.getdatabaseencoding()), NULL
          FROM unnest(:known_ids::bigint[], :known_groups::bytea[], :known_remotes::bytea[]) AS k (id, "group", remote)
         WHERE NOT EXISTS (SELECT FROM {queue} d WHERE d.id = ANY (:known_ids::bigint[]) AND d.id = k.id)) AS r
    GROUP BY "group", remote)
