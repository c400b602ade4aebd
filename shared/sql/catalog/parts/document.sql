-- A flow as one JSON document: `launcher apply` and `launcher export` write and read it, and `launcher graph` draws a flow. The
-- functions run as their caller, so that the row security of the tables applies.
-- parameters: none; locks: none; caller: installation, once per database

-- State (scheduled, paused, enabled) is not among them: a document changes it only if it names it.
CREATE FUNCTION mill_private.document_columns(part text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN CASE part
        WHEN 'flow' THEN '{"parallel": null, "window": null, "keep": null, "note": null}'
        WHEN 'job' THEN '{"input": null, "queue": null, "schedule_interval": null, "cron": null, "timezone": null,
            "initial_start": null, "fixed_schedule": true, "max_runtime": "00:00:00", "max_retries": null,
            "retry_period": "00:05:00", "crash_wait": "00:05:00", "config": null, "check_config": null, "group": null,
            "max": null, "active": null, "live": null, "count": null, "timeout": null, "remote": null, "atomic": false,
            "priority": 0, "threshold": null}'
        WHEN 'timer' THEN '{"start": null, "stop": null, "period": null, "cron": null, "timezone": "UTC", "shift": "00:00:00",
            "catchup": "last", "catchup_age": null}'
        WHEN 'edge' THEN '{"from_job": null, "from_timer": null, "on": "success", "shift": "00:00:00", "first": false}'
        END::jsonb;
COMMENT ON FUNCTION mill_private.document_columns(text) IS 'pgmill: the keys of a part of a document, with their defaults';

CREATE FUNCTION mill_private.check_document(place text, given jsonb, known jsonb) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    strange text;
BEGIN
    IF jsonb_typeof(given) IS DISTINCT FROM 'object' THEN
        PERFORM mill_private.raise_violation(format('%s: an object is expected', place));
    END IF;
    SELECT k INTO strange FROM jsonb_object_keys(given) AS k WHERE NOT known ? k ORDER BY k LIMIT 1;
    IF strange IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('%s.%s: unknown key', place, strange),
            format('Known keys: %s.', (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(known) AS k)));
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.check_document(text, jsonb, jsonb) IS
    'pgmill: raises an error with the place of a mistake in a document';

CREATE FUNCTION mill_private.upsert_row(relation text, key jsonb, given jsonb) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    columns text := (SELECT string_agg(quote_ident(k), ', ' ORDER BY k) FROM jsonb_object_keys(key || given) AS k);
    changed text := (SELECT string_agg(quote_ident(k), ', ' ORDER BY k) FROM jsonb_object_keys(given) AS k);
    same text := (SELECT string_agg(format('t.%1$I IS NOT DISTINCT FROM r.%1$I', k), ' AND ') FROM jsonb_object_keys(key) AS k);
    there bool;
    n bigint;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM mill.%1$I t, jsonb_populate_record(NULL::mill.%1$I, $1) r WHERE %2$s)', relation, same)
       INTO there USING key;
    IF NOT there THEN
        EXECUTE format('INSERT INTO mill.%1$I (%2$s) SELECT %2$s FROM jsonb_populate_record(NULL::mill.%1$I, $1)', relation, columns)
          USING key || given;
        RETURN 'made';
    END IF;
    EXECUTE format('UPDATE mill.%1$I t SET (%2$s) = ROW (%3$s) FROM jsonb_populate_record(NULL::mill.%1$I, $1) r
                     WHERE %4$s AND ROW (%5$s) IS DISTINCT FROM ROW (%3$s)', relation, changed,
                   (SELECT string_agg(format('r.%I', k), ', ' ORDER BY k) FROM jsonb_object_keys(given) AS k), same,
                   (SELECT string_agg(format('t.%I', k), ', ' ORDER BY k) FROM jsonb_object_keys(given) AS k))
      USING key || given;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN CASE WHEN n > 0 THEN 'changed' ELSE 'same' END;
END
$function$;
COMMENT ON FUNCTION mill_private.upsert_row(text, jsonb, jsonb) IS
    'pgmill: inserts or updates a row from a document, unless it is equal already';

