-- Runs of jobs: the catalog's own table, and the truth about every run. It is the outbox of the queues (a run that is
-- ordered has no row in its queue yet), the registry of what is under way, and the history. The catalog never reads or writes
-- a task table: the scheduler of a queue inserts the rows of ordered runs, and the row triggers of the queue, which belong
-- to the queue's user, report begin and end through the entry points of that queue (part `entry_point`).
--   ordered: ordered                                 the scheduler will insert a row once it is due, unless held
--   put:     NOT ordered, no start                   its row is in the queue
--   running: start                                   its row is TAKE or WORK
--   ended:   outcome
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
COMMENT ON COLUMN mill_private.run.owner IS 'the owner of the job, whose members see the run';
COMMENT ON COLUMN mill_private.run.queue IS 'the task table, by OID; 0 = it needs no worker';
COMMENT ON COLUMN mill_private.run.activation IS 'the first run of the same activation; NULL = this one';
COMMENT ON COLUMN mill_private.run.epoch IS 'the generation of the logical time; NULL = made by a schedule or by run_job';
COMMENT ON COLUMN mill_private.run.failures IS 'failed runs of the activation before this one';
COMMENT ON COLUMN mill_private.run.ordered IS 'its row is not in the queue yet';
COMMENT ON COLUMN mill_private.run.held IS 'kept back: the job or its flow is paused, or the flow has as many runs as it may';
COMMENT ON COLUMN mill_private.run.recall IS 'what the scheduler is to do with its row: remove it (WITHDRAW), or end it as DONE or FAIL';
COMMENT ON COLUMN mill_private.run.outcome IS 'succeeded, failed, crashed, interrupted, cancelled or skipped; NULL = it has not ended';
COMMENT ON COLUMN mill_private.run.task IS 'its row in the task table, known once it has begun';
COMMENT ON COLUMN mill_private.run.sqlstate IS 'SQLSTATE of the error, if the server gave one';
COMMENT ON COLUMN mill_private.run.definition IS 'the input that was run';
-- A role sees the runs of its jobs. The roles are looked up once in a query.
ALTER TABLE mill_private.run ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_owner ON mill_private.run FOR SELECT USING (owner = ANY (ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE pg_has_role(r.oid, 'MEMBER'))));
