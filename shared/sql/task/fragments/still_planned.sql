-- A row that is known by its id, looked at once more. As a CASE, because the server does not see through it: an index
-- of all rows in that state, of which it believes that they are few, is no way to a row whose id is known.
CASE WHEN t.state = 'PLAN' THEN NOT t.held ELSE false END
