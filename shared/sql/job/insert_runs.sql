-- Inserts the rows of runs that are ordered and due. The order is taken and the row is made in one transaction. `only_run`:
-- the only one, if it is one.
-- parameters: rows int, only_run bigint
-- locks: runs, skipping locked ones
-- caller: scheduler, behind `start_jobs`
INSERT INTO {queue} (input, plan, active, live, repeat, timeout, count, "max", "delete", "group", remote, priority, atomic,
                     job, run, at, epoch, run_of, failures, attempt)
SELECT o.input, LEAST(o.due, statement_timestamp()), o.active, o.live, '0', o.timeout, o.count, o.max, false, o."group", o.remote, o.priority,
       o.atomic, o.job, o.run, o.at, o.epoch, o.run_of, o.failures, o.attempt
  FROM mill_private.q{oid}_insert_runs(:rows::int, :only_run::bigint) AS o
