//! Who may do what: the lists of GRANTs that the documentation gives, each tried with exactly those rights.

use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor};

use crate::asking::{all, one, refusal};

/// A role of this database's own, gone with its name at the end of the cluster.
fn role(database: &Database, what: &str) -> String {
    let name = format!("{}_{what}", database.owner());
    database.run(&format!("CREATE ROLE {} LOGIN", quote_ident(&name)));
    name
}

fn drop_role(database: &Database, name: &str) {
    let role = quote_ident(name);
    database.run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

#[test]
fn the_queues_of_several_users_in_one_database_are_all_registered() {
    let database = Cluster::shared().database();
    let second = role(&database, "second");
    let (name, second_ident) = (quote_ident(database.name()), quote_ident(&second));
    database.run(&format!(
        "CREATE SCHEMA jobs AUTHORIZATION {second_ident}; GRANT CONNECT ON DATABASE {name} TO {second_ident}; GRANT {second_ident} TO {}",
        quote_ident(database.login())
    ));
    let row = json!({"data": database.name(), "user": second, "schema": "jobs"});
    let mill = Supervisor::of(&database).row(row).start();
    mill.eventually("both are registered", || {
        let rows = database.look("SELECT schema::text, owner::text FROM mill.queue ORDER BY schema", &[])?;
        let found: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        (found == [("jobs".to_owned(), second.clone()), ("public".to_owned(), database.owner().to_owned())])
            .then_some(())
    });
    // whichever came first owns the catalog, and may put runs into both queues
    let owner: String =
        one(&database, "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'");
    for queue in ["jobs.task", "public.task"] {
        let sql = format!(
            "SELECT bool_and(has_table_privilege($1, '{queue}', r)) FROM unnest('{{SELECT,INSERT,UPDATE}}'::text[]) AS r"
        );
        mill.eventually("the catalog's owner may use the queue", || {
            database.look(&sql, &[&owner]).is_some_and(|rows| rows[0].get::<_, bool>(0))
        });
    }
    drop(mill);
    drop_role(&database, &second);
}

#[test]
fn nothing_of_the_catalog_is_for_everybody() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let stranger = role(&database, "stranger");
    let open: Vec<String> = all(
        &database,
        "SELECT p.oid::regprocedure::text FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
          WHERE p.pronamespace = 'mill'::regnamespace AND a.grantee = 0 \
         UNION ALL SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) a \
          WHERE c.relnamespace = 'mill'::regnamespace AND a.grantee = 0 \
         UNION ALL SELECT 'schema' FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'mill' AND a.grantee = 0",
    );
    assert!(open.is_empty(), "{open:?}");
    let loose: Vec<String> = all(
        &database,
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'mill'::regnamespace \
            AND (proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (proconfig))",
    );
    assert!(loose.is_empty(), "functions without a fixed search_path: {loose:?}");
    let mut client = database.server().try_connect(&stranger, database.name()).expect("connect");
    for sql in ["SELECT mill.why(1)", "SELECT * FROM mill.queue", "SELECT mill.s_register('public.task'::regclass)"] {
        assert!(refusal(&mut client, sql).starts_with("42501"), "{sql}");
    }
    drop(client);
    drop(mill);
    drop_role(&database, &stranger);
}

#[test]
fn grant_and_revoke_open_and_close_the_face_of_the_catalog() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let clerk = role(&database, "clerk");
    let mut owner = database.connect();
    let call = |function: &str| format!("SELECT mill.{function}");
    owner.batch_execute(&call(&format!("grant('{clerk}', 'use')"))).expect("grant");
    owner.batch_execute(&format!("GRANT SELECT ON public.task TO {}", quote_ident(&clerk))).expect("grant");
    let id = database.insert_with("SELECT 1", "plan = now() + interval '1 day'");
    let mut client = database.server().try_connect(&clerk, database.name()).expect("connect");
    let why: String = client.query_one("SELECT mill.why($1)", &[&id]).expect("why").get(0);
    assert!(why.contains("it is planned for"), "{why}");
    for sql in [
        "UPDATE mill.meta SET version = 'x'",
        "DELETE FROM mill.queue",
        "SELECT mill.uninstall()",
        "SELECT mill.grant('x', 'use')",
        "SELECT mill.s_version()",
    ] {
        assert!(refusal(&mut client, sql).starts_with("42501"), "{sql}");
    }
    assert!(refusal(&mut owner, &call(&format!("grant('{clerk}', 'rule')"))).contains("choose use or operate"));
    assert!(refusal(&mut owner, &call("grant('nobody at all', 'use')")).contains("does not exist"));
    owner.batch_execute(&call(&format!("revoke('{clerk}')"))).expect("revoke");
    assert!(refusal(&mut client, "SELECT mill.why(1)").starts_with("42501"));
    drop((client, owner, mill));
    drop_role(&database, &clerk);
}

#[test]
fn a_stranger_who_is_let_in_registers_only_what_is_his() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let second = role(&database, "second");
    database.connect().batch_execute(&format!("SELECT mill.admit('{second}')")).expect("admit");
    let mut client = database.server().try_connect(&second, database.name()).expect("connect");
    assert!(
        refusal(&mut client, "SELECT mill.s_register('public.task'::regclass)").contains("may not serve public.task")
    );
    assert!(refusal(&mut client, "SELECT mill.s_register(1)").starts_with("42P01"));
    let version: String = client.query_one("SELECT mill.s_version()", &[]).expect("version").get(0);
    assert_eq!(version, shared::VERSION);
    drop((client, mill));
    drop_role(&database, &second);
}

#[test]
fn a_restored_queue_is_registered_under_its_new_number() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    drop(mill);
    // as pg_restore leaves it: the row of the dump, and a table with another OID
    database.run("UPDATE mill.queue SET relid = 99; INSERT INTO mill.queue VALUES (98, 'gone', 'gone', 'gone')");
    let mill = Supervisor::of(&database).start();
    let rows: Vec<bool> = all(&database, "SELECT relid = 'public.task'::regclass FROM mill.queue");
    assert_eq!(rows, [true], "{}", mill.describe());
}
