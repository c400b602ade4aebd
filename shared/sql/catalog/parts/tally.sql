-- The tally: what a success adds to the numbers of its job is a row, written beside the book of the job and entered there later.
-- So runs of one job never wait for each other's commits. The start of a run is its row in mill_private.run and nothing else:
-- `job_live` counts those under way. Whatever does more than add (a failure, a crash, a schedule's own run, a changed job) opens
-- the book first: locks its row and enters what the tally has by then. The tally of a job that has a book is deleted only
-- under the lock of the book.
-- parameters: none; locks: none; caller: installation, once per database
CREATE TABLE mill.job_tally (
    job int NOT NULL,
    run bigint NOT NULL,
    moment timestamptz NOT NULL,
    lasted interval,
    gone bool NOT NULL DEFAULT false,
    PRIMARY KEY (job, run)
-- All of it is new every second: a share of its size says nothing, and deleted rows must not be read again and again.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON mill.job_tally (job) WHERE gone;
COMMENT ON TABLE mill.job_tally IS 'pgmill: successes that have not been entered in mill.job_book yet; mill.job_stat counts them';
COMMENT ON COLUMN mill.job_tally.run IS 'the run that has succeeded; 0 where `gone`';
COMMENT ON COLUMN mill.job_tally.gone IS 'the job was deleted while its book was in use or a run of it was under way';

-- The book and the tally together.
CREATE VIEW mill.job_now AS
SELECT b.job, GREATEST(b.last_start, t.last_start) AS last_start, GREATEST(b.last_finish, t.last_success) AS last_finish,
       GREATEST(b.last_successful_finish, t.last_success) AS last_successful_finish,
       CASE WHEN t.successes > 0 THEN true ELSE b.last_run_success END AS last_run_success, b.next_start,
       b.total_runs + COALESCE(t.successes, 0) AS total_runs, b.total_successes + COALESCE(t.successes, 0) AS total_successes,
       b.total_failures, b.total_crashes,
       CASE WHEN t.successes > 0 THEN 0 ELSE b.consecutive_failures END AS consecutive_failures,
       CASE WHEN t.successes > 0 THEN 0 ELSE b.consecutive_crashes END AS consecutive_crashes,
       b.total_duration + COALESCE(t.lasted, interval '0') AS total_duration, b.total_duration_failures, b.reason, b.queue, b.scheduled,
       b.run, b.fill, b.stamp, b.due
  FROM mill.job_book b
  LEFT JOIN (
    SELECT f.job, count(*) AS successes, sum(f.lasted) AS lasted, max(f.moment - f.lasted) AS last_start, max(f.moment) AS last_success
      FROM mill.job_tally f WHERE NOT f.gone GROUP BY f.job) AS t ON t.job = b.job;
COMMENT ON VIEW mill.job_now IS 'pgmill: the books of all jobs with what is not entered yet';

-- What is true now: the books, and what is under way. A run counts as a crash until it has ended.
CREATE VIEW mill.job_live AS
SELECT n.job, GREATEST(n.last_start, w.last_start) AS last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.next_start,
       n.total_runs + w.runs AS total_runs, n.total_successes, n.total_failures, n.total_crashes + w.runs AS total_crashes,
       n.consecutive_failures, (n.consecutive_crashes + w.since)::int AS consecutive_crashes, n.total_duration, n.total_duration_failures,
       n.reason, n.queue, n.scheduled, n.run, w.runs::int AS running, n.fill, n.stamp, n.due
  FROM mill.job_now n CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE (r.start + m.clock > n.last_finish) IS NOT FALSE) AS since, max(r.start + m.clock) AS last_start
      FROM mill_private.run r, mill.meta m WHERE r.job = n.job AND r.outcome IS NULL AND r.start IS NOT NULL) AS w;
COMMENT ON VIEW mill.job_live IS 'pgmill: the numbers of all jobs as they are now; mill.job_stat shows each role its own';

