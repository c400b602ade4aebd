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
    -- an activation whose runs have all ended has delivered along every edge that was there by then
    RETURN QUERY
    WITH ended AS (
        SELECT r.job, r.at, COALESCE(r.activation, r.id) AS root, max(r.stop) AS stop, max(r.epoch) AS epoch,
               (array_agg(r.outcome ORDER BY r.id DESC))[1] IN ('succeeded', 'skipped') AS success
          FROM mill_private.run r WHERE r.at IS NOT NULL GROUP BY r.job, r.at, COALESCE(r.activation, r.id)
        HAVING bool_and(r.outcome IS NOT NULL)
    ), owed AS (
        SELECT e.id AS edge, e.job, CASE WHEN e.shift = interval '0' THEN d.at ELSE mill.land(d.at, e.shift, mill.zone_of(e.from_job)) END AS at,
               count(*) AS n
          FROM ended d JOIN mill.job s ON s.id = d.job JOIN mill.edge e ON e.from_job = s.name AND e.made < d.stop
           AND e."on" IN ('done', CASE WHEN d.success THEN 'success' ELSE 'failure' END)
         WHERE NOT mill.overtaken(d.job, d.at, d.epoch) GROUP BY 1, 2, 3)
    SELECT o.edge, o.job, o.at, 'less was delivered than runs have ended', COALESCE(p.n, 0), NULL::bigint, NULL::bigint
      FROM owed o JOIN mill.job j ON j.name = o.job
      LEFT JOIN LATERAL (SELECT count(*) AS n FROM mill.token k, unnest(k.delivered) AS u WHERE k.job = j.id AND k.at = o.at AND u = o.edge) AS p ON true
     WHERE COALESCE(p.n, 0) < o.n;
    RETURN QUERY
    SELECT NULL::int, j.name, t.at, 'more runs than tokens have activated', NULL::bigint, k.activations::bigint, t.n
      FROM (SELECT r.job, r.at, r.epoch, count(DISTINCT COALESCE(r.activation, r.id)) AS n FROM mill_private.run r WHERE r.epoch >= 0 GROUP BY 1, 2, 3) AS t
      JOIN mill.token k ON k.job = t.job AND k.at = t.at AND k.epoch = t.epoch JOIN mill.job j ON j.id = t.job
     WHERE t.n > k.activations + k.by_hand;
END
$function$;
CREATE VIEW mill.integrity AS SELECT * FROM mill.audit_graph();
COMMENT ON VIEW mill.integrity IS 'pgmill: what does not balance in the books of the graph; empty when all is well';

-- Timers and tokens are moved by one scheduler of the database, as a member of the catalog's owner or admitted for it.
CREATE FUNCTION mill.why_no_keeper() RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN 'no scheduler keeps timers and tokens: is the launcher running? the user of a queue keeps them if it owns the catalog, or after: '
        || 'SELECT mill.admit(''ROLE'', keeps => true)';
END
$function$;
-- As the caller, who sees his own jobs.
CREATE FUNCTION mill.why(job text, at timestamptz DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT n FROM mill.job n WHERE n.name = why.job);
    f mill.flow := (SELECT n FROM mill.flow n WHERE n.name = j.flow);
    here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    reason text := (SELECT s.reason FROM mill.job_stat s WHERE s.job = j.id);
    w record;
    t record;
BEGIN
    IF j.id IS NULL THEN
        RETURN format('there is no job "%s", or it is not yours', job);
    END IF;
    SELECT r.id, r.at, r.due, r.task, r.start, r.ordered, r.held, r.recall, r.queue, q.schema, q.name INTO t
      FROM mill_private.run r LEFT JOIN mill.queue q ON q.relid = r.queue
     WHERE r.job = j.id AND r.outcome IS NULL AND (why.at IS NULL OR r.at = why.at) ORDER BY r.start IS NULL, r.id LIMIT 1;
    IF FOUND THEN
        RETURN format('for %s: run %s, ', t.at, t.id) || CASE
            WHEN t.start IS NOT NULL AND t.recall IS NOT NULL THEN format('task %s, is running since %s, and its scheduler is to end it', t.task, t.start)
            WHEN t.start IS NOT NULL THEN format('task %s, is running since %s', t.task, t.start)
            WHEN t.held AND NOT j.scheduled THEN 'its job is paused' || COALESCE(': ' || reason, '')
            WHEN t.held AND f.paused THEN format('its flow "%s" is paused; SELECT mill.resume(%L) goes on', f.name, f.name)
            WHEN t.held AND t.due <= mill.now() THEN format('its flow "%s" runs %s tasks at once, and no more', f.name, f.parallel)
            WHEN t.due > mill.now() THEN format('is planned for %s', t.due)
            WHEN t.queue = 0 AND NOT mill.locked({graph_key}, 0, here) THEN mill.why_no_keeper()
            WHEN t.queue = 0 THEN 'needs no worker, and ends with the next pass over the graph'
            WHEN t.name IS NULL THEN 'its queue is no longer there'
            WHEN NOT mill.locked({queue_key}, t.queue, here)
                THEN format('no scheduler serves %I.%I: is the launcher running? ask it with: launcher status', t.schema, t.name)
            WHEN t.ordered THEN format('is put into %I.%I with the next pass of its scheduler', t.schema, t.name)
            ELSE format('waits in %I.%I for a free slot or its turn', t.schema, t.name) END;
    END IF;
    SELECT * INTO w FROM mill.waiting n WHERE n.job = j.name AND (why.at IS NULL OR n.at = why.at) ORDER BY n.at LIMIT 1;
    IF w.job IS NOT NULL THEN
        RETURN CASE w.why WHEN 'not all edges have delivered' THEN format('for %s it waits since %s for %s', w.at, w.since, array_to_string(w.missing, ' and '))
                    ELSE format('for %s it waits since %s: %s', w.at, w.since, w.why) END;
    END IF;
    IF mill.has_schedule(j) THEN
        RETURN (SELECT s.why FROM mill.job_status s WHERE s.job = j.id);
    ELSIF NOT j.scheduled THEN
        RETURN 'it is paused' || COALESCE(': ' || reason, '');
    ELSIF f.paused THEN
        RETURN format('its flow "%s" is paused', f.name);
    END IF;
    IF why.at IS NOT NULL THEN
        SELECT r.id, r.state, r.stop, r.reason, r.task INTO t FROM mill.run r WHERE r.job = j.id AND r.at = why.at ORDER BY r.id DESC LIMIT 1;
        IF FOUND THEN
            RETURN format('for %s: run %s', why.at, t.id) || COALESCE(format(', task %s', t.task), '') || format(', it finished at %s: %s', t.stop, t.state)
                   || COALESCE(format(' (%s)', NULLIF(t.reason, t.state)), '');
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM mill.edge e WHERE e.job = j.name) THEN
        RETURN 'it has no schedule and no edges: mill.run starts it';
    END IF;
    IF NOT mill.locked({graph_key}, 0, here) THEN
        RETURN mill.why_no_keeper();
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
    ('use', 'TABLE mill.token', 'SELECT'),
    ('use', 'FUNCTION mill.audit_graph()', 'EXECUTE'),
    ('use', 'FUNCTION mill.why_no_keeper()', 'EXECUTE'),
    ('use', 'FUNCTION mill.upstream(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.has_schedule(mill.job)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_name(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_member(text, name)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_step(interval)', 'EXECUTE'),
    ('use', 'FUNCTION mill.stash_call()', 'EXECUTE'),
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
