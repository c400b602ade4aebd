-- The next run of a repeating task: a new row with the finished one as its parent and all else copied.
-- parameters: id, attempt; locks: none; caller: worker, in the transaction that finishes the row
INSERT INTO {queue} ({repeat_columns})
SELECT {repeat_values} FROM {queue} t WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.repeat > interval '0'