-- Foreign keys are checked at commit, and name neither the place nor the missing row.
CREATE FUNCTION mill_private.check_document_edge(whole text, place bigint, given jsonb) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    key jsonb := jsonb_build_object('job', given -> 'job', 'from_job', given -> 'from_job', 'from_timer', given -> 'from_timer',
                                    'on', given -> 'on', 'shift', given -> 'shift');
BEGIN
    IF (SELECT stored.flow FROM mill.job stored WHERE stored.name = key ->> 'job') IS DISTINCT FROM whole THEN
        PERFORM mill_private.raise_violation(format('edges[%s].job: "%s" is not a job of this document', place, key ->> 'job'));
    ELSIF NOT EXISTS (SELECT FROM mill.job stored WHERE stored.name = key ->> 'from_job') AND key ->> 'from_job' IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('edges[%s].from_job: job "%s" does not exist, or you are not a member of its owner',
            place, key ->> 'from_job'));
    ELSIF NOT EXISTS (SELECT FROM mill.timer stored WHERE stored.name = key ->> 'from_timer') AND key ->> 'from_timer' IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('edges[%s].from_timer: timer "%s" does not exist, or you are not a member of its owner',
            place, key ->> 'from_timer'));
    END IF;
    RETURN key;
END
$function$;
COMMENT ON FUNCTION mill_private.check_document_edge(text, bigint, jsonb) IS 'pgmill: raises an error unless both ends of an edge of a document exist; returns its key';

-- Returns the number of rows.
CREATE FUNCTION mill_private.delete_absent_rows(whole text, document jsonb) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    removed int;
    more int;
BEGIN
    DELETE FROM mill.edge stored USING mill.job target WHERE target.name = stored.job AND target.flow = whole AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(COALESCE(document -> 'edges', '[]')) item,
               jsonb_populate_record(NULL::mill.edge, mill_private.document_columns('edge') || item) given
         WHERE (given.job, given."on", given.shift) = (stored.job, stored."on", stored.shift)
           AND (given.from_job, given.from_timer) IS NOT DISTINCT FROM (stored.from_job, stored.from_timer));
    GET DIAGNOSTICS removed = ROW_COUNT;
    DELETE FROM mill.job stored WHERE stored.flow = whole
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(COALESCE(document -> 'jobs', '[]')) item WHERE item ->> 'name' = stored.name);
    GET DIAGNOSTICS more = ROW_COUNT;
    removed := removed + more;
    DELETE FROM mill.timer stored WHERE stored.flow = whole
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(COALESCE(document -> 'timers', '[]')) item WHERE item ->> 'name' = stored.name);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN removed + more;
END
$function$;
COMMENT ON FUNCTION mill_private.delete_absent_rows(text, jsonb) IS 'pgmill: deletes the edges, jobs and timers of a flow that a document does not contain';

CREATE FUNCTION mill.apply(document jsonb) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET intervalstyle = 'postgres' SET datestyle = 'ISO' AS $function$
DECLARE
    whole text := document ->> 'flow';
    part record;
    item record;
    given jsonb;
    known jsonb;
    key jsonb;
    other text;
    results text[] := '{}';
    removed int;
