-- What a task finds set in its session, set by the claim of one row itself, for a session that is reset: a round trip less
-- than a setup of its own, and it is planned once. `worker::session::setup` has the list.
, pg_catalog.set_config('pg_task.id', t.id::pg_catalog.text, false),
    pg_catalog.set_config('pg_task.group', :group, false), pg_catalog.set_config('pg_task.schema', {schema_text}, false),
    pg_catalog.set_config('pg_task.table', {table_text}, false),
    pg_catalog.set_config('application_name', pg_catalog.concat('pg_task ', {schema_text}, ' ', {table_text}, ' ', :group), false),
    pg_catalog.pg_try_advisory_lock({task_key}, {task_lock})
