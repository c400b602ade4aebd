//! People who share a catalog or a database and nothing else: whose runs they see, what they may join, and whose catalog
//! nobody uses.

use std::time::Duration;

use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::asking::{all, linger, one};
use crate::trap_stage::{CatalogOf, Stage};

/// Runs a job to its end as its owner; its number.
#[track_caller]
fn run_once(stage: &Stage, mill: &Supervisor<'_>, role: &str, name: &str) -> i32 {
    let mut client = stage.session(role);
    let sql = "INSERT INTO mill.job (name, input, queue) VALUES ($1, 'SELECT ''secret''', 'public.task') RETURNING id";
    let job: i32 = client.query_one(sql, &[&name]).expect("a job").get(0);
    client.execute("SELECT mill.run_job($1)", &[&job]).expect("run_job");
    let ended = "SELECT COALESCE((SELECT s.total_successes FROM mill.job_stat s WHERE s.job = $1), 0)::bigint";
    mill.eventually("it has run", || {
        stage.database.look(ended, &[&job]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 1)
    });
    job
}

/// Everything of a job's past that a role sees.
fn past(stage: &Stage, role: &str, job: i32) -> Vec<String> {
    let mut client = stage.session(role);
    let sql = "SELECT concat('run ', r::text) FROM mill.run r WHERE r.job = $1 \
               UNION ALL SELECT concat(s.total_runs, ' runs') FROM mill.job_stat s WHERE s.job = $1 AND s.total_runs <> 0";
    client.query(sql, &[&job]).expect("he may look").iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_jobs_number_cannot_be_chosen_and_runs_of_a_deleted_job_are_shown_to_nobody_else() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let hers = run_once(&stage, &mill, &stage.member, "hers");
    stage.say(&stage.member, &format!("SELECT mill.delete_job({hers})"));
    stage.say(&stage.evil, "SELECT 1");
    // evil may use the catalog, and may insert into its own table
    let choices = [
        format!(
            "INSERT INTO mill.job (id, name, input, queue) VALUES ({hers}, 'a', 'SELECT 1', 'evil.task') RETURNING id"
        ),
        format!(
            "INSERT INTO mill.job (id, name, input, queue) OVERRIDING SYSTEM VALUE VALUES ({hers}, 'b', 'SELECT 1', 'evil.task') RETURNING id"
        ),
        format!("UPDATE mill.job SET id = {hers} WHERE name = 'own' RETURNING id"),
    ];
    stage.say(&stage.evil, "INSERT INTO mill.job (name, input, queue) VALUES ('own', 'SELECT 1', 'evil.task')");
    let mut faults = Vec::new();
    for choice in choices {
        let mut client = stage.session(&stage.evil);
        // refused, or another number is given
        let got =
            client.query(&choice, &[]).map(|rows| rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>());
        if got.is_ok_and(|numbers| numbers.contains(&hers)) {
            faults.push(format!("{choice}: {:?}", past(&stage, &stage.evil, hers)));
            stage.say(&stage.evil, &format!("DELETE FROM mill.job WHERE id = {hers}"));
            stage.say(&stage.evil, "INSERT INTO mill.job (name, input, queue) VALUES ('own', 'SELECT 1', 'evil.task') ON CONFLICT DO NOTHING");
        }
    }
    let all_runs: i64 =
        stage.session(&stage.evil).query_one("SELECT count(*) FROM mill.run", &[]).expect("a view").get(0);
    assert!(faults.is_empty() && all_runs == 0, "{faults:#?}");
    drop(mill);
}

