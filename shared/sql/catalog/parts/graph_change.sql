-- What a change of a job, a flow or an edge does to tokens and runs.
-- parameters: none; locks: none; caller: installation, once per database

CREATE FUNCTION mill_private.reconsider_tokens(job_ids int[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    t mill.token;
    j mill.job;
    done int := 0;
BEGIN
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT n.flow) FROM mill.job n WHERE n.id = ANY (job_ids)));
    FOR t IN SELECT * FROM mill.token k WHERE k.job = ANY (job_ids) AND k.since IS NOT NULL ORDER BY k.job, k.at FOR UPDATE LOOP
        SELECT * INTO j FROM mill.job n WHERE n.id = t.job;
        done := done + mill_private.consume_tokens(t, j);
    END LOOP;
    RETURN done;
END
$function$;
COMMENT ON FUNCTION mill_private.reconsider_tokens(int[]) IS
    'pgmill: activates jobs that are ready after a change of the graph or a resume';

CREATE FUNCTION mill_private.forget_edge_tokens() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    target int := (SELECT j.id FROM mill.job j WHERE j.name = OLD.job);
BEGIN
    IF target IS NULL OR EXISTS (SELECT FROM mill.edge WHERE id = OLD.id) THEN
        RETURN NULL;
    END IF;
    UPDATE mill.token k SET waiting = array_remove(k.waiting, OLD.id), delivered = array_remove(k.delivered, OLD.id),
           consumed = array_remove(k.consumed, OLD.id), since = CASE WHEN array_remove(k.waiting, OLD.id) <> '{}' THEN k.since END
     WHERE k.job = target AND k.delivered @> ARRAY[OLD.id];
    PERFORM mill_private.reconsider_tokens(ARRAY[target]);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.forget_edge_tokens() IS
    'pgmill: a deleted edge takes its tokens along; the rest may be enough for an activation';
CREATE CONSTRAINT TRIGGER edge_gone AFTER DELETE ON mill.edge DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mill_private.forget_edge_tokens();

CREATE FUNCTION mill_private.reconsider_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM mill.token WHERE job = OLD.id;
    ELSE
        IF EXISTS (SELECT FROM mill.token k WHERE k.job = NEW.id AND k.since IS NOT NULL) THEN
            PERFORM mill_private.reconsider_tokens(ARRAY[NEW.id]);
        END IF;
        IF NEW.flow IS NOT NULL THEN
            PERFORM mill_private.release_flow_runs(NEW.flow);
        END IF;
        -- 0 is the keeper
        PERFORM mill_private.wake_scheduler(0);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.reconsider_job() IS
    'pgmill: after a change of threshold, flow or pause, checks the waiting tokens again; a deleted job takes its tokens along';
CREATE TRIGGER reconsidered AFTER DELETE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.reconsider_job();
CREATE CONSTRAINT TRIGGER reconsider AFTER UPDATE OF threshold, scheduled, flow ON mill.job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.threshold IS DISTINCT FROM OLD.threshold OR NEW.flow IS DISTINCT FROM OLD.flow OR (NEW.scheduled AND NOT OLD.scheduled))
    EXECUTE FUNCTION mill_private.reconsider_job();

-- Pausing holds the runs that have not begun. Resuming releases those that are due, and activates jobs whose tokens are ready. A
-- higher `parallel` releases more runs.
CREATE FUNCTION mill_private.follow_flow_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    jobs int[] := (SELECT array_agg(j.id ORDER BY j.id) FROM mill.job j WHERE j.flow = NEW.name);
BEGIN
    PERFORM mill_private.lock_flows(ARRAY[NEW.name], true);
    IF jobs IS NULL THEN
        RETURN NULL;
    ELSIF NEW.paused AND NOT OLD.paused THEN
        PERFORM mill_private.hold_runs(jobs, true);
    ELSIF NOT NEW.paused THEN
        PERFORM mill_private.release_flow_runs(NEW.name);
        IF OLD.paused THEN
            PERFORM mill_private.reconsider_tokens(jobs);
        END IF;
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.follow_flow_change() IS
    'pgmill: holds or releases the runs of a flow when it is paused, resumed or limited otherwise';
CREATE TRIGGER follow AFTER UPDATE OF paused, parallel ON mill.flow FOR EACH ROW
    WHEN (NEW.paused <> OLD.paused OR NEW.parallel IS DISTINCT FROM OLD.parallel) EXECUTE FUNCTION mill_private.follow_flow_change();
