-- Which of the `candidates` start: as many as their groups have room for, the groups with the most room first.
{running}, due AS (
    SELECT w.id, w.priority, GREATEST(w."max", 0) - COALESCE(r.others, 0) AS capacity,
           row_number() OVER (PARTITION BY w."group", w.remote ORDER BY w."max" DESC, w.priority DESC, w.id) AS place
      FROM candidates w LEFT JOIN running r ON r."group" = w."group" AND r.remote IS NOT DISTINCT FROM w.remote
     WHERE w.plan <= statement_timestamp() AND NOT w.expired AND NOT w.busy
), chosen AS (
    SELECT id, capacity, priority FROM due WHERE place - 1 <= capacity
     ORDER BY capacity DESC, priority DESC, id LIMIT :rows::bigint
)
