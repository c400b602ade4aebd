-- The task table: the product's public face. Defaults fall through session, role, database and server settings
-- `pg_task.*` to the config's value; NULLIF, because a placeholder reads as '' after RESET or SET LOCAL.
-- The config's defaults stand in the text.
-- parameters: none
-- locks: the table's name
-- caller: scheduler
CREATE TABLE {queue} (
    "id" bigserial PRIMARY KEY,
    "parent" bigint DEFAULT NULLIF(NULLIF(current_setting('pg_task.id', true), '')::bigint, 0),
    "plan" timestamptz NOT NULL DEFAULT statement_timestamp(),
    "start" timestamptz,
    "stop" timestamptz,
    "active" interval NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.active', true), ''), {default_active})::interval CHECK ("active" > '0'),
    "live" interval NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.live', true), ''), {default_live})::interval CHECK ("live" >= '0'),
    "repeat" interval NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.repeat', true), ''), {default_repeat})::interval CHECK ("repeat" >= '0'),
    "timeout" interval NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.timeout', true), ''), {default_timeout})::interval CHECK ("timeout" >= '0'),
    "count" int NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.count', true), ''), {default_count})::int CHECK ("count" >= 0),
    "hash" int NOT NULL GENERATED ALWAYS AS (hashtext("group" || COALESCE(remote, ''))) STORED,
    "max" int NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.max', true), ''), {default_max})::int,
    "pid" int,
    "state" {state} NOT NULL DEFAULT 'PLAN',
    "delete" bool NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.delete', true), ''), {default_delete})::bool,
    "drift" bool NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.drift', true), ''), {default_drift})::bool,
    "header" bool NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.header', true), ''), {default_header})::bool,
    "save" bool NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.save', true), ''), {default_save})::bool,
    "string" bool NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.string', true), ''), {default_string})::bool,
    "delimiter" "char" NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.delimiter', true), ''), {default_delimiter})::"char",
    "escape" "char" NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.escape', true), ''), {default_escape})::"char",
    "quote" "char" NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.quote', true), ''), {default_quote})::"char",
    "data" text,
    "error" text,
    "output" text,
    "group" text NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.group', true), ''), {default_group}),
    "input" text NOT NULL,
    "null" text NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.null', true), ''), {default_null}),
    "remote" text,
    "attempt" int NOT NULL DEFAULT 0,
    "priority" int NOT NULL DEFAULT 0,
    "held" bool NOT NULL DEFAULT false,
    "job" int,
    "at" timestamptz,
    "epoch" int,
    "run_of" bigint,
    "run" bigint,
    "failures" int NOT NULL DEFAULT 0,
    "reason" text,
    "atomic" bool NOT NULL DEFAULT false,
    "remote_session" text,
    "crashes" int NOT NULL DEFAULT 0
) WITH (
    -- A row is written anew when it is taken and when it ends. With room for both on its page it stays there: the table does
    -- not grow while it is worked off, and less is written to the log. What waits takes twice the space for it.
    fillfactor = 45
)
