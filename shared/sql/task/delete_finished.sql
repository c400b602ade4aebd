-- A finished row that has nothing to say goes, if its owner wants it so.
-- parameters: id bigint, attempt int
-- locks: the row
-- caller: worker, in the transaction that finished the row
DELETE FROM {queue} t
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND t.state = 'DONE' AND t.delete AND t.output IS NULL AND t.error IS NULL
