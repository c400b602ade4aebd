//! A queue's owner arms his table with code of his own. Whoever calls whatever of the catalog, and whatever runs: that code
//! runs in sessions of the queue's user, as the queue's user.

use crate::queries::one;
use crate::trap_calls::sweep;
use crate::trap_corpus::{Trap, spring_all, trap};
use crate::trap_stage::{CatalogOf, Stage};

const SUPERUSER: &[CatalogOf] = &[CatalogOf::Superuser];
const BOTH: &[CatalogOf] = &[CatalogOf::Superuser, CatalogOf::Application];

const ROW: Trap = trap(
    "row triggers",
    "CREATE TRIGGER a_before BEFORE INSERT OR UPDATE OR DELETE ON evil.task FOR EACH ROW EXECUTE FUNCTION evil.tg();
     CREATE TRIGGER z_after AFTER INSERT OR UPDATE OR DELETE ON evil.task FOR EACH ROW EXECUTE FUNCTION evil.tg()",
);
const STATEMENT: Trap = trap(
    "statement triggers",
    "CREATE TRIGGER a_before BEFORE INSERT OR UPDATE OR DELETE ON evil.task FOR EACH STATEMENT EXECUTE FUNCTION evil.tg();
     CREATE TRIGGER z_after AFTER INSERT OR UPDATE OR DELETE ON evil.task FOR EACH STATEMENT EXECUTE FUNCTION evil.tg();
     CREATE TRIGGER b_emptied BEFORE TRUNCATE ON evil.task FOR EACH STATEMENT EXECUTE FUNCTION evil.tg()",
);
const DEFERRED: Trap = trap(
    "a deferred constraint trigger",
    "CREATE CONSTRAINT TRIGGER d AFTER INSERT OR UPDATE OR DELETE ON evil.task DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION evil.tg()",
);
const POLICY: Trap = trap(
    "row security",
    "ALTER TABLE evil.task ENABLE ROW LEVEL SECURITY; ALTER TABLE evil.task FORCE ROW LEVEL SECURITY;
     CREATE POLICY p ON evil.task USING (evil.n('using')) WITH CHECK (evil.n('check'))",
)
.unserved();
/// It is for others: the owner of a table is not subject to it.
const POLICY_FOR_OTHERS: Trap = trap(
    "row security that spares the owner",
    "ALTER TABLE evil.task ENABLE ROW LEVEL SECURITY;
     CREATE POLICY p ON evil.task USING (evil.n('using')) WITH CHECK (evil.n('check'))",
)
.for_others();
const PREDICATE: Trap = trap("an index predicate", "CREATE INDEX ON evil.task (id) WHERE evil.ni('predicate')");
/// A copy of the table that can be changed more than one with triggers, renamed into its place.
macro_rules! swapped {
    ($change:literal) => {
        concat!(
            "CREATE TABLE evil.task2 (LIKE evil.task INCLUDING ALL); ",
            $change,
            "; ALTER TABLE evil.task RENAME TO task_was; ALTER TABLE evil.task2 RENAME TO task; \
             GRANT SELECT, INSERT ON evil.task TO PUBLIC"
        )
    };
}

#[test]
fn triggers_of_a_queues_owner_run_as_its_queues_user_alone() {
    spring_all(&[ROW, STATEMENT, DEFERRED], SUPERUSER);
}

#[test]
fn row_security_of_a_queues_owner_runs_as_its_queues_user_alone() {
    spring_all(&[POLICY, POLICY_FOR_OTHERS], SUPERUSER);
}

#[test]
fn a_catalog_of_the_application_protects_the_application_from_another_queues_owner() {
    spring_all(&[ROW, POLICY_FOR_OTHERS, PREDICATE], &[CatalogOf::Application]);
}

#[test]
fn checks_defaults_and_generated_columns_run_as_the_queues_user_alone() {
    let traps = [
        trap("a check", "ALTER TABLE evil.task ADD CHECK (evil.ni('check'))"),
        trap("a default", "ALTER TABLE evil.task ALTER data SET DEFAULT (CASE WHEN evil.ni('default') THEN NULL END)"),
        trap(
            "a generated column",
            "ALTER TABLE evil.task ADD g bool GENERATED ALWAYS AS (evil.ni('generated')) STORED",
        ),
    ];
    spring_all(&traps, SUPERUSER);
}

