-- The same for the run of a job: what else it may read.
, pg_catalog.set_config('mill.job', t.job::pg_catalog.text, false),
    pg_catalog.set_config('mill.at', COALESCE({logical_time}, ''), false),
    pg_catalog.set_config('mill.attempt', t.attempt::pg_catalog.text, false)
