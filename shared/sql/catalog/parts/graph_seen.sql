-- What is to be seen of the graph: tokens that wait and for what, whether the books balance, and why a job does not run.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE FUNCTION mill.edge_name(e mill.edge) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN CASE WHEN (e).from_timer IS NOT NULL THEN format('timer "%s"', (e).from_timer)
                ELSE format('job "%s"%s', (e).from_job, CASE (e)."on" WHEN 'success' THEN '' ELSE ' on ' || (e)."on" END) END
           || CASE WHEN (e).shift = interval '0' THEN '' ELSE format(' shifted by %s', (e).shift) END;

CREATE VIEW mill.waiting WITH (security_barrier) AS
SELECT j.name AS job, j.flow, k.at, k.since,
       (SELECT array_agg(mill.edge_name(e) || CASE WHEN w.n > 1 THEN format(' (%s times)', w.n) ELSE '' END ORDER BY e.id)
          FROM mill.edge e JOIN (SELECT u AS id, count(*) AS n FROM unnest(k.waiting) AS u GROUP BY u) AS w ON w.id = e.id) AS delivered,
       (SELECT array_agg(mill.edge_name(e) ORDER BY e.id) FROM mill.edge e
         WHERE e.job = j.name AND NOT e.id = ANY (k.waiting) AND (j.threshold IS NOT NULL OR e."on" <> 'failure')) AS missing,
       CASE WHEN NOT j.scheduled THEN 'the job is paused'
            WHEN f.paused THEN format('flow "%s" is paused', f.name)
            WHEN j.threshold IS NOT NULL THEN format('%s of %s tokens are there', cardinality(k.waiting), j.threshold)
            ELSE 'not all edges have delivered' END AS why
  FROM mill.token k JOIN mill.job j ON j.id = k.job LEFT JOIN mill.flow f ON f.name = j.flow
 WHERE k.since IS NOT NULL AND mill.is_member(j.owner);
COMMENT ON VIEW mill.waiting IS 'pgmill: tokens that wait: which edges have delivered, which have not, and since when';

