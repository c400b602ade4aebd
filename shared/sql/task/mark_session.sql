-- The session says whose it is before it holds a queue: its launcher's name, and the session by which that one leads. And it
-- holds a number of its own, by which workers see that they are on the same server.
-- parameters: kind of a launcher's mark, its name, kind of a term's mark, the term, the two halves of the number; locks: advisory, session; caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock_shared($1::int, pg_catalog.hashtext($2)) AS launcher,
       pg_catalog.pg_try_advisory_lock_shared($3::int, $4::int) AS term,
       pg_catalog.pg_try_advisory_lock($5::int, $6::int) AS proof
