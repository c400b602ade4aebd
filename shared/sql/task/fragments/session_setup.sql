-- What a task finds set in its session, set by the claim itself.
, pg_catalog.set_config('pg_task.id', t.id::pg_catalog.text, false),
    pg_catalog.set_config('pg_task.group', :group, false), pg_catalog.set_config('pg_task.schema', :schema, false),
    pg_catalog.set_config('pg_task.table', :table, false), pg_catalog.set_config('application_name', :session_name, false),
    pg_catalog.pg_try_advisory_lock({task_key}, pg_catalog.hashtext(
        pg_catalog.concat(:queue::pg_catalog.regclass::pg_catalog.oid, ':', t.id::pg_catalog.text)))
