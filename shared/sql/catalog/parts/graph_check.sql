-- What can only be checked at the end of a transaction, because rows are inserted in any order: an edge to a job with a schedule of
-- its own, the rights on both ends of an edge, and a cycle along which a token comes back to the same job and time.
-- parameters: none; locks: none; caller: installation, once per database
--
-- That is a closed walk whose shifts add up to 0. It exists if and only if a strongly connected component has a cycle with a sum of 0
-- or less and one with a sum of 0 or more: going round both often enough cancels them out. Bellman-Ford finds such cycles, with weights
-- that make a sum of 0 count as negative. A month counts as 30 days, as intervals compare.

CREATE FUNCTION mill_private.has_cycle(n int, source int[], target int[], weight float8[]) RETURNS bool
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    distance float8[] := array_fill(0::float8, ARRAY[n]);
    changed bool;
    through float8;
BEGIN
    FOR round IN 1..n LOOP
        changed := false;
        FOR i IN 1..cardinality(source) LOOP
            through := distance[source[i]] + weight[i];
            IF through < distance[target[i]] - 0.0000001 THEN
                distance[target[i]] := through;
                changed := true;
            END IF;
        END LOOP;
        EXIT WHEN NOT changed;
    END LOOP;
    RETURN changed;
END
$function$;
COMMENT ON FUNCTION mill_private.has_cycle(int, int[], int[], float8[]) IS
    'pgmill: whether a graph has a cycle with a negative sum of weights (Bellman-Ford)';

CREATE FUNCTION mill_private.check_cycles() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    names text[];
    source int[];
    target int[];
    shifts float8[];
    kept bool[];
    incoming int[];
    outgoing int[];
    n int;
    removed bool;
    part int[];
    seen int[] := '{}';
    part_source int[];
    part_target int[];
    part_shifts float8[];
    low float8[];
    high float8[];
    half_microsecond CONSTANT float8 := 0.0000005;
BEGIN
    SELECT array_agg(name ORDER BY name) INTO names
      FROM (SELECT from_job AS name FROM mill.edge WHERE from_job IS NOT NULL
            INTERSECT SELECT job FROM mill.edge WHERE from_job IS NOT NULL) AS both_ways;
    n := COALESCE(cardinality(names), 0);
    IF n = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(from_place.place::int ORDER BY edge_row.id), array_agg(to_place.place::int ORDER BY edge_row.id),
           array_agg(extract(epoch FROM edge_row.shift)::float8 ORDER BY edge_row.id)
      INTO source, target, shifts
      FROM mill.edge edge_row JOIN unnest(names) WITH ORDINALITY AS from_place (name, place) ON from_place.name = edge_row.from_job
      JOIN unnest(names) WITH ORDINALITY AS to_place (name, place) ON to_place.name = edge_row.job;
    IF source IS NULL THEN
        RETURN;
    END IF;
    -- A node without incoming or without outgoing edges is on no cycle: remove such edges until nothing changes.
    kept := array_fill(true, ARRAY[cardinality(source)]);
    LOOP
        incoming := array_fill(0, ARRAY[n]);
        outgoing := array_fill(0, ARRAY[n]);
        FOR i IN 1..cardinality(source) LOOP
            IF kept[i] THEN
                outgoing[source[i]] := outgoing[source[i]] + 1;
                incoming[target[i]] := incoming[target[i]] + 1;
            END IF;
        END LOOP;
        removed := false;
        FOR i IN 1..cardinality(source) LOOP
            IF kept[i] AND (incoming[source[i]] = 0 OR outgoing[target[i]] = 0) THEN
                kept[i] := false;
                removed := true;
            END IF;
        END LOOP;
        EXIT WHEN NOT removed;
    END LOOP;
    FOR start IN 1..n LOOP
        CONTINUE WHEN incoming[start] = 0 OR outgoing[start] = 0 OR start = ANY (seen);
        -- The strongly connected component: nodes that are reached from here and from which this one is reached.
        WITH RECURSIVE arrow AS (
            SELECT one.tail, one.head FROM unnest(source, target, kept) AS one (tail, head, stays) WHERE one.stays
        ), forth (node) AS (SELECT start UNION SELECT arrow.head FROM forth JOIN arrow ON arrow.tail = forth.node
        ), back (node) AS (SELECT start UNION SELECT arrow.tail FROM back JOIN arrow ON arrow.head = back.node)
        SELECT array_agg(node) INTO part FROM (SELECT node FROM forth INTERSECT SELECT node FROM back) AS nodes;
        seen := seen || part;
        SELECT array_agg(arrow.tail), array_agg(arrow.head), array_agg(arrow.shift) INTO part_source, part_target, part_shifts
          FROM unnest(source, target, shifts, kept) AS arrow (tail, head, shift, stays)
         WHERE arrow.stays AND arrow.tail = ANY (part) AND arrow.head = ANY (part);
        CONTINUE WHEN part_source IS NULL;
        -- Half a microsecond per edge: too small to matter, and enough to make a sum of 0 negative.
        SELECT array_agg(shift - half_microsecond), array_agg(-shift - half_microsecond) INTO low, high FROM unnest(part_shifts) AS shift;
        IF mill_private.has_cycle(n, part_source, part_target, low) AND mill_private.has_cycle(n, part_source, part_target, high) THEN
            PERFORM mill_private.raise_violation(format('the jobs %s form a cycle whose shifts add up to 0: a token would come back to the same job and time',
                (SELECT string_agg(format('"%s"', names[node]), ', ' ORDER BY names[node]) FROM unnest(part) AS node)),
                'Give an edge of the cycle a shift, such as 1 day, or remove one.');
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.check_cycles() IS 'pgmill: raises an error if edges form a cycle whose shifts add up to 0';

