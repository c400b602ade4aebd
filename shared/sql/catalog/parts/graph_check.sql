-- What only the end of a transaction can judge, because declarations come in any order: an edge to a job that has a
-- schedule of its own, somebody else's job, and a way along which a token comes back to the same job and time.
-- parameters: none; locks: none; caller: whoever installs, once per database
--
-- The way back: a closed walk whose shifts add up to 0. It exists iff some strongly connected part has a cycle that adds
-- up to 0 or less and one that adds up to 0 or more (going round both often enough cancels them out). Cycles are found
-- by relaxation over weights that make a sum of 0 count as negative; months count 30 days, as intervals compare.
CREATE FUNCTION mill.has_cycle(n int, source int[], target int[], weight float8[]) RETURNS bool
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

CREATE FUNCTION mill.check_cycles() RETURNS void
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
BEGIN
    SELECT array_agg(name ORDER BY name) INTO names
      FROM (SELECT from_job AS name FROM mill.edge WHERE from_job IS NOT NULL
            INTERSECT SELECT job FROM mill.edge WHERE from_job IS NOT NULL) AS both_ways;
    n := COALESCE(cardinality(names), 0);
    IF n = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(s.place::int ORDER BY e.id), array_agg(t.place::int ORDER BY e.id),
           array_agg(extract(epoch FROM e.shift)::float8 ORDER BY e.id)
      INTO source, target, shifts
      FROM mill.edge e JOIN unnest(names) WITH ORDINALITY AS s (name, place) ON s.name = e.from_job
      JOIN unnest(names) WITH ORDINALITY AS t (name, place) ON t.name = e.job;
    IF source IS NULL THEN
        RETURN;
    END IF;
    -- what has no way in or no way out is on no cycle: peeled off until nothing changes
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
        -- the strongly connected part: reached from here, and reaching back
        WITH RECURSIVE arrow AS (
            SELECT a.s, a.t FROM unnest(source, target, kept) AS a (s, t, k) WHERE a.k
        ), forth (node) AS (SELECT start UNION SELECT a.t FROM forth f JOIN arrow a ON a.s = f.node
        ), back (node) AS (SELECT start UNION SELECT a.s FROM back b JOIN arrow a ON a.t = b.node)
        SELECT array_agg(node) INTO part FROM (SELECT node FROM forth INTERSECT SELECT node FROM back) AS nodes;
        seen := seen || part;
        SELECT array_agg(a.s), array_agg(a.t), array_agg(a.w) INTO part_source, part_target, part_shifts
          FROM unnest(source, target, shifts, kept) AS a (s, t, w, k)
         WHERE a.k AND a.s = ANY (part) AND a.t = ANY (part);
        CONTINUE WHEN part_source IS NULL;
        -- a microsecond per part's length: small enough not to matter, large enough to make a sum of 0 negative
        SELECT array_agg(w - 0.0000005), array_agg(-w - 0.0000005) INTO low, high FROM unnest(part_shifts) AS w;
        IF mill.has_cycle(n, part_source, part_target, low) AND mill.has_cycle(n, part_source, part_target, high) THEN
            PERFORM mill.refuse(format('the jobs %s form a cycle whose shifts add up to 0: a token would come back to the same job and time',
                (SELECT string_agg(format('"%s"', names[node]), ', ' ORDER BY names[node]) FROM unnest(part) AS node)),
                'Give an edge of the cycle a shift, such as 1 day, or remove one.');
        END IF;
    END LOOP;
END
$function$;

-- Cycles are looked for once per transaction, however many edges it has changed.
CREATE FUNCTION mill.edges_changed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM set_config('mill.edges_changed', 'yes', true);
    RETURN NULL;
END
$function$;
CREATE TRIGGER edges_changed AFTER INSERT OR UPDATE ON mill.edge FOR EACH STATEMENT EXECUTE FUNCTION mill.edges_changed();
-- An edge joins two jobs, or a timer and a job: its maker belongs to the owners of both ends.
CREATE FUNCTION mill.edge_holds() RETURNS trigger
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
    -- not of an edge that was only taken along by a renamed job: its maker may have left since
    IF TG_OP = 'UPDATE' AND (NEW.made_by, NEW.made_in) = (OLD.made_by, OLD.made_in) AND (NEW.job, NEW.from_job, NEW.from_timer)
            IS DISTINCT FROM (OLD.job, OLD.from_job, OLD.from_timer) THEN
        RETURN NULL;
    END IF;
    PERFORM mill_private.check_commander(e.made_by, format('job "%s"', j.name), j.owner);
    PERFORM mill_private.check_commander(e.made_by, format('job "%s"', s.name), s.owner) FROM mill.job s WHERE s.name = e.from_job;
    PERFORM mill_private.check_commander(e.made_by, format('timer "%s"', t.name), t.owner) FROM mill.timer t WHERE t.name = e.from_timer;
    PERFORM mill.check_schedule_or_edges(j);
    IF current_setting('mill.edges_changed', true) = 'yes' THEN
        PERFORM set_config('mill.edges_changed', '', true);
        PERFORM mill.check_cycles();
    END IF;
    RETURN NULL;
END
$function$;
CREATE FUNCTION mill.check_schedule_or_edges(j mill.job) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF (j.schedule_interval IS NOT NULL OR j.cron IS NOT NULL) AND EXISTS (SELECT FROM mill.edge WHERE job = j.name) THEN
        PERFORM mill.refuse(format('job "%s" has a schedule of its own and incoming edges: it can have one of them', j.name),
            'Put the schedule into mill.timer and an edge from there.');
    END IF;
END
$function$;
CREATE CONSTRAINT TRIGGER edge_holds AFTER INSERT OR UPDATE ON mill.edge DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mill.edge_holds();
CREATE FUNCTION mill.job_holds() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job;
BEGIN
    SELECT * INTO j FROM mill.job WHERE id = NEW.id;
    IF j.id IS NOT NULL THEN
        PERFORM mill.check_schedule_or_edges(j);
    END IF;
    RETURN NULL;
END
$function$;
-- To join a flow is to agree to its owner's commands, and to have a say in its pauses and limits: so the owner of the job belongs
-- to the owner of the flow. Judged at the end of the transaction, because the flow may come after the job.
CREATE FUNCTION mill_private.flow_joined() RETURNS trigger
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
CREATE CONSTRAINT TRIGGER flow_joined AFTER INSERT OR UPDATE OF flow, owner ON mill.job DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.flow IS NOT NULL) EXECUTE FUNCTION mill_private.flow_joined();
-- A flow that gets another owner: its jobs and timers have agreed to the commands of the old one.
CREATE FUNCTION mill_private.flow_given() RETURNS trigger
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
        RAISE EXCEPTION USING MESSAGE = format('flow "%s" cannot belong to %s: %s is in it, whose owner is not a member of that role',
            NEW.name, NEW.owner, part), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$function$;
CREATE CONSTRAINT TRIGGER flow_given AFTER UPDATE OF owner ON mill.flow DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.owner <> OLD.owner) EXECUTE FUNCTION mill_private.flow_given();
CREATE FUNCTION mill_private.timer_joined() RETURNS trigger
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
CREATE CONSTRAINT TRIGGER flow_joined AFTER INSERT OR UPDATE OF flow, owner ON mill.timer DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.flow IS NOT NULL) EXECUTE FUNCTION mill_private.timer_joined();
CREATE CONSTRAINT TRIGGER job_holds AFTER INSERT OR UPDATE OF name, schedule_interval, cron ON mill.job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.schedule_interval IS NOT NULL OR NEW.cron IS NOT NULL) EXECUTE FUNCTION mill.job_holds();
