-- A finished row that has nothing to say goes, if its owner wants it so.
-- parameters: id, attempt; locks: the row; caller: worker, in the transaction that finished the row
DELETE FROM {queue} t
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.state = 'DONE' AND t.delete AND t.output IS NULL AND t.error IS NULL
