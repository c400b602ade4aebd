//! What we make has the rights that we mean, whatever default privileges there are; and what every table of the catalog
//! needs for replication.

use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor};

use crate::queries::{all, one};
use crate::trap_stage::{CatalogOf, Stage};

/// Every right that somebody other than its owner has on an object that we have made: what, on which object, who. Row types of
/// tables have no rights of their own.
const GIVEN: &str = "
    WITH made (kind, object, owner, acl) AS (
        SELECT 'schema', n.nspname::text, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)) FROM pg_namespace n
         WHERE n.nspname IN ('mill', 'mill_private')
        UNION ALL
        SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.oid::regclass::text, c.relowner,
               coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::\"char\" ELSE 'r' END, c.relowner))
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND (n.nspname IN ('mill', 'mill_private')
            OR c.oid = ANY (QUEUES) OR EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.refobjid = ANY (QUEUES) AND c.relkind = 'S'))
        UNION ALL
        SELECT 'column', c.oid::regclass::text || '.' || a.attname, c.relowner, a.attacl
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE a.attacl IS NOT NULL AND (n.nspname IN ('mill', 'mill_private') OR c.oid = ANY (QUEUES))
        UNION ALL
        SELECT CASE WHEN p.prorettype = 'trigger'::regtype THEN 'trigger function' ELSE 'function' END, p.oid::regprocedure::text,
               p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
          FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname IN ('mill', 'mill_private') OR p.proname ~ '^mill_'
    )
    SELECT concat_ws(' ', lower(a.privilege_type), 'on', m.kind, m.object, 'for',
                     CASE a.grantee WHEN 0 THEN 'everybody' ELSE pg_get_userbyid(a.grantee) END,
                     CASE WHEN a.is_grantable THEN 'with grant option' END)
      FROM made m, aclexplode(m.acl) a WHERE a.grantee <> m.owner ORDER BY 1";

fn given(database: &Database, queues: &str) -> Vec<String> {
    all(database, &GIVEN.replace("QUEUES", &format!("ARRAY[{queues}]::oid[]")))
}

/// The wake-up and the hold of a task table run with the rights of whoever changes a row, and may be called by everybody. A trigger
/// function that runs with its owner's is not to be attached to other tables, so it is nobody else's.
fn is_trigger_function(right: &str, definers: &[String]) -> bool {
    right.contains("mill_")
        && right.starts_with("execute on trigger function ")
        && right.ends_with(" for everybody")
        && !right.contains(" mill.")
        && !right.contains(" mill_private.")
        && !definers.iter().any(|definer| right.contains(definer.as_str()))
}

fn definers(database: &Database) -> Vec<String> {
    all(
        database,
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.prosecdef AND p.prorettype = 'trigger'::regtype AND p.proname ~ '^mill_'",
    )
}

#[test]
fn default_privileges_reach_neither_the_catalog_nor_the_task_table() {
    let database = Cluster::shared().database();
    let (owner, rw) = (quote_ident(database.owner()), format!("{}_rw", database.owner()));
    let rw_ident = quote_ident(&rw);
    database.run(&format!("CREATE ROLE {rw_ident} LOGIN"));
    for role in [&owner, &"postgres".to_owned()] {
        for kind in ["TABLES", "SEQUENCES", "FUNCTIONS", "SCHEMAS"] {
            database.run(&format!(
                "ALTER DEFAULT PRIVILEGES FOR ROLE {role} GRANT ALL ON {kind} TO {rw_ident}; \
                 ALTER DEFAULT PRIVILEGES FOR ROLE {role} GRANT ALL ON {kind} TO PUBLIC"
            ));
            if kind != "SCHEMAS" {
                database.run(&format!(
                    "ALTER DEFAULT PRIVILEGES FOR ROLE {role} IN SCHEMA public GRANT ALL ON {kind} TO {rw_ident} WITH GRANT OPTION"
                ));
            }
        }
    }
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    mill.eventually("the queue is known", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1)
    });
    let mut client = database.connect();
    client.batch_execute("INSERT INTO mill.job (name, input) VALUES ('j', 'SELECT 1')").expect("a job");
    client.batch_execute("SELECT mill.run_job((SELECT id FROM mill.job))").expect("run_job");
    mill.eventually("its run has ended", || one::<i64>(&database, "SELECT total_successes FROM mill.job_stat") == 1);
    let definers = definers(&database);
    let mut wrong = given(&database, "'public.task'::regclass");
    wrong.retain(|right| !is_trigger_function(right, &definers));
    assert!(wrong.is_empty(), "{} rights too many, among them {:#?}", wrong.len(), &wrong[..wrong.len().min(25)]);
    drop((client, mill));
    database.run(&format!("DROP OWNED BY {rw_ident}; DROP ROLE {rw_ident}"));
}

