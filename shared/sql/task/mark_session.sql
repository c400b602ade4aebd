-- The session says whose it is before it holds a queue: its launcher's name, and the session by which that one leads.
-- parameters: kind of a launcher's mark, its name, kind of a term's mark, the term; locks: advisory, session, shared; caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock_shared($1::int, pg_catalog.hashtext($2)) AS launcher,
       pg_catalog.pg_try_advisory_lock_shared($3::int, $4::int) AS term