#[test]
fn index_expressions_predicates_and_statistics_run_as_the_queues_user_alone() {
    let traps = [
        trap("an index expression", "CREATE INDEX ON evil.task ((evil.ni('expression' || left(\"group\", 0))))"),
        PREDICATE,
        trap(
            "statistics",
            "CREATE STATISTICS evil.s ON (evil.ni('statistics') AND id > 0) FROM evil.task; ANALYZE evil.task",
        ),
    ];
    spring_all(&traps, SUPERUSER);
}

#[test]
fn casts_and_domains_of_a_tables_types_run_as_the_queues_user_alone() {
    let traps = [
        trap(
            "a cast of the state to text",
            "CREATE FUNCTION evil.c(evil.state) RETURNS text LANGUAGE plpgsql AS
                 'BEGIN PERFORM evil.n(''cast''); RETURN enum_range($1, $1)::text::text[]; END';
             CREATE OR REPLACE FUNCTION evil.c(evil.state) RETURNS text LANGUAGE plpgsql AS
                 'BEGIN PERFORM evil.n(''cast''); RETURN btrim(enum_range($1, $1)::text, ''{}''); END';
             CREATE CAST (evil.state AS text) WITH FUNCTION evil.c(evil.state) AS ASSIGNMENT",
        ),
        trap(
            "domains for reason, error and output",
            swapped!(
                "CREATE DOMAIN evil.words AS text CHECK (evil.n('domain'));
                 ALTER TABLE evil.task2 ALTER reason TYPE evil.words, ALTER error TYPE evil.words, ALTER output TYPE evil.words"
            ),
        )
        .unserved(),
        trap(
            "a job number and a time with casts of their own",
            swapped!(
                "CREATE TYPE evil.number AS (n int); CREATE TYPE evil.moment AS (t timestamptz);
                 CREATE FUNCTION evil.to_int(evil.number) RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM evil.n(''job''); RETURN $1.n; END';
                 CREATE FUNCTION evil.of_int(int) RETURNS evil.number LANGUAGE plpgsql AS 'BEGIN PERFORM evil.n(''job''); RETURN ROW($1); END';
                 CREATE FUNCTION evil.to_time(evil.moment) RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN PERFORM evil.n(''at''); RETURN $1.t; END';
                 CREATE FUNCTION evil.of_time(timestamptz) RETURNS evil.moment LANGUAGE plpgsql AS 'BEGIN PERFORM evil.n(''at''); RETURN ROW($1); END';
                 CREATE CAST (evil.number AS int) WITH FUNCTION evil.to_int(evil.number) AS IMPLICIT;
                 CREATE CAST (int AS evil.number) WITH FUNCTION evil.of_int(int) AS ASSIGNMENT;
                 CREATE CAST (evil.moment AS timestamptz) WITH FUNCTION evil.to_time(evil.moment) AS IMPLICIT;
                 CREATE CAST (timestamptz AS evil.moment) WITH FUNCTION evil.of_time(timestamptz) AS ASSIGNMENT;
                 ALTER TABLE evil.task2 DROP job, DROP at; ALTER TABLE evil.task2 ADD job evil.number, ADD at evil.moment"
            ),
        )
        .unserved()
        .for_others()
        ,    ];
    spring_all(&traps, SUPERUSER);
}

#[test]
fn rules_of_a_queues_owner_run_as_its_queues_user_and_make_no_second_run() {
    let traps = [
        trap("a rule on INSERT", "CREATE RULE r AS ON INSERT TO evil.task DO ALSO SELECT evil.n('rule')").unserved(),
        trap("a rule on UPDATE", "CREATE RULE r AS ON UPDATE TO evil.task DO ALSO SELECT evil.n('rule')").unserved(),
    ];
    spring_all(&traps, SUPERUSER);
}