#[test]
fn every_right_on_the_catalog_is_one_that_admit_or_grant_gives() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let (app, evil, member) = (stage.database.owner(), stage.evil.as_str(), stage.member.as_str());
    stage.say(app, "INSERT INTO mill.job (name, input, queue) VALUES ('j', 'SELECT 1', 'public.task'); SELECT mill.run('j', '2026-01-01')");
    mill.eventually("its run has ended", || {
        one::<bool>(&stage.database, "SELECT EXISTS (SELECT FROM mill.job_stat s WHERE s.total_successes = 1)")
    });
    let oid = |queue: &str| one::<u32>(&stage.database, &format!("SELECT '{queue}'::regclass::oid"));
    let listed = |levels: &str| -> Vec<String> {
        all(
            &stage.database,
            &format!(
                "SELECT DISTINCT lower(trim(r)) || ' on ' || CASE split_part(l.object, ' ', 1)
                        WHEN 'FUNCTION' THEN 'function ' || substr(l.object, 10)::regprocedure ELSE lower(l.object) END
                   FROM mill_private.grant_list l, unnest(string_to_array(l.rights, ',')) AS r WHERE l.level = ANY ('{levels}')"
            ),
        )
    };
    let (keeper, server, user) = (listed("{use,serve,keep}"), listed("{use,serve}"), listed("{use}"));
    assert!(user.len() > 40 && server.len() > user.len() && keeper.len() > server.len());
    let is_in = |list: &[String], right: &str| list.iter().any(|listed| right.starts_with(&format!("{listed} for ")));
    let is_entry =
        |right: &str, queue: &str| right.starts_with(&format!("execute on function mill_private.q{}_", oid(queue)));
    let definers = definers(&stage.database);
    let mut wrong = given(&stage.database, "NULL");
    wrong.retain(|right| {
        let holder = right.rsplit(" for ").next().unwrap_or_default();
        let meant = if holder == app {
            is_in(&keeper, right) || is_entry(right, "public.task")
        } else if holder == evil {
            is_in(&server, right) || is_entry(right, "evil.task")
        } else if holder == member {
            is_in(&user, right)
        } else {
            is_trigger_function(right, &definers)
        };
        !meant
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    // and each of them has what he is to have
    let rights = given(&stage.database, "NULL");
    for (holder, list) in [(app, &keeper), (evil, &server), (member, &user)] {
        for right in list {
            assert!(rights.contains(&format!("{right} for {holder}")), "{holder} lacks: {right}");
        }
    }
    drop(mill);
}

#[test]
fn every_table_of_the_catalog_has_a_primary_key() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.eventually("the queue is known", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1)
    });
    let without: Vec<String> = all(
        &database,
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname IN ('mill', 'mill_private') AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' \
            AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) ORDER BY 1",
    );
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn a_publication_of_all_tables_hinders_nothing_that_jobs_do() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.eventually("the queue is known", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1)
    });
    database.run("CREATE PUBLICATION everything FOR ALL TABLES");
    let mut client = database.connect();
    let mut say = |sql: &str| match client.batch_execute(sql) {
        Ok(()) => {}
        Err(error) => panic!("{:?} from {sql}", error.as_db_error().map(|said| said.message().to_owned())),
    };
    say("BEGIN; CREATE TABLE seen (job text); INSERT INTO mill.flow (name, parallel) VALUES ('f', 2); \
         INSERT INTO mill.job (name, input, flow) VALUES ('first', 'SELECT mill.stash(''k'', ''1''), mill.stash(''k'', ''2'')', 'f'), \
            ('second', 'INSERT INTO seen SELECT mill.stash(''k'')', 'f'), ('node', NULL, 'f'), ('fails', 'SELECT 1 / 0', 'f'), ('alarm', 'SELECT 1', 'f'); \
         INSERT INTO mill.job (name, input, schedule_interval) VALUES ('tick', 'SELECT 1', '1 s'); \
         INSERT INTO mill.job (name, input, cron) VALUES ('cron', 'SELECT 1', '*/1 * * * * *'); \
         INSERT INTO mill.timer (name, start, period) VALUES ('clock', now() - interval '1 day', '1 hour'); \
         INSERT INTO mill.edge (job, from_timer) VALUES ('first', 'clock'); \
         INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('second', 'first', 'success'), ('node', 'second', 'success'), ('fails', 'node', 'success'), ('alarm', 'fails', 'failure'); COMMIT");
    let successes = |job: &str| {
        one::<i64>(
            &database,
            &format!(
                "SELECT s.total_successes FROM mill.job_stat s JOIN mill.job j ON j.id = s.job WHERE j.name = '{job}'"
            ),
        )
    };
    for (job, times) in [("tick", 2), ("cron", 2)] {
        mill.eventually("a scheduled job goes on", || successes(job) >= times);
    }
    say("SELECT mill.fire('clock', '2026-01-01')");
    for job in ["first", "second", "alarm"] {
        mill.eventually("the chain is through", || successes(job) >= 1);
    }
    assert!(all::<String>(&database, "SELECT job FROM seen").contains(&"2".to_owned()));
    for statement in [
        "SELECT mill.rerun('first', '2026-01-01', 'down')",
        "SELECT mill.pause(flow => 'f'); SELECT mill.resume(flow => 'f')",
        "SELECT mill.alter_job(id, scheduled => false) FROM mill.job WHERE name = 'tick'",
        "SELECT mill.alter_job(id, scheduled => true, next_start => now()) FROM mill.job WHERE name = 'tick'",
        "SELECT mill.clear('f', '2026-01-01')",
        "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('clock', now() - interval '5 hours', now() - interval '2 hours')",
        "DELETE FROM mill.edge",
        "DELETE FROM mill.timer",
        "SELECT mill.delete_job(id) FROM mill.job",
        "DELETE FROM mill.flow",
    ] {
        say(statement);
    }
    mill.eventually("nothing is left of the jobs", || one::<i64>(&database, "SELECT count(*) FROM mill.job_stat") == 0);
    assert!(!mill.log_contains("replica identity"), "{}", mill.describe());
}