-- Enters what has been tallied of a job. The caller has locked its book. False: there was nothing.
CREATE FUNCTION mill.fold(job int) RETURNS bool
    -- a plan that was made while the tally was empty would read all of it for every job
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM mill.job_tally t WHERE t.job = fold.job AND NOT t.gone) THEN
        RETURN false;
    END IF;
    -- One statement, one snapshot: what is deleted is what was counted.
    WITH entered AS (DELETE FROM mill.job_tally t WHERE t.job = fold.job AND NOT t.gone)
    UPDATE mill.job_book b SET (last_start, last_finish, last_successful_finish, last_run_success, total_runs, total_successes,
            consecutive_failures, consecutive_crashes, total_duration)
        = (n.last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.total_runs, n.total_successes,
           n.consecutive_failures, n.consecutive_crashes, n.total_duration)
      FROM mill.job_now n WHERE n.job = fold.job AND b.job = fold.job;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION mill.fold(int) IS 'pgmill: enters the tally of a job in its book, which the caller has locked';

-- The book of a job, locked, and all entered. NULL: it has none.
CREATE FUNCTION mill.open_book(job int) RETURNS mill.job_book
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    book mill.job_book;
BEGIN
    SELECT * INTO book FROM mill.job_book b WHERE b.job = open_book.job FOR NO KEY UPDATE;
    IF FOUND AND mill.fold(open_book.job) THEN
        SELECT * INTO book FROM mill.job_book b WHERE b.job = open_book.job;
    END IF;
    RETURN book;
END
$function$;
COMMENT ON FUNCTION mill.open_book(int) IS 'pgmill: the book of a job, locked for a change of its numbers';

-- A DELETE of a job waits for no other transaction. If one has its book, or may be just ending a run of it, that is noted: what
-- such a transaction writes (numbers, the order of a next run) is not to be seen yet, and the next entry of the tally deletes it.
CREATE FUNCTION mill.forget(job int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    DELETE FROM mill.job_book b
     WHERE b.job IN (SELECT f.job FROM mill.job_book f WHERE f.job = forget.job FOR UPDATE SKIP LOCKED);
    IF EXISTS (SELECT FROM mill.job_book b WHERE b.job = forget.job)
        OR EXISTS (SELECT FROM mill_private.run r WHERE r.job = forget.job AND r.outcome IS NULL AND r.start IS NOT NULL) THEN
        INSERT INTO mill.job_tally (job, run, moment, gone) VALUES (forget.job, 0, clock_timestamp(), true) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM mill.job_tally t
         WHERE t.job = forget.job AND t.run = ANY (ARRAY(SELECT f.run FROM mill.job_tally f WHERE f.job = forget.job FOR UPDATE SKIP LOCKED));
        PERFORM mill.drop_waiting(job);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.forget(int) IS 'pgmill: deletes the numbers of a deleted job and closes its runs that have not begun';

-- Enters the tally of all jobs but those whose books are locked, and deletes the numbers of deleted jobs. It never waits.
-- Returns the number of jobs.
CREATE FUNCTION mill.fold_all() RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    one int;
    done int := 0;
BEGIN
    -- Most often there is nothing, and then nothing is written.
    IF NOT EXISTS (SELECT FROM mill.job_tally) THEN
        RETURN 0;
    END IF;
    -- A crash of the server takes back all of it or nothing, so the commit need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR one IN SELECT b.job FROM mill.job_book b WHERE b.job IN (SELECT t.job FROM mill.job_tally t)
                  AND EXISTS (SELECT FROM mill.job j WHERE j.id = b.job)
                ORDER BY b.job FOR NO KEY UPDATE OF b SKIP LOCKED LOOP
        PERFORM mill.fold(one);
        done := done + 1;
    END LOOP;
    FOR one IN SELECT DISTINCT t.job FROM mill.job_tally t WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = t.job) LOOP
        PERFORM mill.forget(one);
        done := done + 1;
    END LOOP;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill.fold_all() IS 'pgmill: enters the tally of all jobs in their books';