-- The books: per edge, all that was delivered has been consumed or waits; every activation that ended has delivered; every
-- time that a timer has fired has, no more and no less; a timer's own clock shows a time once; and nobody was activated more
-- often than tokens allow. What is so old that it may be swept is left out.
CREATE FUNCTION mill.audit_graph() RETURNS TABLE (edge int, job text, at timestamptz, what text, delivered bigint, consumed bigint, waiting bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    q record;
BEGIN
    RETURN QUERY
    SELECT b.edge, j.name, b.at, 'delivered is not consumed + waiting', b.delivered, b.consumed, b.waiting
      FROM (SELECT u.edge, k.job, k.at, sum(u.d)::bigint AS delivered, sum(u.c)::bigint AS consumed, sum(u.w)::bigint AS waiting
              FROM mill.token k, LATERAL (
                SELECT d AS edge, 1 AS d, 0 AS c, 0 AS w FROM unnest(k.delivered) AS d
                UNION ALL SELECT c, 0, 1, 0 FROM unnest(k.consumed) AS c
                UNION ALL SELECT w, 0, 0, 1 FROM unnest(k.waiting) AS w) AS u
             GROUP BY u.edge, k.job, k.at) AS b
      JOIN mill.job j ON j.id = b.job
     WHERE b.delivered <> b.consumed + b.waiting;
    RETURN QUERY
    WITH arrows AS MATERIALIZED (
        SELECT e.id, e.shift, e.made, e.made_in, j.id AS job, j.name, t.id AS timer, t.timezone, t.revision, clock_timestamp() - mill.keep(j.id) * 0.9 AS since
          FROM mill.edge e JOIN mill.job j ON j.name = e.job JOIN mill.timer t ON t.name = e.from_timer
    ), fires AS (
        SELECT a.id AS edge, a.name, a.job, d.live + d.filled + d.by_hand AS n, a.shift = interval '0' AS plain,
               CASE WHEN a.shift = interval '0' THEN d.at ELSE mill.land(d.at, a.shift, a.timezone) END AS at
          FROM arrows a JOIN mill.fired d ON d.timer = a.timer
         WHERE d.made > a.made AND pg_visible_in_snapshot(a.made_in, d.seen) AND d.made > a.since AND (a.shift = interval '0' OR d.revision = a.revision))
    SELECT c.edge, c.name, c.at, CASE WHEN c.found < c.n THEN 'less was delivered than the timer has fired'
                                      ELSE 'more was delivered than the timer has fired' END, c.found, NULL::bigint, NULL::bigint
      FROM (SELECT f.edge, f.name, f.at, f.n, f.plain, COALESCE(cardinality(array_positions(k.delivered, f.edge)), 0)::bigint AS found
              FROM fires f LEFT JOIN mill.token k ON k.job = f.job AND k.at = f.at) AS c
     -- by a shift, several times may land on one
     WHERE c.found < c.n OR c.plain AND c.found > c.n;
    RETURN QUERY
    SELECT NULL::int, NULL::text, d.at, format('timer "%s" has fired this time %s times by its own clock', t.name, d.live),
           NULL::bigint, NULL::bigint, NULL::bigint
      FROM mill.fired d JOIN mill.timer t ON t.id = d.timer WHERE d.live > 1;
    FOR q IN SELECT k.schema, k.name FROM mill.queue k JOIN pg_class c ON c.oid = k.relid WHERE has_table_privilege(k.relid, 'SELECT') LOOP
        -- an activation whose rows have all ended has delivered along every edge that was there by then
        RETURN QUERY EXECUTE format($query$
            WITH ended AS (
                SELECT t.job::int AS job, t.at, t.run_of, max(t.stop) AS stop, max(t.epoch) AS epoch,
                       (array_agg(t.state::text ORDER BY t.id DESC))[1] = 'DONE' AS success
                  FROM %I.%I t WHERE t.job IS NOT NULL AND t.at IS NOT NULL GROUP BY t.job, t.at, t.run_of
                HAVING bool_and(t.state IN ('DONE', 'FAIL', 'GONE'))
            ), owed AS (
                SELECT e.id AS edge, e.job, CASE WHEN e.shift = interval '0' THEN d.at ELSE mill.land(d.at, e.shift, mill.zone_of(e.from_job)) END AS at,
                       count(*) AS n
                  FROM ended d JOIN mill.job s ON s.id = d.job JOIN mill.edge e ON e.from_job = s.name AND e.made < d.stop
                   AND e."on" IN ('done', CASE WHEN d.success THEN 'success' ELSE 'failure' END)
                 WHERE NOT mill.overtaken(d.job, d.at, d.epoch) GROUP BY 1, 2, 3)
            SELECT o.edge, o.job, o.at, 'less was delivered than runs have ended', COALESCE(p.n, 0), NULL::bigint, NULL::bigint
              FROM owed o JOIN mill.job j ON j.name = o.job
              LEFT JOIN LATERAL (SELECT count(*) AS n FROM mill.token k, unnest(k.delivered) AS u WHERE k.job = j.id AND k.at = o.at AND u = o.edge) AS p ON true
             WHERE COALESCE(p.n, 0) < o.n$query$, q.schema, q.name);
        RETURN QUERY EXECUTE format($query$
            SELECT NULL::int, j.name, r.at, 'more runs than tokens have activated', NULL::bigint, k.activations::bigint, r.n
              FROM (SELECT t.job::int AS job, t.at, t.epoch, count(DISTINCT t.run_of) AS n FROM %I.%I t
                     WHERE t.job IS NOT NULL AND t.epoch >= 0 GROUP BY 1, 2, 3) AS r
              JOIN mill.token k ON k.job = r.job AND k.at = r.at AND k.epoch = r.epoch JOIN mill.job j ON j.id = r.job
             WHERE r.n > k.activations + k.by_hand$query$, q.schema, q.name);
    END LOOP;
END
$function$;
CREATE VIEW mill.integrity AS SELECT * FROM mill.audit_graph();
COMMENT ON VIEW mill.integrity IS 'pgmill: what does not balance in the books of the graph; empty when all is well';

-- What holds a job's row back, beside its time.
CREATE FUNCTION mill.why_held(job int, at timestamptz, task bigint) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT n FROM mill.job n WHERE n.id = why_held.job);
    f mill.flow := (SELECT n FROM mill.flow n WHERE n.name = j.flow);
BEGIN
    RETURN CASE
        WHEN j.id IS NULL THEN 'its job has been deleted'
        WHEN NOT j.scheduled THEN format('its job "%s" is paused%s', j.name, (SELECT ': ' || s.reason FROM mill.job_book s WHERE s.job = j.id))
        WHEN f.paused THEN format('its flow "%s" is paused; SELECT mill.resume(%L) goes on', f.name, f.name)
        WHEN EXISTS (SELECT FROM mill.errand e WHERE e.job = j.id AND e.at = why_held.at AND e.task = why_held.task)
            THEN 'it needs no worker, and is done at the scheduler''s next turn'
        WHEN f.parallel IS NOT NULL THEN format('its flow "%s" runs %s tasks at once, and no more', f.name, f.parallel) END;
END
$function$;

CREATE FUNCTION mill.why(job text, at timestamptz DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT n FROM mill.job n WHERE n.name = why.job);
    f mill.flow := (SELECT n FROM mill.flow n WHERE n.name = j.flow);
    q mill.queue := (SELECT n FROM mill.queue n JOIN mill.job_book s ON s.queue = n.relid WHERE s.job = j.id);
    w record;
    t record;
    task bigint;
