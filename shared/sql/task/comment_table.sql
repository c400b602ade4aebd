-- Comments on every column, for \d+ and for people.
-- parameters: none
-- locks: the new table
-- caller: scheduler, in the transaction that makes the table
COMMENT ON TABLE {queue} IS 'pgmill: every row is SQL that is run as the user of this queue''s scheduler';
{column_comments}