#[test]
fn the_first_job_of_a_new_catalog_has_no_past_of_the_old_one() {
    let stage = Stage::new(CatalogOf::Superuser);
    let app = stage.database.owner();
    let mill = stage.serve();
    let old = run_once(&stage, &mill, app, "old");
    drop(mill);
    stage.database.run("BEGIN; SELECT mill.uninstall(); COMMIT");
    stage.database.run(&format!("BEGIN; {}; COMMIT", shared::db::catalog::text(shared::VERSION)));
    stage.admit_keeper(app);
    stage.database.run(&format!(
        "SELECT mill.admit('{0}'), mill.grant('{0}', 'use'), mill.grant('{app}', 'use'), mill.grant('{1}', 'use')",
        stage.evil, stage.member
    ));
    let mill = stage.serve();
    let mut client = stage.session(&stage.member);
    let sql = "INSERT INTO mill.job (name, input, queue) VALUES ($1, 'SELECT 1', 'public.task') RETURNING id";
    let mut numbers = Vec::new();
    for name in ["new", "newer", "newest"] {
        numbers.push(client.query_one(sql, &[&name]).expect("a job").get::<_, i32>(0));
    }
    let seen: Vec<String> = numbers.iter().flat_map(|number| past(&stage, &stage.member, *number)).collect();
    assert!(seen.is_empty(), "numbers {numbers:?} after {old}: {seen:#?}");
    drop(mill);
}

#[test]
fn a_stranger_joins_no_flow_and_no_graph_of_others() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    stage.say(
        stage.database.owner(),
        "BEGIN; INSERT INTO mill.flow (name) VALUES ('theirs'); \
         INSERT INTO mill.job (name, input, queue, flow) VALUES ('target', 'SELECT 1', 'public.task', 'theirs'), ('source', 'SELECT 1', 'public.task', NULL); \
         INSERT INTO mill.timer (name, start, period) VALUES ('their clock', '2100-01-01', '1 day'); COMMIT",
    );
    stage.say(
        &stage.evil,
        "BEGIN; INSERT INTO mill.flow (name) VALUES ('own flow'); \
         INSERT INTO mill.job (name, input, queue) VALUES ('own', 'SELECT 1', 'evil.task'), ('own too', 'SELECT 1', 'evil.task'); \
         INSERT INTO mill.timer (name, start, period) VALUES ('own clock', '2100-01-01', '1 day'); \
         INSERT INTO mill.edge (job, from_job) VALUES ('own', 'own too'); COMMIT",
    );
    let statements = [
        "INSERT INTO mill.job (name, input, queue, flow) VALUES ('guest', 'SELECT 1', 'evil.task', 'theirs')",
        "UPDATE mill.job SET flow = 'theirs' WHERE name = 'own'",
        "INSERT INTO mill.timer (name, start, period, flow) VALUES ('guest clock', '2100-01-01', '1 day', 'theirs')",
        "UPDATE mill.timer SET flow = 'theirs' WHERE name = 'own clock'",
        "INSERT INTO mill.edge (job, from_job) VALUES ('own', 'source')",
        "INSERT INTO mill.edge (job, from_job) VALUES ('target', 'own')",
        "INSERT INTO mill.edge (job, from_timer) VALUES ('own', 'their clock')",
        "INSERT INTO mill.edge (job, from_timer) VALUES ('target', 'own clock')",
        "UPDATE mill.edge SET from_job = 'source' WHERE job = 'own'",
        "UPDATE mill.edge SET job = 'target' WHERE job = 'own'",
        "BEGIN; INSERT INTO mill.edge (job, from_job) VALUES ('late', 'source'); INSERT INTO mill.job (name, input, queue) VALUES ('late', 'SELECT 1', 'evil.task'); COMMIT",
        "SELECT mill.apply('{\"flow\": \"theirs\", \"jobs\": {}}')",
    ];
    let look = "SELECT concat_ws(' | ', (SELECT string_agg(concat(j.name, ' in ', j.flow), ', ' ORDER BY j.name) FROM mill.job j), \
        (SELECT string_agg(concat(t.name, ' in ', t.flow), ', ' ORDER BY t.name) FROM mill.timer t), \
        (SELECT string_agg(concat(e.from_job, e.from_timer, ' to ', e.job), ', ' ORDER BY e.job) FROM mill.edge e))";
    let before: String = one(&stage.database, look);
    let mut done = Vec::new();
    for statement in statements {
        let mut client = stage.session(&stage.evil);
        let said = client.batch_execute(statement);
        let now: String = one(&stage.database, look);
        if now != before {
            done.push(format!("{statement} ({said:?})"));
            // as before, for the next one
            stage.database.run(
                "DELETE FROM mill.job WHERE name IN ('guest', 'late'); DELETE FROM mill.timer WHERE name = 'guest clock'; DELETE FROM mill.edge; \
                 UPDATE mill.job SET flow = NULL WHERE name = 'own'; UPDATE mill.timer SET flow = NULL WHERE name = 'own clock'; \
                 INSERT INTO mill.edge (job, from_job) VALUES ('own', 'own too')",
            );
            assert_eq!(one::<String>(&stage.database, look), before);
        }
    }
    assert!(done.is_empty(), "{done:#?}");
    // whoever belongs to the other side as well may
    stage.database.run(&format!("GRANT {} TO {}", quote_ident(stage.database.owner()), quote_ident(&stage.evil)));
    stage.say(&stage.evil, "INSERT INTO mill.edge (job, from_job) VALUES ('own', 'source'); UPDATE mill.job SET flow = 'theirs' WHERE name = 'own too'");
    stage.database.run(&format!("REVOKE {} FROM {}", quote_ident(stage.database.owner()), quote_ident(&stage.evil)));
    drop(mill);
}

