-- The graph as users declare it: flows, timers, edges and back-fills.
-- Rows may be inserted in any order within a transaction: foreign keys are checked at its end. Every change wakes the keeper,
-- the one scheduler of the database that fires timers.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill.flow (
    name text PRIMARY KEY,
    paused bool NOT NULL DEFAULT false,
    parallel int,
    "window" int,
    keep interval,
    note text,
    owner name NOT NULL DEFAULT current_user
);
COMMENT ON TABLE mill.flow IS 'pgmill: flows: jobs that are drawn, paused and limited together';
COMMENT ON COLUMN mill.flow.name IS 'unique; jobs and timers name their flow by it';
COMMENT ON COLUMN mill.flow.paused IS 'no new starts: runs that have not begun are held, tokens wait';
COMMENT ON COLUMN mill.flow.parallel IS 'how many of its tasks may run at once; NULL: no limit';
COMMENT ON COLUMN mill.flow."window" IS 'how many logical times a back-fill may have open at once; NULL: no limit';
COMMENT ON COLUMN mill.flow.keep IS 'how long tokens and stashed values of a time are kept after its last change; NULL: a month';
COMMENT ON COLUMN mill.flow.note IS 'for people';
COMMENT ON COLUMN mill.flow.owner IS 'the role whose members may change and command it';
ALTER TABLE mill.job ADD CONSTRAINT job_flow_fkey FOREIGN KEY (flow) REFERENCES mill.flow (name)
    ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX ON mill.job (flow) WHERE flow IS NOT NULL;

CREATE TABLE mill.timer (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    flow text REFERENCES mill.flow (name) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED,
    start timestamptz NOT NULL,
    stop timestamptz,
    period interval,
    cron text,
    timezone text NOT NULL DEFAULT 'UTC',
    shift interval NOT NULL DEFAULT '0',
    catchup text NOT NULL DEFAULT 'last',
    catchup_age interval,
    enabled bool NOT NULL DEFAULT true,
    first timestamptz,
    last timestamptz,
    next timestamptz,
    due timestamptz,
    skipped bigint NOT NULL DEFAULT 0,
    trouble text,
    stale text DEFAULT 'new',
    revision int NOT NULL DEFAULT 0,
    owner name NOT NULL DEFAULT current_user
);
CREATE INDEX ON mill.timer (due, id) WHERE due IS NOT NULL;
CREATE INDEX ON mill.timer (id) WHERE stale IS NOT NULL;
COMMENT ON TABLE mill.timer IS 'pgmill: clocks; each of their logical times delivers a token along every edge that begins here';
COMMENT ON COLUMN mill.timer.id IS 'drawn by the catalog';
COMMENT ON COLUMN mill.timer.name IS 'unique; edges name timers by it';
COMMENT ON COLUMN mill.timer.flow IS 'the flow whose document it belongs to; a paused flow stops it';
COMMENT ON COLUMN mill.timer.start IS 'the first possible time; times are counted from here';
COMMENT ON COLUMN mill.timer.stop IS 'no time from here on';
COMMENT ON COLUMN mill.timer.period IS 'the k-th time is start + k * period in its zone; or cron';
COMMENT ON COLUMN mill.timer.cron IS 'five fields, or six with seconds, in its zone; or period';
COMMENT ON COLUMN mill.timer.timezone IS 'whose wall clock counts';
COMMENT ON COLUMN mill.timer.shift IS 'it fires at logical time + shift; may be negative';
COMMENT ON COLUMN mill.timer.catchup IS 'missed times: none, last (only the newest), or all of them: earliest, latest, random';
COMMENT ON COLUMN mill.timer.catchup_age IS 'missed times that are older than this are skipped';
COMMENT ON COLUMN mill.timer.enabled IS 'false: it does not fire';
COMMENT ON COLUMN mill.timer.first IS 'kept by the scheduler: the smallest logical time that it has fired';
COMMENT ON COLUMN mill.timer.last IS 'kept by the scheduler: the greatest logical time that it has fired';
COMMENT ON COLUMN mill.timer.next IS 'kept by the scheduler: the logical time that comes next; NULL when none is left';
COMMENT ON COLUMN mill.timer.due IS 'kept by the scheduler: when that time fires; NULL when none is left, or disabled';
COMMENT ON COLUMN mill.timer.skipped IS 'kept by the scheduler: missed times that were left out';
COMMENT ON COLUMN mill.timer.trouble IS 'kept by the scheduler: why it cannot be served';
COMMENT ON COLUMN mill.timer.stale IS 'its next time is to be computed: new, or edited';
COMMENT ON COLUMN mill.timer.revision IS 'rises with every edit';
COMMENT ON COLUMN mill.timer.owner IS 'the role whose members may change and fire it';

