-- Marks the session before it holds a queue: with its launcher's name and the leading session of that launcher. And it holds
-- a number of its own, by which workers see that they are on the same server. `term` is the server process of the session by
-- which the launcher leads; the number comes in two halves.
-- parameters: launcher_kind int, launcher_name text, term_kind int, term int, proof_high int, proof_low int
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock_shared(:launcher_kind::int, pg_catalog.hashtext(:launcher_name)) AS launcher,
       pg_catalog.pg_try_advisory_lock_shared(:term_kind::int, :term::int) AS term,
       pg_catalog.pg_try_advisory_lock(:proof_high::int, :proof_low::int) AS proof