BEGIN
    IF j.id IS NULL OR NOT mill.is_allowed(j.owner) THEN
        RETURN format('there is no job "%s", or it is not yours', job);
    END IF;
    IF q.relid IS NOT NULL AND to_regclass(format('%I.%I', q.schema, q.name)) IS NOT NULL THEN
        EXECUTE format('SELECT t.id, t.at FROM %I.%I t WHERE t.job = $1 AND ($2 IS NULL OR t.at = $2)
                           AND t.state IN (''PLAN'', ''TAKE'', ''WORK'', ''STOP'') ORDER BY t.state = ''PLAN'', t.id LIMIT 1', q.schema, q.name)
           INTO t USING j.id, why.at;
        IF t.id IS NOT NULL THEN
            RETURN format('for %s: task %s, %s', t.at, t.id, mill.why(t.id, q.relid::regclass));
        END IF;
    END IF;
    SELECT * INTO w FROM mill.waiting n WHERE n.job = j.name AND (why.at IS NULL OR n.at = why.at) ORDER BY n.at LIMIT 1;
    IF w.job IS NOT NULL THEN
        RETURN CASE w.why WHEN 'not all edges have delivered' THEN format('for %s it waits since %s for %s', w.at, w.since, array_to_string(w.missing, ' and '))
                    ELSE format('for %s it waits since %s: %s', w.at, w.since, w.why) END;
    END IF;
    IF mill.has_schedule(j) THEN
        RETURN (SELECT s.why FROM mill.job_status s WHERE s.job = j.id);
    ELSIF NOT j.scheduled THEN
        RETURN format('it is paused%s', (SELECT ': ' || s.reason FROM mill.job_book s WHERE s.job = j.id));
    ELSIF f.paused THEN
        RETURN format('its flow "%s" is paused', f.name);
    END IF;
    IF why.at IS NOT NULL AND q.relid IS NOT NULL THEN
        EXECUTE format('SELECT max(t.id) FROM %I.%I t WHERE t.job = $1 AND t.at = $2', q.schema, q.name) INTO task USING j.id, why.at;
        IF task IS NOT NULL THEN
            RETURN format('for %s: task %s, %s', why.at, task, mill.why(task, q.relid::regclass));
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM mill.edge e WHERE e.job = j.name) THEN
        RETURN 'it has no schedule and no edges: mill.run starts it';
    END IF;
    SELECT u.name, u.next, u.due, u.enabled, u.trouble INTO t FROM mill.upstream(j.name) u ORDER BY u.due NULLS LAST LIMIT 1;
    RETURN CASE WHEN t.name IS NULL THEN format('nothing has arrived from %s', (SELECT string_agg(mill.edge_name(e), ', ') FROM mill.edge e WHERE e.job = j.name))
        WHEN t.trouble IS NOT NULL THEN format('its timer "%s" cannot be served: %s', t.name, t.trouble)
        WHEN NOT t.enabled THEN format('its timer "%s" is disabled', t.name)
        WHEN t.due IS NULL THEN format('no time is left in its timer "%s"', t.name)
        ELSE format('nothing has arrived%s; its timer "%s" fires next at %s, for %s', COALESCE(' for ' || why.at, ''), t.name, t.due, t.next) END;
END
$function$;
COMMENT ON FUNCTION mill.why(text, timestamptz) IS 'pgmill: why a job is not running, for a logical time or at all, in one sentence';
-- So that why('job', '2026-01-01') needs no cast: a literal could be a table as well.
CREATE FUNCTION mill.why(job text, at text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN mill.why(why.job, why.at::timestamptz);
COMMENT ON FUNCTION mill.why(text, text) IS 'pgmill: why a job is not running for a logical time, in one sentence';
INSERT INTO mill.face (level, object, rights) VALUES
    ('use', 'TABLE mill.flow', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.timer', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.edge', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.backfill', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.command', 'SELECT, INSERT'),
    ('use', 'TABLE mill.waiting', 'SELECT'),
    ('use', 'TABLE mill.integrity', 'SELECT'),
    ('use', 'FUNCTION mill.audit_graph()', 'EXECUTE'),
    ('use', 'FUNCTION mill.edge_name(mill.edge)', 'EXECUTE'),
    ('use', 'FUNCTION mill.at()', 'EXECUTE'),
    ('use', 'FUNCTION mill.stash(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.stash(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.why(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.why(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.run(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.rerun(text, timestamptz, text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.clear(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.cancel(text, timestamptz, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.skip(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.mark(text, timestamptz, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.fire(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.pause(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.resume(text, text)', 'EXECUTE');
