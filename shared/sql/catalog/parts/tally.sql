-- The tally: what a run adds to the numbers of its job is a row, written beside the book of the job and entered there later.
-- A run that edges or a person have begun (it has an epoch) is entered once, when it has succeeded: while it is at work its own
-- row in the task table says that it has started, and `job_live` counts that. Other starts are entered by themselves.
-- A run that only adds to the numbers of its job so locks nothing, and runs of one job never wait for each other's commits.
-- Who does more than add (a failure, a crash, a schedule's own run, a changed job) opens the book first: has its row locked,
-- and entered what is there by then. So the tally of a job that has a book is deleted by nobody who has not locked the book.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.job_tally (
    job int NOT NULL,
    started bool,
    moment timestamptz NOT NULL,
    lasted interval,
    whole bool NOT NULL DEFAULT false
-- All of it is new every second: a share of its size says nothing, and what is gone must not be read again and again.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- A run that fails reads what others of its job have left, not what all jobs have.
CREATE INDEX ON mill.job_tally (job);
-- It needs no key of its own; in a database whose tables are all published nothing could be deleted from it without one.
ALTER TABLE mill.job_tally REPLICA IDENTITY FULL;
COMMENT ON TABLE mill.job_tally IS 'pgmill: starts and successes that have not been entered in mill.job_book yet; mill.job_stat counts them';
COMMENT ON COLUMN mill.job_tally.started IS 'true: a run has started, false: it has succeeded; NULL: the job was deleted while its book was in use';
COMMENT ON COLUMN mill.job_tally.whole IS 'it has succeeded, and its start was not entered by itself';

-- The book and the tally together. A start counts as a crash until it has ended.
CREATE VIEW mill.job_now AS
SELECT b.job, GREATEST(b.last_start, t.last_start) AS last_start, GREATEST(b.last_finish, t.last_success) AS last_finish,
       GREATEST(b.last_successful_finish, t.last_success) AS last_successful_finish,
       CASE WHEN t.successes > 0 THEN true ELSE b.last_run_success END AS last_run_success, b.next_start,
       b.total_runs + COALESCE(t.starts, 0) AS total_runs, b.total_successes + COALESCE(t.successes, 0) AS total_successes,
       b.total_failures, b.total_crashes + COALESCE(t.starts - t.successes, 0) AS total_crashes,
       CASE WHEN t.successes > 0 THEN 0 ELSE b.consecutive_failures END AS consecutive_failures,
       (CASE WHEN t.successes > 0 THEN 0 ELSE b.consecutive_crashes END + COALESCE(t.starts_since, 0))::int AS consecutive_crashes,
       b.total_duration + COALESCE(t.lasted, interval '0') AS total_duration, b.total_duration_failures, b.reason, b.queue, b.scheduled,
       b.run, GREATEST(b.running + COALESCE(t.starts - t.successes, 0), 0)::int AS running, b.fill, b.stamp, b.due
  FROM mill.job_book b
  LEFT JOIN (
    SELECT e.job, count(*) FILTER (WHERE e.started OR e.whole) AS starts, count(*) FILTER (WHERE NOT e.started) AS successes,
           count(*) FILTER (WHERE e.started AND e.moment > COALESCE(e.last_success, '-infinity')) AS starts_since, sum(e.lasted) AS lasted,
           max(CASE WHEN e.started THEN e.moment WHEN e.whole THEN e.moment - e.lasted END) AS last_start, max(e.last_success) AS last_success
      FROM (SELECT f.*, max(f.moment) FILTER (WHERE NOT f.started) OVER (PARTITION BY f.job) AS last_success FROM mill.job_tally f) AS e
     GROUP BY e.job) AS t ON t.job = b.job;
COMMENT ON VIEW mill.job_now IS 'pgmill: the books of all jobs with what is not entered yet';

-- The runs whose start only their own rows tell: jobs and moments, nothing else of them. A function, so that no view of ours
-- keeps the owner of a task table from dropping or changing it.
CREATE FUNCTION mill.at_work() RETURNS TABLE (job int, start timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place record;
BEGIN
    -- by what it is, not by the name that it had when it was registered
    FOR place IN SELECT c.oid::regclass AS name FROM mill.queue q JOIN pg_class c ON c.oid = q.relid WHERE has_table_privilege(c.oid, 'SELECT') LOOP
        RETURN QUERY EXECUTE format('SELECT t.job::int, t.start + m.clock FROM %s t, mill.meta m
            WHERE t.state IN (''TAKE'', ''WORK'') AND t.job IS NOT NULL AND t.epoch IS NOT NULL', place.name);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill.at_work() IS 'pgmill: which jobs have runs at work that edges or people have begun, and since when';

-- What is true now: the books, and what is at work.
CREATE VIEW mill.job_live AS
SELECT n.job, GREATEST(n.last_start, w.last_start) AS last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.next_start,
       n.total_runs + w.runs AS total_runs, n.total_successes, n.total_failures, n.total_crashes + w.runs AS total_crashes,
       n.consecutive_failures, (n.consecutive_crashes + w.since)::int AS consecutive_crashes, n.total_duration, n.total_duration_failures,
       n.reason, n.queue, n.scheduled, n.run, (n.running + w.runs)::int AS running, n.fill, n.stamp, n.due
  FROM mill.job_now n CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE (a.start > n.last_finish) IS NOT FALSE) AS since, max(a.start) AS last_start
      FROM mill.at_work() a WHERE a.job = n.job) AS w;
COMMENT ON VIEW mill.job_live IS 'pgmill: the numbers of all jobs as they are now; mill.job_stat for whoever may see all';

-- Enters what has been tallied of a job. The caller has locked its book. False: there was nothing.
CREATE FUNCTION mill.fold(job int) RETURNS bool
    -- a plan that was made while the tally was empty would read all of it for every job
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM mill.job_tally t WHERE t.job = fold.job AND t.started IS NOT NULL) THEN
        RETURN false;
    END IF;
    -- One statement, one snapshot: what goes is what was counted.
    WITH gone AS (DELETE FROM mill.job_tally t WHERE t.job = fold.job AND t.started IS NOT NULL)
    UPDATE mill.job_book b SET (last_start, last_finish, last_successful_finish, last_run_success, total_runs, total_successes,
            total_crashes, consecutive_failures, consecutive_crashes, total_duration, running)
        = (n.last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.total_runs, n.total_successes,
           n.total_crashes, n.consecutive_failures, n.consecutive_crashes, n.total_duration, n.running)
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
COMMENT ON FUNCTION mill.open_book(int) IS 'pgmill: the book of a job, locked for whoever changes its numbers';

-- Whoever deletes a job waits for nobody, and neither does what is left of it: if somebody has its book, that is told to
-- whoever enters the tally next.
CREATE FUNCTION mill.forget(job int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    DELETE FROM mill.job_book b
     WHERE b.job IN (SELECT f.job FROM mill.job_book f WHERE f.job = forget.job FOR UPDATE SKIP LOCKED);
    IF EXISTS (SELECT FROM mill.job_book b WHERE b.job = forget.job) THEN
        INSERT INTO mill.job_tally (job, moment) SELECT forget.job, clock_timestamp()
         WHERE NOT EXISTS (SELECT FROM mill.job_tally t WHERE t.job = forget.job AND t.started IS NULL);
    ELSE
        DELETE FROM mill.job_tally t
         WHERE t.ctid = ANY (ARRAY(SELECT f.ctid FROM mill.job_tally f WHERE f.job = forget.job FOR UPDATE SKIP LOCKED));
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.forget(int) IS 'pgmill: what was kept of a job that is no more goes';

-- Enters what is there of all jobs but those whose books somebody has, and forgets those that are no more. It never waits.
-- How many jobs it came to.
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
    -- A crash of the server takes back all of it or nothing: nobody has to wait for the disk.
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
