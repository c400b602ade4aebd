-- Runs of jobs: ordered ones, which have no row in their queue yet, those under way, and the history.
-- The catalog never reads or writes a task table. The scheduler of a queue inserts the rows of ordered runs. The row triggers of the
-- queue, which belong to the queue's user, report begin and end through the entry points of that queue (part `entry_point`).
--   ordered     ordered                  the scheduler inserts a row once it is due, unless it is held
--   inserted    NOT ordered, no start    its row is in the queue
--   running     start                    its row is TAKE or WORK
--   ended       outcome
-- A begin changes no indexed column, so that the row stays on its page. There are no CHECK constraints: the server would read
-- them anew for every statement, and only the functions of the catalog write here.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill_private.run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job int NOT NULL,
    owner text NOT NULL,
    queue oid NOT NULL,
    activation bigint,
    at timestamptz,
    epoch int,
    attempt int NOT NULL DEFAULT 0,
    failures int NOT NULL DEFAULT 0,
    priority int NOT NULL DEFAULT 0,
    due timestamptz NOT NULL,
    ordered bool NOT NULL DEFAULT true,
    held bool NOT NULL DEFAULT false,
    recall text,
    task bigint,
    start timestamptz,
    stop timestamptz,
    outcome text,
    sqlstate text,
    reason text,
    error text,
    output text,
    definition text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX run_job ON mill_private.run (job, id);
CREATE INDEX run_open ON mill_private.run (job, at) WHERE outcome IS NULL;
CREATE INDEX run_ordered ON mill_private.run (queue, due, id) WHERE ordered AND NOT held AND outcome IS NULL;
CREATE INDEX run_held ON mill_private.run (queue, due) WHERE ordered AND held AND outcome IS NULL;
CREATE INDEX run_recall ON mill_private.run (queue) WHERE recall IS NOT NULL;
CREATE INDEX run_unsuccessful ON mill_private.run (stop) WHERE COALESCE(outcome, 'running') <> 'succeeded' AND stop IS NOT NULL;
COMMENT ON TABLE mill_private.run IS 'pgmill: every run of every job: ordered, under way, or ended; mill.run shows those that have begun';
COMMENT ON COLUMN mill_private.run.id IS 'never used again';
COMMENT ON COLUMN mill_private.run.job IS 'the id of the job';
COMMENT ON COLUMN mill_private.run.owner IS 'the owner of the job, whose members see the run';
COMMENT ON COLUMN mill_private.run.queue IS 'the task table, by OID; 0 = it needs no worker';
COMMENT ON COLUMN mill_private.run.activation IS 'the first run of the same activation; NULL = this one';
COMMENT ON COLUMN mill_private.run.at IS 'the logical time that it runs for';
COMMENT ON COLUMN mill_private.run.epoch IS 'the generation of the logical time; NULL = ordered by a schedule or by run_job; -1 = delivers nothing; -2 = not retried either';
COMMENT ON COLUMN mill_private.run.attempt IS 'counts the runs of one activation';
COMMENT ON COLUMN mill_private.run.failures IS 'failed runs of the activation before this one';
COMMENT ON COLUMN mill_private.run.priority IS 'higher first';
COMMENT ON COLUMN mill_private.run.due IS 'when it may start';
COMMENT ON COLUMN mill_private.run.ordered IS 'its row is not in the queue yet';
COMMENT ON COLUMN mill_private.run.held IS 'not started: the job or its flow is paused, or the flow has as many runs as it may';
COMMENT ON COLUMN mill_private.run.recall IS 'what the scheduler is to do with its row: remove it (WITHDRAW), or end it as DONE or FAIL';
COMMENT ON COLUMN mill_private.run.task IS 'its row in the task table, known once it has begun';
COMMENT ON COLUMN mill_private.run.start IS 'when it began';
COMMENT ON COLUMN mill_private.run.stop IS 'when it ended';
COMMENT ON COLUMN mill_private.run.outcome IS 'succeeded, failed, crashed, interrupted, cancelled or skipped; NULL = it has not ended';
COMMENT ON COLUMN mill_private.run.sqlstate IS 'SQLSTATE of the error, if the server gave one';
COMMENT ON COLUMN mill_private.run.reason IS 'why it ended other than by its own SQL';
COMMENT ON COLUMN mill_private.run.error IS 'the error that ended it';
COMMENT ON COLUMN mill_private.run.output IS 'the result of the input';
COMMENT ON COLUMN mill_private.run.definition IS 'the input that was run';
-- A role sees the runs of its jobs. The roles are looked up once per query.
ALTER TABLE mill_private.run ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_owner ON mill_private.run FOR SELECT USING (owner = ANY (ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE pg_has_role(r.oid, 'MEMBER'))));

-- A run whose row is locked is just beginning and is left alone. A row that is already in the queue is recalled.
CREATE FUNCTION mill_private.hold_runs(jobs int[], hold bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    places oid[];
    place oid;
BEGIN
    IF hold THEN
        WITH waiting AS (
            SELECT r.id FROM mill_private.run r
             WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND r.start IS NULL AND NOT r.held FOR NO KEY UPDATE SKIP LOCKED
        ), changed AS (
            UPDATE mill_private.run r SET held = true, recall = CASE WHEN NOT r.ordered THEN 'WITHDRAW' END
              FROM waiting w WHERE r.id = w.id RETURNING r.queue)
        SELECT array_agg(DISTINCT c.queue) INTO places FROM changed c;
    ELSE
        WITH changed AS (
            UPDATE mill_private.run r SET held = false, failures = 0, recall = NULL
             WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND r.start IS NULL AND r.held RETURNING r.queue)
        SELECT array_agg(DISTINCT c.queue) INTO places FROM changed c;
    END IF;
    FOREACH place IN ARRAY COALESCE(places, '{}') LOOP
        PERFORM mill_private.wake_scheduler(place);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.hold_runs(int[], bool) IS 'pgmill: holds the runs of jobs that have not begun, or releases them';

-- For a deleted job. A run whose row is locked is just beginning, and ends with its worker.
CREATE FUNCTION mill_private.cancel_waiting_runs(job int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill_private.run r SET outcome = 'cancelled', stop = clock_timestamp(), reason = 'cancelled', error = {cancelled_text},
           held = false, recall = CASE WHEN NOT r.ordered THEN 'WITHDRAW' END
     WHERE r.id IN (SELECT w.id FROM mill_private.run w
                     WHERE w.job = cancel_waiting_runs.job AND w.outcome IS NULL AND w.start IS NULL FOR NO KEY UPDATE SKIP LOCKED);
END
$function$;
COMMENT ON FUNCTION mill_private.cancel_waiting_runs(int) IS 'pgmill: cancels the runs of a job that have not begun';

CREATE FUNCTION mill_private.move_waiting_run(job int, run bigint, due timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place oid;
BEGIN
    FOR place IN UPDATE mill_private.run r SET due = move_waiting_run.due,
               recall = CASE WHEN NOT r.ordered AND move_waiting_run.due > mill.now() THEN 'WITHDRAW' ELSE r.recall END
         WHERE r.id IN (SELECT w.id FROM mill_private.run w WHERE w.job = move_waiting_run.job AND COALESCE(w.activation, w.id) = move_waiting_run.run
                           AND w.outcome IS NULL AND w.start IS NULL FOR NO KEY UPDATE SKIP LOCKED)
        RETURNING r.queue LOOP
        PERFORM mill_private.wake_scheduler(place);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.move_waiting_run(int, bigint, timestamptz) IS
    'pgmill: moves the waiting run of an activation to another time';
