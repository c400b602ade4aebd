-- Creates the task table, with the columns of the list in `shared/src/db/task_column.rs`. Defaults fall through session,
-- role, database and server settings `pg_task.*` to the config's value, which stands in the text.
-- parameters: none
-- locks: the table's name
-- caller: scheduler
CREATE TABLE {queue} (
{columns}
) WITH (
    -- A row is written anew when it is claimed and when it ends. With room for both on its page it stays there: the table
    -- does not grow while it is worked off, and less is written to the log. What waits takes twice the space for it.
    fillfactor = 45
)
