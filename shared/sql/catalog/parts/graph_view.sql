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
    SELECT balance.edge, target.name, balance.at, 'delivered is not consumed + waiting', balance.delivered, balance.consumed, balance.waiting
      FROM (SELECT counted.edge, stored.job, stored.at, sum(counted.was_delivered)::bigint AS delivered,
                   sum(counted.was_consumed)::bigint AS consumed, sum(counted.waits)::bigint AS waiting
              FROM mill.token stored, LATERAL (
                SELECT edge_id AS edge, 1 AS was_delivered, 0 AS was_consumed, 0 AS waits FROM unnest(stored.delivered) AS edge_id
                UNION ALL SELECT edge_id, 0, 1, 0 FROM unnest(stored.consumed) AS edge_id
                UNION ALL SELECT edge_id, 0, 0, 1 FROM unnest(stored.waiting) AS edge_id) AS counted
             GROUP BY counted.edge, stored.job, stored.at) AS balance
      JOIN mill.job target ON target.id = balance.job
     WHERE balance.delivered <> balance.consumed + balance.waiting;
    RETURN QUERY
    WITH arrows AS MATERIALIZED (
        SELECT arrow.id, arrow.shift, arrow.made, arrow.made_in, target.id AS job, target.name, clock.id AS timer, clock.timezone, clock.revision,
               clock_timestamp() - mill_private.get_retention(target.id) * 0.9 AS since
          FROM mill.edge arrow JOIN mill.job target ON target.name = arrow.job JOIN mill.timer clock ON clock.name = arrow.from_timer
    ), fires AS (
        SELECT arrow.id AS edge, arrow.name, arrow.job, fire.live + fire.filled + fire.by_hand AS n, arrow.shift = interval '0' AS plain,
               CASE WHEN arrow.shift = interval '0' THEN fire.at ELSE mill_private.shift_time(fire.at, arrow.shift, arrow.timezone) END AS at
          FROM arrows arrow JOIN mill.fired fire ON fire.timer = arrow.timer
         WHERE fire.made > arrow.made AND pg_visible_in_snapshot(arrow.made_in, fire.seen) AND fire.made > arrow.since
           AND (arrow.shift = interval '0' OR fire.revision = arrow.revision))
    SELECT compared.edge, compared.name, compared.at, CASE WHEN compared.found < compared.n THEN 'less was delivered than the timer has fired'
                                      ELSE 'more was delivered than the timer has fired' END, compared.found, NULL::bigint, NULL::bigint
      FROM (SELECT fire.edge, fire.name, fire.at, fire.n, fire.plain, COALESCE(cardinality(array_positions(stored.delivered, fire.edge)), 0)::bigint AS found
              FROM fires fire LEFT JOIN mill.token stored ON stored.job = fire.job AND stored.at = fire.at) AS compared
     -- A shift may move several times to the same one.
     WHERE compared.found < compared.n OR compared.plain AND compared.found > compared.n;
    RETURN QUERY
    SELECT NULL::int, NULL::text, fire.at, format('timer "%s" has fired this time %s times by its own clock', clock.name, fire.live),
           NULL::bigint, NULL::bigint, NULL::bigint
      FROM mill.fired fire JOIN mill.timer clock ON clock.id = fire.timer WHERE fire.live > 1;
    -- An activation whose runs have all ended has delivered along every edge that existed by then.
    RETURN QUERY
    WITH ended AS (
        SELECT one_run.job, one_run.at, COALESCE(one_run.activation, one_run.id) AS root, max(one_run.stop) AS stop, max(one_run.epoch) AS epoch,
               (array_agg(one_run.outcome ORDER BY one_run.id DESC))[1] IN ('succeeded', 'skipped') AS success
          FROM mill_private.run one_run WHERE one_run.at IS NOT NULL GROUP BY one_run.job, one_run.at, COALESCE(one_run.activation, one_run.id)
        HAVING bool_and(one_run.outcome IS NOT NULL)
    ), owed AS (
        SELECT arrow.id AS edge, arrow.job, CASE WHEN arrow.shift = interval '0' THEN activation.at
               ELSE mill_private.shift_time(activation.at, arrow.shift, mill_private.get_job_zone(arrow.from_job)) END AS at, count(*) AS n
          FROM ended activation JOIN mill.job source ON source.id = activation.job JOIN mill.edge arrow ON arrow.from_job = source.name AND arrow.made < activation.stop
           AND arrow."on" IN ('done', CASE WHEN activation.success THEN 'success' ELSE 'failure' END)
         WHERE NOT mill_private.is_overtaken(activation.job, activation.at, activation.epoch) GROUP BY 1, 2, 3)
    SELECT debt.edge, debt.job, debt.at, 'less was delivered than runs have ended', COALESCE(paid.n, 0), NULL::bigint, NULL::bigint
      FROM owed debt JOIN mill.job target ON target.name = debt.job
      LEFT JOIN LATERAL (SELECT count(*) AS n FROM mill.token stored, unnest(stored.delivered) AS edge_id
                          WHERE stored.job = target.id AND stored.at = debt.at AND edge_id = debt.edge) AS paid ON true
     WHERE COALESCE(paid.n, 0) < debt.n;
    RETURN QUERY
    SELECT NULL::int, target.name, activated.at, 'more runs than tokens have activated', NULL::bigint, stored.activations::bigint, activated.n
      FROM (SELECT one_run.job, one_run.at, one_run.epoch, count(DISTINCT COALESCE(one_run.activation, one_run.id)) AS n
              FROM mill_private.run one_run WHERE one_run.epoch >= 0 GROUP BY 1, 2, 3) AS activated
      JOIN mill.token stored ON stored.job = activated.job AND stored.at = activated.at AND stored.epoch = activated.epoch
      JOIN mill.job target ON target.id = activated.job
     WHERE activated.n > stored.activations + stored.by_hand;
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
