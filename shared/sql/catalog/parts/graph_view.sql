-- The views on the graph: waiting tokens and what they wait for, and whether all tokens are accounted for.
-- parameters: none; locks: none; caller: installation, once per database

CREATE FUNCTION mill_private.describe_edge(e mill.edge) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN CASE WHEN (e).from_timer IS NOT NULL THEN format('timer "%s"', (e).from_timer)
                ELSE format('job "%s"%s', (e).from_job, CASE (e)."on" WHEN 'success' THEN '' ELSE ' on ' || (e)."on" END) END
           || CASE WHEN (e).shift = interval '0' THEN '' ELSE format(' shifted by %s', (e).shift) END;
COMMENT ON FUNCTION mill_private.describe_edge(mill.edge) IS 'pgmill: describes an edge';

CREATE VIEW mill.waiting WITH (security_barrier) AS
SELECT j.name AS job, j.flow, k.at, k.since,
       (SELECT array_agg(mill_private.describe_edge(e) || CASE WHEN w.n > 1 THEN format(' (%s times)', w.n) ELSE '' END ORDER BY e.id)
          FROM mill.edge e JOIN (SELECT u AS id, count(*) AS n FROM unnest(k.waiting) AS u GROUP BY u) AS w ON w.id = e.id) AS delivered,
       (SELECT array_agg(mill_private.describe_edge(e) ORDER BY e.id) FROM mill.edge e
         WHERE e.job = j.name AND NOT e.id = ANY (k.waiting) AND (j.threshold IS NOT NULL OR e."on" <> 'failure')) AS missing,
       CASE WHEN NOT j.scheduled THEN 'the job is paused'
            WHEN f.paused THEN format('flow "%s" is paused', f.name)
            WHEN j.threshold IS NOT NULL THEN format('%s of %s tokens have arrived', cardinality(k.waiting), j.threshold)
            ELSE 'not all edges have delivered' END AS why
  FROM mill.token k JOIN mill.job j ON j.id = k.job LEFT JOIN mill.flow f ON f.name = j.flow
 WHERE k.since IS NOT NULL AND mill_private.is_member(j.owner);
COMMENT ON VIEW mill.waiting IS 'pgmill: waiting tokens: which edges have delivered, which have not, and since when';
COMMENT ON COLUMN mill.waiting.job IS 'the job whose tokens wait';
COMMENT ON COLUMN mill.waiting.flow IS 'the flow of the job';
COMMENT ON COLUMN mill.waiting.at IS 'the logical time';
COMMENT ON COLUMN mill.waiting.since IS 'when the oldest waiting token arrived';
COMMENT ON COLUMN mill.waiting.delivered IS 'edges whose tokens wait';
COMMENT ON COLUMN mill.waiting.missing IS 'edges that have not delivered';
COMMENT ON COLUMN mill.waiting.why IS 'why the job is not activated';

-- For each edge the tokens delivered are those consumed and those waiting. Every activation that ended has delivered, and every time
-- that a timer has fired, no more and no less. A timer's own clock fires a time once. No job was activated more often than its tokens
-- allow. Rows that are nearly old enough to be deleted are left out.
CREATE FUNCTION mill_private.audit_graph() RETURNS TABLE (edge int, job text, at timestamptz, what text, delivered bigint, consumed bigint, waiting bigint)
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
        SELECT e.id, e.shift, e.made, e.made_in, j.id AS job, j.name, t.id AS timer, t.timezone, t.revision, clock_timestamp() - mill_private.get_retention(j.id) * 0.9 AS since
          FROM mill.edge e JOIN mill.job j ON j.name = e.job JOIN mill.timer t ON t.name = e.from_timer
    ), fires AS (
        SELECT a.id AS edge, a.name, a.job, d.live + d.filled + d.by_hand AS n, a.shift = interval '0' AS plain,
               CASE WHEN a.shift = interval '0' THEN d.at ELSE mill_private.shift_time(d.at, a.shift, a.timezone) END AS at
          FROM arrows a JOIN mill.fired d ON d.timer = a.timer
         WHERE d.made > a.made AND pg_visible_in_snapshot(a.made_in, d.seen) AND d.made > a.since AND (a.shift = interval '0' OR d.revision = a.revision))
    SELECT c.edge, c.name, c.at, CASE WHEN c.found < c.n THEN 'less was delivered than the timer has fired'
                                      ELSE 'more was delivered than the timer has fired' END, c.found, NULL::bigint, NULL::bigint
      FROM (SELECT f.edge, f.name, f.at, f.n, f.plain, COALESCE(cardinality(array_positions(k.delivered, f.edge)), 0)::bigint AS found
              FROM fires f LEFT JOIN mill.token k ON k.job = f.job AND k.at = f.at) AS c
     -- A shift may move several times to the same one.
     WHERE c.found < c.n OR c.plain AND c.found > c.n;
    RETURN QUERY
    SELECT NULL::int, NULL::text, d.at, format('timer "%s" has fired this time %s times by its own clock', t.name, d.live),
           NULL::bigint, NULL::bigint, NULL::bigint
      FROM mill.fired d JOIN mill.timer t ON t.id = d.timer WHERE d.live > 1;
    -- An activation whose runs have all ended has delivered along every edge that existed by then.
    RETURN QUERY
    WITH ended AS (
        SELECT r.job, r.at, COALESCE(r.activation, r.id) AS root, max(r.stop) AS stop, max(r.epoch) AS epoch,
               (array_agg(r.outcome ORDER BY r.id DESC))[1] IN ('succeeded', 'skipped') AS success
          FROM mill_private.run r WHERE r.at IS NOT NULL GROUP BY r.job, r.at, COALESCE(r.activation, r.id)
        HAVING bool_and(r.outcome IS NOT NULL)
    ), owed AS (
        SELECT e.id AS edge, e.job, CASE WHEN e.shift = interval '0' THEN d.at ELSE mill_private.shift_time(d.at, e.shift, mill_private.get_job_zone(e.from_job)) END AS at,
               count(*) AS n
          FROM ended d JOIN mill.job s ON s.id = d.job JOIN mill.edge e ON e.from_job = s.name AND e.made < d.stop
           AND e."on" IN ('done', CASE WHEN d.success THEN 'success' ELSE 'failure' END)
         WHERE NOT mill_private.is_overtaken(d.job, d.at, d.epoch) GROUP BY 1, 2, 3)
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
COMMENT ON FUNCTION mill_private.audit_graph() IS 'pgmill: what is wrong with the tokens of the graph';

CREATE VIEW mill.integrity AS SELECT * FROM mill_private.audit_graph();
COMMENT ON VIEW mill.integrity IS 'pgmill: tokens that are not accounted for; without a problem it has no rows';
COMMENT ON COLUMN mill.integrity.edge IS 'the id of the edge';
COMMENT ON COLUMN mill.integrity.job IS 'the job that the edge leads to';
COMMENT ON COLUMN mill.integrity.at IS 'the logical time';
COMMENT ON COLUMN mill.integrity.what IS 'what is wrong';
COMMENT ON COLUMN mill.integrity.delivered IS 'tokens delivered';
COMMENT ON COLUMN mill.integrity.consumed IS 'tokens consumed, or allowed activations';
COMMENT ON COLUMN mill.integrity.waiting IS 'tokens waiting, or found activations';