CREATE TABLE mill.edge (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job text NOT NULL REFERENCES mill.job (name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    from_job text REFERENCES mill.job (name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    from_timer text REFERENCES mill.timer (name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    "on" text NOT NULL DEFAULT 'success',
    shift interval NOT NULL DEFAULT '0',
    first bool NOT NULL DEFAULT false,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    made_by name NOT NULL DEFAULT current_user
);
CREATE UNIQUE INDEX edge_once ON mill.edge (job, COALESCE(from_job, ''), COALESCE(from_timer, ''), "on", shift);
CREATE INDEX ON mill.edge (from_job) WHERE from_job IS NOT NULL;
CREATE INDEX ON mill.edge (from_timer) WHERE from_timer IS NOT NULL;
COMMENT ON TABLE mill.edge IS 'pgmill: arrows from a timer or a job to a job';
COMMENT ON COLUMN mill.edge.id IS 'drawn by the catalog';
COMMENT ON COLUMN mill.edge.job IS 'the job that gets the token';
COMMENT ON COLUMN mill.edge.from_job IS 'the job whose end delivers; or from_timer';
COMMENT ON COLUMN mill.edge.from_timer IS 'the timer whose times deliver; or from_job';
COMMENT ON COLUMN mill.edge."on" IS 'which end of from_job delivers: success, failure, or done (either)';
COMMENT ON COLUMN mill.edge.shift IS 'the token lands at logical time + shift; 1 day: depends on the day before';
COMMENT ON COLUMN mill.edge.first IS 'the edge counts as delivered where the time of its source would lie before the first one';
COMMENT ON COLUMN mill.edge.made IS 'when it was inserted or changed';
COMMENT ON COLUMN mill.edge.made_in IS 'the transaction that made it: a timer that fires knows the edge if that transaction has ended by then';
COMMENT ON COLUMN mill.edge.made_by IS 'the role that inserted or changed it last';

CREATE TABLE mill.backfill (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    timer text NOT NULL REFERENCES mill.timer (name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    lo timestamptz NOT NULL,
    hi timestamptz NOT NULL,
    "order" text NOT NULL DEFAULT 'earliest',
    paused bool NOT NULL DEFAULT false,
    fired bigint NOT NULL DEFAULT 0,
    at timestamptz,
    span int NOT NULL DEFAULT 0,
    pos int NOT NULL DEFAULT 0,
    finished timestamptz,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by name NOT NULL DEFAULT current_user,
    start timestamptz,
    period interval,
    cron text,
    timezone text,
    trouble text
);
CREATE INDEX ON mill.backfill (id) WHERE finished IS NULL;
COMMENT ON TABLE mill.backfill IS 'pgmill: ranges of past times that a timer fires, a few at once, behind live work';
COMMENT ON COLUMN mill.backfill.id IS 'drawn by the catalog';
COMMENT ON COLUMN mill.backfill.timer IS 'the timer whose times are fired';
COMMENT ON COLUMN mill.backfill.lo IS 'from this logical time on';
COMMENT ON COLUMN mill.backfill.hi IS 'up to this logical time, exclusive';
COMMENT ON COLUMN mill.backfill."order" IS 'earliest, latest or random first';
COMMENT ON COLUMN mill.backfill.paused IS 'true: it does not go on';
COMMENT ON COLUMN mill.backfill.fired IS 'how many times have been fired';
COMMENT ON COLUMN mill.backfill.at IS 'the time that was fired last';
COMMENT ON COLUMN mill.backfill.span IS 'how far it has come: the range is cut into spans, and this one is next';
COMMENT ON COLUMN mill.backfill.pos IS 'how far it has come: so many times of that span are fired';
COMMENT ON COLUMN mill.backfill.finished IS 'when its last time was fired';
COMMENT ON COLUMN mill.backfill.made IS 'when it was inserted';
COMMENT ON COLUMN mill.backfill.made_by IS 'the role that inserted it';
COMMENT ON COLUMN mill.backfill.start IS 'the timer''s schedule when the back-fill was inserted, with period, cron and timezone';
COMMENT ON COLUMN mill.backfill.period IS 'the period of the timer when the back-fill was inserted';
COMMENT ON COLUMN mill.backfill.cron IS 'the cron expression of the timer when the back-fill was inserted';
COMMENT ON COLUMN mill.backfill.timezone IS 'the time zone of the timer when the back-fill was inserted';
COMMENT ON COLUMN mill.backfill.trouble IS 'why it cannot go on';

-- The wake-up lock of the keeper has the key 0.
CREATE FUNCTION mill_private.wake_keeper() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill_private.wake_scheduler(0);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.wake_keeper() IS 'pgmill: wakes the keeper of the graph up after a change';
CREATE TRIGGER wake_keeper AFTER INSERT OR UPDATE OR DELETE ON mill.flow FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();
CREATE TRIGGER wake_keeper AFTER INSERT OR UPDATE OF name, flow, start, stop, period, cron, timezone, shift, catchup, catchup_age,
    enabled OR DELETE ON mill.timer FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();
CREATE TRIGGER wake_keeper AFTER INSERT OR UPDATE OR DELETE ON mill.edge FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();
CREATE TRIGGER wake_keeper AFTER INSERT OR UPDATE OF lo, hi, "order", paused OR DELETE ON mill.backfill FOR EACH STATEMENT
    EXECUTE FUNCTION mill_private.wake_keeper();

CREATE TRIGGER wake_keeper AFTER UPDATE OF clock ON mill.meta FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();

-- Runs as the writer.
CREATE FUNCTION mill_private.check_flow() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM mill_private.check_member(format('flow "%s"', OLD.name), OLD.owner);
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    PERFORM mill_private.check_member(format('flow "%s"', NEW.name), NEW.owner);
    PERFORM mill_private.check_name('flow', NEW.name);
    IF NEW.parallel < 1 THEN
        PERFORM mill_private.raise_violation(format('parallel of flow "%s" must be at least 1; NULL means no limit', NEW.name));
    ELSIF NEW."window" < 1 THEN
        PERFORM mill_private.raise_violation(format('window of flow "%s" must be at least 1; NULL means no limit', NEW.name));
    ELSIF NEW.keep <= interval '0' THEN
        PERFORM mill_private.raise_violation(format('keep of flow "%s" must be more than 0', NEW.name));
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.check_flow() IS 'pgmill: checks a flow and the rights of its writer';
CREATE TRIGGER changes BEFORE INSERT OR UPDATE OR DELETE ON mill.flow FOR EACH ROW EXECUTE FUNCTION mill_private.check_flow();

-- Runs as the writer. A change has the next time computed anew. Past times are never fired again; only a start that moves back
-- brings the new range, as a back-fill (`backfill_moved_timer`).
CREATE FUNCTION mill_private.check_timer() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    reason text;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM mill_private.check_member(format('timer "%s"', OLD.name), OLD.owner);
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    PERFORM mill_private.check_member(format('timer "%s"', NEW.name), NEW.owner);
    PERFORM mill_private.check_name('timer', NEW.name);
    NEW.start := COALESCE(NEW.start, date_trunc('second', mill.now()));
    reason := CASE
        WHEN (NEW.period IS NULL) = (NEW.cron IS NULL) THEN 'needs either a period or a cron expression'
        WHEN NEW.period <= interval '0' THEN format('has a period of %s: it must be more than 0', NEW.period)
        WHEN NEW.period < interval '1 ms' THEN 'has a period of less than a millisecond'
        WHEN NOT isfinite(NEW.start) THEN 'needs a finite start'
        WHEN NEW.stop <= NEW.start THEN 'stops before it starts'
        WHEN NEW.catchup NOT IN ('none', 'last', 'earliest', 'latest', 'random')
            THEN format('has the unknown catchup "%s": use none, last, earliest, latest or random', NEW.catchup)
        WHEN NEW.catchup_age <= interval '0' THEN 'has a catchup_age that is not more than 0'
        ELSE COALESCE(mill.check_zone(NEW.timezone), mill.check_step(NEW.period), mill.check_cron(NEW.cron)) END;
    IF reason IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('timer "%s" %s', NEW.name, reason));
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.stale := 'new';
        NEW.revision := 0;
        NEW.first := NULL; NEW.last := NULL; NEW.next := NULL; NEW.due := NULL; NEW.skipped := 0; NEW.trouble := NULL;
    ELSIF (NEW.start, NEW.stop, NEW.period, NEW.cron, NEW.timezone, NEW.shift, NEW.enabled)
            IS DISTINCT FROM (OLD.start, OLD.stop, OLD.period, OLD.cron, OLD.timezone, OLD.shift, OLD.enabled) THEN
        NEW.stale := COALESCE(OLD.stale, 'edited');
        NEW.revision := OLD.revision + 1;
        NEW.next := NULL; NEW.due := NULL; NEW.trouble := NULL;
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.check_timer() IS 'pgmill: checks a timer and the rights of its writer';
CREATE TRIGGER changes BEFORE INSERT OR DELETE OR UPDATE OF name, flow, start, stop, period, cron, timezone, shift, catchup,
    catchup_age, enabled, owner ON mill.timer FOR EACH ROW EXECUTE FUNCTION mill_private.check_timer();

CREATE FUNCTION mill_private.backfill_moved_timer() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    hi timestamptz := LEAST(OLD.start, mill.now() - NEW.shift);
BEGIN
    IF OLD.stale IS DISTINCT FROM 'new' AND NEW.catchup <> 'none' AND NEW.start < hi THEN
        INSERT INTO mill.backfill (timer, lo, hi, "order")
        VALUES (NEW.name, GREATEST(NEW.start, mill.now() - NEW.shift - NEW.catchup_age), hi,
                CASE NEW.catchup WHEN 'last' THEN 'earliest' ELSE NEW.catchup END);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.backfill_moved_timer() IS
    'pgmill: a timer whose start moves back gets a back-fill of the new range';
CREATE TRIGGER moved AFTER UPDATE OF start ON mill.timer FOR EACH ROW WHEN (NEW.start < OLD.start)
    EXECUTE FUNCTION mill_private.backfill_moved_timer();

-- Runs as the writer. The writer's rights on both ends are checked at the end of the transaction (`check_edge_at_commit`).
CREATE FUNCTION mill_private.check_edge() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    reason text;
BEGIN
    -- A renamed job or timer renames the ends of its edges: the foreign key does that as the catalog's owner, and the writers of the
    -- edges stay the same.
    IF TG_OP = 'UPDATE' AND pg_trigger_depth() > 1
            AND current_user = (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'mill') THEN
        RETURN NEW;
    END IF;
    NEW.made_by := current_user;
    reason := CASE
        WHEN NEW.job IS NULL THEN 'an edge needs a job'
        WHEN (NEW.from_job IS NULL) = (NEW.from_timer IS NULL)
            THEN format('an edge to job "%s" needs either from_job or from_timer', NEW.job)
        WHEN NEW."on" NOT IN ('success', 'failure', 'done')
            THEN format('on of an edge must be success, failure or done, not "%s"', NEW."on")
        WHEN NEW.from_timer IS NOT NULL AND NEW."on" <> 'success'
            THEN format('an edge from timer "%s" must be on success: a timer does not fail', NEW.from_timer) END;
    IF reason IS NOT NULL THEN
        PERFORM mill_private.raise_violation(reason);
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.job, NEW.from_job, NEW.from_timer, NEW."on", NEW.shift)
            IS DISTINCT FROM (OLD.job, OLD.from_job, OLD.from_timer, OLD."on", OLD.shift) THEN
        NEW.made := clock_timestamp();
        NEW.made_in := pg_current_xact_id();
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.check_edge() IS 'pgmill: checks an edge and notes its writer';
CREATE TRIGGER changes BEFORE INSERT OR UPDATE ON mill.edge FOR EACH ROW EXECUTE FUNCTION mill_private.check_edge();

-- Runs as the writer, who sees the timers of its own roles.
CREATE FUNCTION mill_private.check_backfill() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    t mill.timer;
BEGIN
    SELECT * INTO t FROM mill.timer WHERE name = CASE TG_OP WHEN 'DELETE' THEN OLD.timer ELSE NEW.timer END;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    ELSIF t.id IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = format('timer "%s" does not exist, or you are not a member of its owner', NEW.timer), ERRCODE = 'foreign_key_violation';
    ELSE
        PERFORM mill_private.check_member(format('timer "%s"', t.name), t.owner);
    END IF;
    IF NEW.lo IS NULL OR NEW.hi IS NULL OR NOT isfinite(NEW.lo) OR NOT isfinite(NEW.hi) OR NEW.lo >= NEW.hi THEN
        PERFORM mill_private.raise_violation(format('a back-fill of timer "%s" needs a range from lo up to a later hi', NEW.timer));
    ELSIF NEW."order" NOT IN ('earliest', 'latest', 'random') THEN
        PERFORM mill_private.raise_violation(format('order of a back-fill must be earliest, latest or random, not "%s"', NEW."order"));
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.fired := 0; NEW.at := NULL; NEW.span := 0; NEW.pos := 0; NEW.finished := NULL; NEW.trouble := NULL;
        NEW.made_by := current_user;
        NEW.start := t.start; NEW.period := t.period; NEW.cron := t.cron; NEW.timezone := t.timezone;
    ELSIF (NEW.lo, NEW.hi, NEW."order", NEW.timer) IS DISTINCT FROM (OLD.lo, OLD.hi, OLD."order", OLD.timer) AND NEW.timer = OLD.timer THEN
        PERFORM mill_private.raise_violation('a back-fill that has begun cannot be moved', 'Delete it and insert another one.');
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.check_backfill() IS 'pgmill: checks a back-fill and the rights of its writer';
CREATE TRIGGER changes BEFORE INSERT OR DELETE OR UPDATE OF timer, lo, hi, "order", paused ON mill.backfill FOR EACH ROW
    EXECUTE FUNCTION mill_private.check_backfill();

ALTER TABLE mill.flow ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_owner ON mill.flow USING (mill_private.is_member(owner)) WITH CHECK (mill_private.is_member(owner));
ALTER TABLE mill.timer ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_owner ON mill.timer USING (mill_private.is_member(owner)) WITH CHECK (mill_private.is_member(owner));
-- An edge may be inserted before its job, so the right to it is checked at the end of the transaction.
ALTER TABLE mill.edge ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_job ON mill.edge USING (EXISTS (SELECT FROM mill.job j WHERE j.name = edge.job)) WITH CHECK (true);
ALTER TABLE mill.backfill ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_timer ON mill.backfill USING (EXISTS (SELECT FROM mill.timer t WHERE t.name = backfill.timer)) WITH CHECK (true);
