-- The worker is younger than the candidate's `live`: `first_start` is the start of its first task, in seconds.
(CASE WHEN t.live < interval '200000 years'
    THEN pg_catalog.to_timestamp(:first_start::float8) + t.live > statement_timestamp() ELSE true END)
