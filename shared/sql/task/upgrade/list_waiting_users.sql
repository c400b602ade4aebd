-- Lists the roles whose tasks wait in a table whose rows name the role that runs them.
-- parameters: none
-- locks: none
-- caller: scheduler, before it takes such a table over
SELECT DISTINCT "user"::text AS name FROM {queue}
 WHERE state IN ('PLAN', 'TAKE', 'WORK', 'STOP') AND "user"::text <> current_user ORDER BY 1 LIMIT 5
