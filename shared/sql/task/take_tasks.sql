-- Claims up to $1 due rows: at most max others of a group run, most free capacity first, then priority, then id.
-- parameters: how many (the scheduler has reserved as many slots); locks: the rows; caller: scheduler
WITH running AS (
    SELECT "group", remote, count(*) AS others FROM {queue} WHERE state IN ('TAKE', 'WORK') GROUP BY "group", remote
), due AS (
    SELECT t.id, t.priority, GREATEST(t."max", 0) - COALESCE(r.others, 0) AS capacity,
           row_number() OVER (PARTITION BY t."group", t.remote
                              ORDER BY GREATEST(t."max", 0) DESC, t.priority DESC, t.id) AS place
      FROM {queue} t
      LEFT JOIN running r ON r."group" = t."group" AND r.remote IS NOT DISTINCT FROM t.remote
     WHERE t.state = 'PLAN' AND NOT t.held AND t.plan <= statement_timestamp()
), chosen AS (
    SELECT id, capacity, priority FROM due WHERE place - 1 <= capacity
     ORDER BY capacity DESC, priority DESC, id LIMIT $1::bigint
), locked AS (
    SELECT t.id, c.capacity, c.priority FROM {queue} t JOIN chosen c USING (id)
     WHERE t.state = 'PLAN' AND NOT t.held FOR UPDATE OF t SKIP LOCKED
), taken AS (
    UPDATE {queue} t SET state = 'TAKE', attempt = t.attempt + 1 FROM locked l WHERE t.id = l.id
    RETURNING t.id, t.attempt, l.capacity, l.priority
)
SELECT id, attempt FROM taken ORDER BY capacity DESC, priority DESC, id
