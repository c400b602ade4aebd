-- What a claim of the scheduler returns of the rows that have begun with it, and of plain ones that will.
t.backend, t.reuse AS reuse, CASE WHEN t.plain THEN {row_texts} END AS task_row,
       CASE WHEN t.plain THEN {task_lock} END AS sign
