-- Reads the milliseconds until the next planned row is due; no row when none is planned.
-- parameters: none
-- locks: none
-- caller: scheduler, before it waits
SELECT ceil(extract(epoch FROM plan - clock_timestamp()) * 1000)::float8 AS ms FROM {queue}
 WHERE state = 'PLAN' AND held AND job IS NULL AND plan < 'infinity' ORDER BY plan LIMIT 1