#[test]
fn what_is_put_in_the_place_of_a_task_table_harms_its_owner_alone() {
    let traps = [
        trap(
            "another table",
            swapped!("CREATE TRIGGER a BEFORE INSERT OR UPDATE ON evil.task2 FOR EACH ROW EXECUTE FUNCTION evil.tg()"),
        ),
        trap(
            "a table with partitions by a key of his own",
            "ALTER TABLE evil.task RENAME TO task_was;
             CREATE TABLE evil.task (LIKE evil.task_was INCLUDING DEFAULTS INCLUDING GENERATED)
                 PARTITION BY LIST ((evil.ni('key' || left(\"group\", 0))));
             CREATE TABLE evil.part PARTITION OF evil.task DEFAULT; GRANT SELECT, INSERT ON evil.task TO PUBLIC",
        )
        .unserved(),
        trap(
            "a child table with code of its own",
            "CREATE TABLE evil.child () INHERITS (evil.task);
             ALTER TABLE evil.child ADD CHECK (evil.ni('child'));
             CREATE INDEX ON evil.child (id) WHERE evil.ni('index of a child')",
        )
        .for_others(),
        trap(
            "a child that is a foreign table",
            "CREATE FOREIGN TABLE evil.child () INHERITS (evil.task) SERVER evil_dummy",
        )
        .prepared_by_superuser(
            "CREATE FOREIGN DATA WRAPPER evil_dummy; CREATE SERVER evil_dummy FOREIGN DATA WRAPPER evil_dummy; \
             GRANT USAGE ON FOREIGN SERVER evil_dummy TO EVIL",
        )
        .unserved()
        .for_others(),
        trap(
            "a view with triggers",
            "ALTER TABLE evil.task RENAME TO task_was;
             CREATE VIEW evil.task AS SELECT * FROM evil.task_was WHERE evil.n('view');
             CREATE TRIGGER a INSTEAD OF INSERT OR UPDATE OR DELETE ON evil.task FOR EACH ROW EXECUTE FUNCTION evil.tg();
             GRANT SELECT, INSERT ON evil.task TO PUBLIC",
        )
        .unserved()
        .late(),
    ];
    spring_all(&traps, SUPERUSER);
}

/// A trigger function that does something to the session of anybody but evil.
macro_rules! body {
    ($does:literal) => {
        concat!(
            "CREATE FUNCTION evil.harm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF session_user <> pg_get_userbyid((SELECT nspowner FROM pg_namespace WHERE nspname = 'evil')) THEN ",
            $does,
            "; END IF; RETURN COALESCE(NEW, OLD); END $$;
             CREATE TRIGGER a_harm BEFORE INSERT OR UPDATE OR DELETE ON evil.task FOR EACH STATEMENT EXECUTE FUNCTION evil.harm()"
        )
    };
}

#[test]
fn code_of_a_queues_owner_never_meets_the_session_of_anybody_else() {
    let traps = [
        trap("a search_path that stays", body!("PERFORM set_config('search_path', 'evil', false)")),
        trap(
            "a temporary view",
            body!("EXECUTE 'CREATE OR REPLACE TEMP VIEW job AS SELECT evil.n(''temporary view'') AS n'"),
        ),
        trap("a prepared statement", body!("EXECUTE 'PREPARE evil AS SELECT evil.n(''prepared'')'")),
        trap("a role that is put back", body!("EXECUTE 'RESET ROLE'; PERFORM evil.n('reset role')")),
        trap("an endless loop", body!("LOOP PERFORM pg_sleep(0.01); END LOOP")),
        trap("an error", body!("RAISE EXCEPTION 'not for you'")),
    ];
    spring_all(&traps.map(Trap::for_others), SUPERUSER);
}

#[test]
fn functions_of_the_queues_schema_that_lose_their_definer_run_as_its_queues_user_alone() {
    let traps = [trap(
        "our functions in his schema, changed by him",
        "DO $do$ DECLARE f regprocedure; BEGIN
             FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'evil'::regnamespace AND p.proname LIKE 'mill%' LOOP
                 EXECUTE format('ALTER FUNCTION %s SECURITY INVOKER', f);
                 EXECUTE format('ALTER FUNCTION %s RESET ALL', f);
             END LOOP;
             FOR f IN SELECT DISTINCT t.tgfoid FROM pg_trigger t WHERE t.tgrelid = 'evil.task'::regclass AND NOT t.tgisinternal
                         AND (t.tgtype & 1) = 1 AND t.tgfoid IN (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'evil'::regnamespace) LOOP
                 EXECUTE format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE ON evil.task FOR EACH ROW EXECUTE FUNCTION evil.tg()',
                                'a ' || f::oid);
             END LOOP;
         END $do$",
    )
    .late()];
    spring_all(&traps, BOTH);
}

/// Whatever evil may call and whatever its jobs do, its trigger fires as itself alone.
#[track_caller]
fn gains_nothing(catalog: CatalogOf, gain: &str, gained: &str) {
    let stage = Stage::new(catalog);
    let mill = stage.serve();
    let place = |text: &str| text.replace("EVIL", &stage.evil);
    stage.say(
        &stage.evil,
        &place(&format!(
            "CREATE FUNCTION evil.gain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {gain}; RETURN NULL;
                 EXCEPTION WHEN insufficient_privilege THEN RETURN NULL; END $$;
             CREATE TRIGGER gain BEFORE INSERT OR UPDATE ON evil.task FOR EACH STATEMENT EXECUTE FUNCTION evil.gain()"
        )),
    );
    let mut evil = stage.session(&stage.evil);
    let _ = evil.batch_execute("SELECT * FROM mill.s_start('evil.task'::regclass, 1, now())");
    let sql = "INSERT INTO mill.job (name, input, queue) VALUES ('own', 'INSERT INTO evil.ran VALUES (''own'')', 'evil.task')";
    evil.batch_execute(sql).expect("a job of its own");
    evil.batch_execute("SELECT mill.run_job((SELECT id FROM mill.job WHERE name = 'own'))").expect("run_job");
    mill.eventually("its job has run", || one::<i64>(&stage.database, "SELECT count(*) FROM evil.ran") == 1);
    sweep(&stage, &stage.evil, &stage.evil);
    assert!(!one::<bool>(&stage.database, &place(gained)), "evil has gained what it wanted");
    drop(mill);
}

#[test]
fn a_trigger_that_makes_its_owner_a_superuser_when_it_may_never_may() {
    gains_nothing(
        CatalogOf::Superuser,
        "IF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN ALTER ROLE \"EVIL\" SUPERUSER; END IF",
        "SELECT rolsuper FROM pg_roles WHERE rolname = 'EVIL'",
    );
}

#[test]
fn a_trigger_that_inserts_into_the_applications_queue_when_it_may_never_may() {
    gains_nothing(
        CatalogOf::Application,
        "INSERT INTO public.task (input, plan) VALUES ('SELECT ''planted''', now() + interval '1 day')",
        "SELECT EXISTS (SELECT FROM public.task WHERE input LIKE '%planted%')",
    );
}

#[test]
fn a_check_of_the_config_runs_as_the_jobs_owner_alone() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let (app, evil, _) = stage.idents();
    stage.say(
        &stage.evil,
        "CREATE FUNCTION evil.check_it(config jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM evil.n(''check_config''); END';
         INSERT INTO mill.job (name, input, queue, config, check_config) VALUES ('own', 'SELECT 1', 'evil.task', '{}', 'evil.check_it')",
    );
    assert!(one::<i64>(&stage.database, "SELECT count(*) FROM evil.caught") > 0, "the check ran for its owner");
    // somebody who is a member of evil is not evil
    stage.database.run(&format!("GRANT {evil} TO {app}"));
    for role in ["postgres", stage.database.owner()] {
        for change in [
            "UPDATE mill.job SET config = '{\"a\": 1}' WHERE name = 'own'",
            "SELECT mill.alter_job(id, config => '{\"a\": 2}') FROM mill.job WHERE name = 'own'",
            "UPDATE mill.job SET check_config = 'evil.check_it', config = '{\"a\": 3}' WHERE name = 'own'",
            "UPDATE mill.job SET priority = 1 WHERE name = 'own'",
        ] {
            // refused or not: the check does not run
            let _ = stage.session(role).batch_execute(change);
        }
    }
    stage.database.run(&format!("REVOKE {evil} FROM {app}"));
    drop(mill);
    let faults = stage.faults();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// What the others find is not of their own making.
#[test]
fn without_a_trap_nothing_is_found() {
    spring_all(&[trap("no trap", "SELECT 1").for_others()], BOTH);
}
