-- What both claims of the scheduler end with. Of the rows that it has locked the plain ones begin at once, as many as
-- connections are reserved for them: WORK, with the backend that will run them; the others are only claimed.
assigned AS (
    SELECT l.id, l.capacity, l.plain, CASE WHEN l.plain
               THEN (:reserved_backends::int[])[(count(*) FILTER (WHERE l.plain) OVER (ORDER BY l.capacity DESC, l.priority DESC, l.id))::int] END AS backend
      FROM locked l
), claimed AS (
    -- t.state is never taken: it gives its type, which is not the same in every table, to the other two
    UPDATE {queue} t SET state = CASE WHEN l.backend IS NOT NULL THEN 'WORK' WHEN true THEN 'TAKE' ELSE t.state END,
           attempt = {next_attempt}, pid = COALESCE(l.backend, t.pid),
           start = CASE WHEN l.backend IS NULL THEN t.start ELSE statement_timestamp() END,
           remote_session = CASE WHEN l.backend IS NULL THEN t.remote_session END
      FROM assigned l WHERE t.id = l.id
    RETURNING l.capacity, l.backend, l.plain, {task_row}
)
