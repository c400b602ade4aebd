-- Creates the type of task states. One type per schema, shared by the queues in it.
-- parameters: none
-- locks: the type's name
-- caller: scheduler
CREATE TYPE {state} AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')
