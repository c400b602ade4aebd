-- The functions for commands of people. Each inserts a row into mill.command, as its caller, and returns its result or its run.
-- parameters: none; locks: none; caller: installation, once per database

CREATE FUNCTION mill.run(job text, at timestamptz DEFAULT NULL) RETURNS bigint
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at) VALUES ('run', $1, $2) RETURNING run
$function$;
COMMENT ON FUNCTION mill.run(text, timestamptz) IS 'pgmill: runs a job for a logical time, and what follows from it; the id of the run';

CREATE FUNCTION mill.rerun(job text DEFAULT NULL, at timestamptz DEFAULT NULL, how text DEFAULT 'down', flow text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at, how, flow) VALUES ('rerun', $1, $2, $3, $4) RETURNING result
$function$;
COMMENT ON FUNCTION mill.rerun(text, timestamptz, text, text) IS
    'pgmill: runs a job of a logical time again: only it, everything downstream as well, or what has failed';

CREATE FUNCTION mill.clear(flow text, at timestamptz) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, flow, at) VALUES ('clear', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.clear(text, timestamptz) IS 'pgmill: clears a logical time of a flow; runs under way are recorded and deliver nothing';

CREATE FUNCTION mill.cancel(job text DEFAULT NULL, at timestamptz DEFAULT NULL, flow text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at, flow) VALUES ('cancel', $1, $2, $3) RETURNING result
$function$;
COMMENT ON FUNCTION mill.cancel(text, timestamptz, text) IS 'pgmill: cancels the runs of a job or flow, of one logical time or all; failure edges fire';

CREATE FUNCTION mill.skip(job text, at timestamptz) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at) VALUES ('skip', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.skip(text, timestamptz) IS 'pgmill: skips a job of a logical time; it counts as a success';

CREATE FUNCTION mill.mark(job text, at timestamptz, how text) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at, how) VALUES ('mark', $1, $2, $3) RETURNING result
$function$;
COMMENT ON FUNCTION mill.mark(text, timestamptz, text) IS 'pgmill: records a job of a logical time as ended, by a person: success or failure';

CREATE FUNCTION mill.fire(timer text, at timestamptz DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, timer, at) VALUES ('fire', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.fire(text, timestamptz) IS 'pgmill: delivers a timer''s tokens for a logical time, now';

CREATE FUNCTION mill.pause(flow text DEFAULT NULL, job text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, flow, job) VALUES ('pause', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.pause(text, text) IS 'pgmill: pauses a flow or job: no new starts; runs under way go on, tokens wait';

CREATE FUNCTION mill.resume(flow text DEFAULT NULL, job text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, flow, job) VALUES ('resume', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.resume(text, text) IS 'pgmill: resumes a flow or job; timers treat missed times as their catchup says';
