-- Inserts the next run of a repeating task: a copy of the finished row, with that as its parent.
-- parameters: id bigint, attempt int
-- locks: none
-- caller: worker, in the transaction that finishes the row
INSERT INTO {queue} (parent, plan, {copied_columns})
SELECT t.id, {next_time}{copied_values} FROM {queue} t WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND t.repeat > interval '0'