BEGIN
    PERFORM mill_private.check_document('document', document, mill_private.document_columns('flow')
        || '{"flow": null, "paused": null, "jobs": null, "timers": null, "edges": null}');
    IF whole IS NULL THEN
        PERFORM mill_private.raise_violation('document.flow: missing; it is the name of the flow');
    END IF;
    given := mill_private.document_columns('flow') || (document - '{flow,jobs,timers,edges}'::text[]);
    results := results || mill_private.upsert_row('flow', jsonb_build_object('name', whole), given);
    FOR part IN SELECT * FROM (VALUES ('timer', 'timers', 'enabled'), ('job', 'jobs', 'scheduled'), ('edge', 'edges', NULL)) AS parts (kind, list, state) LOOP
        IF jsonb_typeof(COALESCE(document -> part.list, '[]')) <> 'array' THEN
            PERFORM mill_private.raise_violation(format('%s: a list is expected', part.list));
        END IF;
        known := mill_private.document_columns(part.kind) || CASE part.kind WHEN 'edge' THEN '{"job": null}'::jsonb
                                                     ELSE jsonb_build_object('name', NULL, part.state, NULL) END;
        FOR item IN SELECT element.value, element.ordinality - 1 AS place
                      FROM jsonb_array_elements(COALESCE(document -> part.list, '[]')) WITH ORDINALITY AS element LOOP
            PERFORM mill_private.check_document(format('%s[%s]', part.list, item.place), item.value, known);
            given := mill_private.document_columns(part.kind) || item.value;
            IF part.kind = 'edge' THEN
                key := mill_private.check_document_edge(whole, item.place, given);
                given := jsonb_build_object('first', given -> 'first');
            ELSE
                IF item.value ->> 'name' IS NULL THEN
                    PERFORM mill_private.raise_violation(format('%s[%s].name: missing', part.list, item.place));
                END IF;
                EXECUTE format('SELECT COALESCE(''the flow '' || stored.flow, ''no flow'') FROM mill.%I stored WHERE stored.name = $1 AND stored.flow IS DISTINCT FROM $2', part.kind)
                   INTO other USING item.value ->> 'name', whole;
                IF other IS NOT NULL THEN
                    PERFORM mill_private.raise_violation(format('%s[%s].name: "%s" exists already and belongs to %s', part.list, item.place, item.value ->> 'name', other));
                END IF;
                key := jsonb_build_object('name', given -> 'name');
                given := given - 'name' || jsonb_build_object('flow', whole);
                -- A document without these leaves the values that the server has chosen.
                IF given -> 'queue' = 'null' THEN given := given - 'queue'; END IF;
                IF given -> 'start' = 'null' THEN given := given - 'start'; END IF;
                IF given -> 'initial_start' = 'null' THEN given := given - 'initial_start'; END IF;
            END IF;
            results := results || mill_private.upsert_row(part.kind, key, given);
        END LOOP;
    END LOOP;
    removed := mill_private.delete_absent_rows(whole, document);
    RETURN format('flow "%s": %s created, %s changed, %s unchanged, %s removed', whole, cardinality(array_positions(results, 'made')),
        cardinality(array_positions(results, 'changed')), cardinality(array_positions(results, 'same')), removed);
END
$function$;
COMMENT ON FUNCTION mill.apply(jsonb) IS 'pgmill: creates or changes a flow with its jobs, timers and edges from a document; jobs, timers and edges that it lacks are deleted';