/// A role that may create in the database, with a record of who runs its code.
fn stranger(database: &Database) -> String {
    let name = format!("{}_stranger", database.owner());
    let role = quote_ident(&name);
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT CREATE, CONNECT ON DATABASE {0} TO {role}; CREATE SCHEMA trap AUTHORIZATION {role}; \
         GRANT USAGE ON SCHEMA trap TO PUBLIC; \
         CREATE TABLE trap.caught (what text, cu name DEFAULT current_user, su name DEFAULT session_user); ALTER TABLE trap.caught OWNER TO {role}; \
         GRANT INSERT ON trap.caught TO PUBLIC",
        quote_ident(database.name())
    ));
    name
}

fn forget(database: &Database, name: &str) {
    let role = quote_ident(name);
    database.run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

/// Makes a schema mill with that trap in it; the name of its owner.
fn lay(database: &Database, trap: &str) -> String {
    let name = stranger(database);
    let mut client = database.server().try_connect(&name, database.name()).expect("a stranger");
    client
        .batch_execute(&format!(
            "CREATE FUNCTION trap.n(what text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO trap.caught VALUES (what); RETURN true; END'; \
             CREATE FUNCTION trap.ni(what text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN trap.n(what); END'; \
             CREATE SCHEMA mill; GRANT ALL ON SCHEMA mill TO PUBLIC; \
             CREATE TABLE mill.meta (one bool PRIMARY KEY DEFAULT true, version text, enabled bool DEFAULT true, clock interval DEFAULT '0'); \
             INSERT INTO mill.meta (version) VALUES ('{}'); \
             CREATE TABLE mill.queue (relid oid PRIMARY KEY, schema name, name name, owner name); \
             INSERT INTO mill.queue SELECT c.oid, 'pg_catalog', 'pg_class', 'postgres' FROM pg_class c WHERE c.oid = 'pg_class'::regclass; \
             GRANT ALL ON ALL TABLES IN SCHEMA mill TO PUBLIC; {trap}",
            shared::VERSION
        ))
        .expect("a trap");
    name
}

/// Two databases with that trap: one is served by a row of its own, one is found by `*`. In a cluster of its own, because `*`
/// means every database.
#[track_caller]
fn served_beside_a_strangers_schema(trap: &str) {
    let cluster = Cluster::start();
    let (database, found) = (cluster.database(), cluster.database());
    let strangers = [lay(&database, trap), lay(&found, trap)];
    let mill = Supervisor::of(&database).key("probe", "200 ms").row(json!({"data": "*"})).start();
    let served = mill
        .wait("the task table is made")
        .within(Duration::from_secs(15))
        .attempt(|| one::<bool>(&database, "SELECT to_regclass('public.task') IS NOT NULL"));
    if served.is_some() {
        let id = database.insert("SELECT 1");
        assert_eq!(mill.finished(&database, id)["state"], "DONE");
    }
    linger(Duration::from_secs(2), "probes, polls and sweeps come by");
    let sql = "SELECT DISTINCT format('%s ran as %s, logged in as %s', what, cu, su) FROM trap.caught ORDER BY 1";
    let caught: Vec<String> = [&database, &found].into_iter().flat_map(|one| all(one, sql)).collect();
    assert!(caught.is_empty(), "{caught:#?}");
    assert!(served.is_some(), "the queue is not served: {}", mill.describe());
    drop(mill);
    forget(&database, &strangers[0]);
    forget(&found, &strangers[1]);
}

#[test]
fn index_predicates_of_a_strangers_schema_mill_run_for_nobody() {
    served_beside_a_strangers_schema(
        "CREATE INDEX ON mill.meta (one) WHERE trap.ni('predicate of meta'); \
         CREATE INDEX ON mill.queue (relid) WHERE trap.ni('predicate of queue'); TRUNCATE trap.caught",
    );
}

#[test]
fn row_security_of_a_strangers_schema_mill_runs_for_nobody_and_stops_no_queue() {
    served_beside_a_strangers_schema(
        "ALTER TABLE mill.meta ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON mill.meta USING (trap.n('policy of meta')); \
         ALTER TABLE mill.queue ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON mill.queue USING (trap.n('policy of queue'))",
    );
}

#[test]
fn service_functions_of_a_strangers_schema_mill_are_called_by_nobody() {
    served_beside_a_strangers_schema(
        "CREATE SCHEMA mill_private; GRANT USAGE ON SCHEMA mill_private TO PUBLIC; \
         CREATE FUNCTION mill.s_version() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS \
            'BEGIN PERFORM trap.n(''s_version''); PERFORM set_config(''search_path'', ''trap'', false); RETURN ''0.1.0''; END'; \
         CREATE FUNCTION mill_private.s_register(oid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN PERFORM trap.n(''s_register''); END'; \
         CREATE FUNCTION mill_private.s_clock() RETURNS interval LANGUAGE plpgsql SECURITY DEFINER AS \
            'BEGIN PERFORM trap.n(''s_clock''); RETURN interval ''1 year''; END'",
    );
}

#[test]
fn a_catalog_is_used_only_with_the_consent_of_the_queue_and_to_be_admitted_is_none() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let mut client = database.server().try_connect(&name, database.name()).expect("a stranger");
    let text = shared::db::catalog::text(shared::VERSION);
    client
        .batch_execute(&format!(
            "BEGIN; {text}; SELECT mill.admit('{0}'), mill.grant('{0}', 'use'); COMMIT",
            database.owner()
        ))
        .expect("a catalog of his own");
    // He may change the catalog as he likes: what a scheduler calls there is his code.
    client
        .batch_execute(
            "CREATE OR REPLACE FUNCTION mill.s_version() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS \
                $$ BEGIN INSERT INTO trap.caught VALUES ('s_version'); RETURN (SELECT m.version FROM mill.meta m); END $$",
        )
        .expect("a change");
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    let looks = "SELECT NOT EXISTS (SELECT FROM mill.queue) AND NOT EXISTS (SELECT FROM trap.caught) \
        AND NOT EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'public.task'::regclass AND a.grantee = $1::text::regrole)";
    steadily("the stranger's catalog is not used", Duration::from_secs(3), || {
        database.look(looks, &[&quote_ident(&name)]).is_some_and(|rows| rows[0].get::<_, bool>(0))
    });
    // consent: whoever may insert tasks could run anything through the queue anyway
    database.connect().batch_execute(&format!("GRANT INSERT ON public.task TO {}", quote_ident(&name))).expect("GRANT");
    drop(mill);
    let mill = Supervisor::of(&database).start();
    mill.wait("the catalog is used")
        .within(Duration::from_secs(30))
        .until(|| one::<bool>(&database, "SELECT EXISTS (SELECT FROM mill.queue)"));
    drop((mill, client));
    forget(&database, &name);
}
