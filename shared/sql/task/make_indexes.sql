-- Creates the indexes of claims: waiting rows in the order in which they are claimed, per group and over all; running rows;
-- held rows; runs of jobs. By hash, not by name: a btree refuses long texts, and the claim compares the names themselves
-- anyway.
-- parameters: none
-- locks: the new table
-- caller: scheduler, in the transaction that makes the table
CREATE INDEX ON {queue} (hash, "max" DESC, priority DESC, id) WHERE state = 'PLAN' AND NOT held;
CREATE INDEX ON {queue} ("max" DESC, priority DESC, id) WHERE state = 'PLAN' AND NOT held;
CREATE INDEX ON {queue} (hash) WHERE state IN ('TAKE', 'WORK');
CREATE INDEX ON {queue} (plan) WHERE state = 'PLAN' AND held AND job IS NULL;
CREATE INDEX ON {queue} (job, id) WHERE job IS NOT NULL;
CREATE INDEX ON {queue} (run) WHERE run IS NOT NULL;