CREATE FUNCTION mill_private.export_row(kind text, fields jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT COALESCE(jsonb_object_agg(k.key, k.value), '{}') FROM jsonb_each(fields) AS k
     WHERE k.key IN ('name', 'job') OR (mill_private.document_columns(kind) ? k.key AND mill_private.document_columns(kind) -> k.key IS DISTINCT FROM k.value)
$function$;
COMMENT ON FUNCTION mill_private.export_row(text, jsonb) IS
    'pgmill: the columns of a row that differ from the defaults of a document';

CREATE FUNCTION mill.export(flow text) RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET intervalstyle = 'postgres' SET datestyle = 'ISO' AS $function$
DECLARE
    f mill.flow;
BEGIN
    SELECT * INTO f FROM mill.flow k WHERE k.name = export.flow;
    IF f.name IS NULL THEN
        PERFORM mill_private.raise_violation(format('flow "%s" does not exist, or you are not a member of its owner', flow));
    END IF;
    RETURN mill_private.export_row('flow', to_jsonb(f)) - 'name' || jsonb_build_object('flow', f.name,
        'jobs', COALESCE((SELECT jsonb_agg(mill_private.export_row('job', to_jsonb(j)) ORDER BY j.id)
                            FROM mill.job j WHERE j.flow = f.name), '[]'),
        'timers', COALESCE((SELECT jsonb_agg(mill_private.export_row('timer', to_jsonb(t)) ORDER BY t.id) FROM mill.timer t
                             WHERE t.flow = f.name), '[]'),
        'edges', COALESCE((SELECT jsonb_agg(mill_private.export_row('edge', to_jsonb(e)) ORDER BY e.id) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                            WHERE j.flow = f.name), '[]'));
END
$function$;
COMMENT ON FUNCTION mill.export(text) IS 'pgmill: a flow with its jobs, timers and edges, as a document that mill.apply takes';

-- Of one logical time, the newest one if none is given. Runs as its caller.
CREATE FUNCTION mill.picture(flow text, at timestamptz DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $function$
DECLARE
    f mill.flow := (SELECT k FROM mill.flow k WHERE k.name = picture.flow);
    states jsonb;
BEGIN
    IF f.name IS NULL THEN
        PERFORM mill_private.raise_violation(format('flow "%s" does not exist, or you are not a member of its owner', flow));
    END IF;
    at := COALESCE(picture.at, (SELECT max(k.at) FROM mill.token k JOIN mill.job j ON j.id = k.job WHERE j.flow = f.name));
    SELECT COALESCE(jsonb_object_agg(l.name, l.state), '{}') INTO states FROM (
        SELECT DISTINCT ON (r.job) j.name, CASE WHEN r.outcome = 'skipped' THEN 'skipped' WHEN r.outcome = 'succeeded' THEN 'succeeded'
               WHEN r.outcome IS NOT NULL THEN 'failed' WHEN r.start IS NOT NULL THEN 'running' ELSE 'planned' END AS state
          FROM mill_private.run r JOIN mill.job j ON j.id = r.job
         WHERE r.at = picture.at AND (j.flow = f.name OR EXISTS (SELECT FROM mill.edge e JOIN mill.job o ON o.name IN (e.job, e.from_job) AND o.flow = f.name
                                                                  WHERE j.name IN (e.job, e.from_job)))
         ORDER BY r.job, r.id DESC) AS l;
    RETURN jsonb_build_object('flow', f.name, 'paused', f.paused, 'at', at,
        'jobs', (SELECT jsonb_agg(jsonb_build_object('name', j.name, 'flow', j.flow, 'threshold', j.threshold, 'empty', j.input IS NULL,
                            'schedule', COALESCE(j.cron, j.schedule_interval::text),
                            'state', COALESCE(states ->> j.name, CASE WHEN EXISTS (SELECT FROM mill.token k WHERE k.job = j.id AND k.at = picture.at
                                                                         AND k.since IS NOT NULL) THEN 'waiting' END)) ORDER BY j.id)
                   FROM mill.job j WHERE j.flow = f.name OR EXISTS (SELECT FROM mill.edge e JOIN mill.job o ON o.name IN (e.job, e.from_job) AND o.flow = f.name
                                                                    WHERE j.name IN (e.job, e.from_job))),
        'timers', (SELECT jsonb_agg(jsonb_build_object('name', t.name, 'schedule', COALESCE(t.cron, 'every ' || t.period), 'timezone', t.timezone,
                                                       'enabled', t.enabled, 'next', t.next) ORDER BY t.id)
                     FROM mill.timer t WHERE t.flow = f.name OR EXISTS (SELECT FROM mill.edge e JOIN mill.job o ON o.name = e.job AND o.flow = f.name
                                                                        WHERE e.from_timer = t.name)),
        'edges', (SELECT jsonb_agg(jsonb_build_object('job', e.job, 'from_job', e.from_job, 'from_timer', e.from_timer, 'on', e."on",
                                                      'shift', CASE WHEN e.shift <> interval '0' THEN e.shift::text END) ORDER BY e.id)
                    FROM mill.edge e WHERE EXISTS (SELECT FROM mill.job o WHERE o.name IN (e.job, e.from_job) AND o.flow = f.name)));
END
$function$;
COMMENT ON FUNCTION mill.picture(text, timestamptz) IS 'pgmill: nodes and edges of a flow with their states at a logical time, for launcher graph';
