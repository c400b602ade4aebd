-- What `task_row` returns, as one array of texts.
ARRAY[t.id::text, t.attempt::text, t.input::text, t."group"::text, t.remote::text, t.atomic::text,
           t.header::text, t.string::text, t.delimiter::text, t.escape::text, t.quote::text, t."null"::text, t.timeout_ms::text,
           t.verbosity::text, t.postmaster::text, t.start::text, t."max"::text, t.reuse::text, t.save::text,
           t.consequences::text, t.job::text, t.at::text, t.priority::text]