-- Cycles are searched once per transaction, however many edges it changes.
CREATE FUNCTION mill_private.note_changed_edges() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM set_config('mill_private.note_changed_edges', 'yes', true);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.note_changed_edges() IS 'pgmill: notes in this transaction that edges were changed';
CREATE TRIGGER edges_changed AFTER INSERT OR UPDATE ON mill.edge FOR EACH STATEMENT EXECUTE FUNCTION mill_private.note_changed_edges();

CREATE FUNCTION mill_private.check_schedule_or_edges(j mill.job) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF (j.schedule_interval IS NOT NULL OR j.cron IS NOT NULL) AND EXISTS (SELECT FROM mill.edge WHERE job = j.name) THEN
        PERFORM mill_private.raise_violation(format('job "%s" has a schedule of its own and incoming edges: it can have only one of them', j.name),
            'Put the schedule into mill.timer and an edge from there.');
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.check_schedule_or_edges(mill.job) IS
    'pgmill: raises an error if a job has a schedule of its own and incoming edges';

-- The writer of an edge must be a member of the owners of both ends.
CREATE FUNCTION mill_private.check_edge_at_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    e mill.edge;
    j mill.job;
BEGIN
    SELECT * INTO e FROM mill.edge WHERE id = NEW.id;
    SELECT * INTO j FROM mill.job WHERE name = e.job;
    IF j.id IS NULL THEN
        RETURN NULL;
    END IF;
    -- Skip an edge that the foreign key has changed because its job was renamed: its writer may have left the role since.
    IF TG_OP = 'UPDATE' AND (NEW.made_by, NEW.made_in) = (OLD.made_by, OLD.made_in) AND (NEW.job, NEW.from_job, NEW.from_timer)
            IS DISTINCT FROM (OLD.job, OLD.from_job, OLD.from_timer) THEN
        RETURN NULL;
    END IF;
    PERFORM mill_private.check_role(e.made_by, format('job "%s"', j.name), j.owner);
    PERFORM mill_private.check_role(e.made_by, format('job "%s"', s.name), s.owner) FROM mill.job s WHERE s.name = e.from_job;
    PERFORM mill_private.check_role(e.made_by, format('timer "%s"', t.name), t.owner) FROM mill.timer t WHERE t.name = e.from_timer;
    PERFORM mill_private.check_schedule_or_edges(j);
    IF current_setting('mill_private.note_changed_edges', true) = 'yes' THEN
        PERFORM set_config('mill_private.note_changed_edges', '', true);
        PERFORM mill_private.check_cycles();
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.check_edge_at_commit() IS 'pgmill: checks an edge at the end of the transaction';

