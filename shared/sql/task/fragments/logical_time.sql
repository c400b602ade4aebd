-- The logical time of a run, whatever the session's zone is.
pg_catalog.to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
