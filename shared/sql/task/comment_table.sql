-- What every column means, for \d+ and for people.
-- parameters: none
-- locks: the new table
-- caller: scheduler, in the transaction that makes the table
COMMENT ON TABLE {queue} IS 'pgmill: every row is SQL that is run as the user of this queue''s scheduler';
COMMENT ON COLUMN {queue}."id" IS 'order of arrival';
COMMENT ON COLUMN {queue}."parent" IS 'the task whose SQL inserted this row, or the run that this row repeats';
COMMENT ON COLUMN {queue}."plan" IS 'earliest start';
COMMENT ON COLUMN {queue}."start" IS 'when it was started';
COMMENT ON COLUMN {queue}."stop" IS 'when it ended';
COMMENT ON COLUMN {queue}."active" IS 'how long after plan the task is still worth starting';
COMMENT ON COLUMN {queue}."live" IS 'a worker takes another task of the group until it is this old';
COMMENT ON COLUMN {queue}."repeat" IS 'plan the task again after each end, this long after its plan (drift: after its end); 0 = never';
COMMENT ON COLUMN {queue}."timeout" IS 'end the task after this time; 0 = unlimited';
COMMENT ON COLUMN {queue}."count" IS 'a worker takes another task of the group until it has run this many';
COMMENT ON COLUMN {queue}."hash" IS 'for the index only; two groups may share a value';
COMMENT ON COLUMN {queue}."max" IS 'how many others of the group may run at the same time; negative = one at a time with a pause of so many ms';
COMMENT ON COLUMN {queue}."pid" IS 'the server process that runs the task (on its remote, if it has one): pg_cancel_backend(pid) cancels it';
COMMENT ON COLUMN {queue}."state" IS 'PLAN waiting, TAKE claimed, WORK running, DONE finished, FAIL finished with an error, GONE not started in time, STOP set by users: left alone until set to PLAN';
COMMENT ON COLUMN {queue}."delete" IS 'delete the finished row if output and error are both NULL';
COMMENT ON COLUMN {queue}."drift" IS 'count the next time from the end of the run instead of from plan';
COMMENT ON COLUMN {queue}."header" IS 'write column names above results of more than one column';
COMMENT ON COLUMN {queue}."save" IS 'keep the session''s state for the next task of this worker';
COMMENT ON COLUMN {queue}."string" IS 'put only strings between quotes';
COMMENT ON COLUMN {queue}."delimiter" IS 'between columns of output; empty = none';
COMMENT ON COLUMN {queue}."escape" IS 'before quotes inside quoted values; empty = none';
COMMENT ON COLUMN {queue}."quote" IS 'around values of output; empty = none';
COMMENT ON COLUMN {queue}."data" IS 'the user''s own; copied to repetitions';
COMMENT ON COLUMN {queue}."error" IS 'what went wrong, in the server''s words';
COMMENT ON COLUMN {queue}."output" IS 'what the task returned';
COMMENT ON COLUMN {queue}."group" IS 'tasks of one group (and remote) run one after the other, or as many at once as max allows';
COMMENT ON COLUMN {queue}."input" IS 'SQL, one or several statements, run as the user of the queue''s scheduler';
COMMENT ON COLUMN {queue}."null" IS 'how NULL is written in output';
COMMENT ON COLUMN {queue}."remote" IS 'another server to run the task on: a conninfo with its password, or the name of an entry of the config''s remotes';
COMMENT ON COLUMN {queue}."attempt" IS 'how often the task has been taken; a late writer of an earlier attempt changes nothing';
COMMENT ON COLUMN {queue}."priority" IS 'higher first';
COMMENT ON COLUMN {queue}."held" IS 'stands aside until released';
COMMENT ON COLUMN {queue}."job" IS 'the job that made the task';
COMMENT ON COLUMN {queue}."at" IS 'the logical time the task runs for; of a repeating task that crashes, the plan that its next time is counted from';
COMMENT ON COLUMN {queue}."epoch" IS 'the generation of the logical time';
COMMENT ON COLUMN {queue}."run_of" IS 'the first run of the activation, as in mill.run';
COMMENT ON COLUMN {queue}."run" IS 'the run that the task executes, as in mill.run';
COMMENT ON COLUMN {queue}."failures" IS 'failed runs of the activation before this one';
COMMENT ON COLUMN {queue}."reason" IS 'why it ended otherwise than by its own SQL: timeout, cancelled, expired, crashed, interrupted, skipped, completion';
COMMENT ON COLUMN {queue}."atomic" IS 'input, result and consequences in one transaction';
COMMENT ON COLUMN {queue}."remote_session" IS 'tells the session on the remote from later ones with its pid: place in the conninfo, its start and its server''s in microseconds';
COMMENT ON COLUMN {queue}."crashes" IS 'how many attempts in a row have killed their worker or their server process';