CREATE CONSTRAINT TRIGGER edge_holds AFTER INSERT OR UPDATE ON mill.edge DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mill_private.check_edge_at_commit();

CREATE FUNCTION mill_private.check_job_at_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job;
BEGIN
    SELECT * INTO j FROM mill.job WHERE id = NEW.id;
    IF j.id IS NOT NULL THEN
        PERFORM mill_private.check_schedule_or_edges(j);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.check_job_at_commit() IS
    'pgmill: checks a job''s schedule against its edges at the end of the transaction';

CREATE CONSTRAINT TRIGGER job_holds AFTER INSERT OR UPDATE OF name, schedule_interval, cron ON mill.job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.schedule_interval IS NOT NULL OR NEW.cron IS NOT NULL) EXECUTE FUNCTION mill_private.check_job_at_commit();

-- A job in a flow obeys the commands of the flow's owner, and counts for its pauses and limits. So the job's owner must be a member of
-- the flow's owner. Checked at the end of the transaction, because the flow may be inserted after the job.
CREATE FUNCTION mill_private.check_job_joins_flow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    joins record;
BEGIN
    SELECT j.name, j.owner, f.name AS flow, f.owner AS flow_owner INTO joins
      FROM mill.job j JOIN mill.flow f ON f.name = j.flow WHERE j.id = NEW.id;
    IF FOUND AND NOT mill_private.is_member_of(joins.owner, joins.flow_owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('job "%s" cannot join flow "%s": its owner %s is not a member of %s, the owner of the flow',
            joins.name, joins.flow, joins.owner, joins.flow_owner), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.check_job_joins_flow() IS
    'pgmill: checks that the owner of a job is a member of the owner of its flow';
CREATE CONSTRAINT TRIGGER flow_joined AFTER INSERT OR UPDATE OF flow, owner ON mill.job DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.flow IS NOT NULL) EXECUTE FUNCTION mill_private.check_job_joins_flow();

-- Its jobs and timers have agreed to the commands of the former owner only.
CREATE FUNCTION mill_private.check_flow_owner() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    part text;
BEGIN
    SELECT p.what INTO part
      FROM mill.flow f, LATERAL (
        SELECT format('job "%s" of %s', j.name, j.owner) AS what, j.owner FROM mill.job j WHERE j.flow = f.name
        UNION ALL SELECT format('timer "%s" of %s', t.name, t.owner), t.owner FROM mill.timer t WHERE t.flow = f.name) AS p
     WHERE f.name = NEW.name AND NOT mill_private.is_member_of(p.owner, f.owner) ORDER BY 1 LIMIT 1;
    IF part IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = format('flow "%s" cannot belong to %s: its %s has an owner that is not a member of that role',
            NEW.name, NEW.owner, part), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.check_flow_owner() IS
    'pgmill: checks a new owner of a flow against the owners of its jobs and timers';
CREATE CONSTRAINT TRIGGER flow_given AFTER UPDATE OF owner ON mill.flow DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.owner <> OLD.owner) EXECUTE FUNCTION mill_private.check_flow_owner();

CREATE FUNCTION mill_private.check_timer_joins_flow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    joins record;
BEGIN
    SELECT t.name, t.owner, f.name AS flow, f.owner AS flow_owner INTO joins
      FROM mill.timer t JOIN mill.flow f ON f.name = t.flow WHERE t.id = NEW.id;
    IF FOUND AND NOT mill_private.is_member_of(joins.owner, joins.flow_owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('timer "%s" cannot join flow "%s": its owner %s is not a member of %s, the owner of the flow',
            joins.name, joins.flow, joins.owner, joins.flow_owner), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.check_timer_joins_flow() IS
    'pgmill: checks that the owner of a timer is a member of the owner of its flow';
CREATE CONSTRAINT TRIGGER flow_joined AFTER INSERT OR UPDATE OF flow, owner ON mill.timer DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.flow IS NOT NULL) EXECUTE FUNCTION mill_private.check_timer_joins_flow();
