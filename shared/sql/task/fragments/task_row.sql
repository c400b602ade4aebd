-- What a worker must know of its task, in the order in which it reads the row. Times as numbers: a task may change how
-- its session writes and reads dates.
t.id, t.attempt, t.input, t."group", t.remote, t.atomic, t.header,
    t.string, t.delimiter, t.escape, t.quote, t."null", ceil(extract(epoch FROM t.timeout) * 1000)::bigint AS timeout_ms,
    pg_catalog.current_setting('log_error_verbosity') AS verbosity,
    extract(epoch FROM pg_catalog.pg_postmaster_start_time()) AS postmaster, extract(epoch FROM t.start) AS start,
    t."max", (t."max" >= 0 AND (t.count > 0 OR t.live > interval '0')) AS reuse, t.save,
    (t.repeat > interval '0' OR t."max" < 0) AS consequences, t.job,
    {logical_time} AS at, t.priority
