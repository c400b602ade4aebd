//! Who may do what: the lists of GRANTs that the documentation gives, each tried with exactly those rights.

use serde_json::json;
use tests::database::quote_ident;
use tests::workdir::Ended;
use tests::{Cluster, Database, Supervisor, Workdir};

use crate::queries::{all, one, refusal};

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
    // whichever came first owns the catalog; here it is the one that owns the database
    let mill = Supervisor::of(&database).start();
    let queues = || -> Vec<(String, String)> {
        let rows = database.query("SELECT schema::text, owner::text FROM mill.queue ORDER BY schema", &[]);
        rows.unwrap_or_default().iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let first = ("public".to_owned(), database.owner().to_owned());
    mill.eventually("it is registered", || queues() == [first.clone()]);
    drop(mill);
    let owner: String =
        one(&database, "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'");
    let row = json!({"data": database.name(), "user": second, "schema": "jobs"});
    let mill = Supervisor::of(&database).queue(row).start();
    // the second one has not agreed to a catalog of another role, whose runs it would execute: it is served without it,
    // and status and log say what would help
    let advice = format!("run as {second_ident}: GRANT INSERT ON \"jobs\".\"task\" TO {}", quote_ident(&owner));
    let said = format!(
        "tasks run without the catalog mill of {}: the queue has not agreed to it; {advice}",
        quote_ident(&owner)
    );
    mill.eventually("status names the GRANT", || {
        let status = mill.status()?;
        let all = status["databases"]
            .as_array()?
            .iter()
            .any(|row| row["why"].as_str().is_some_and(|why| why.contains(&said)));
        all.then_some(())
    });
    // there with quotes in quotes
    assert!(mill.log_contains(&said.replace('"', "\\\"")), "{}", mill.describe());
    let id: i64 = one(&database, "INSERT INTO jobs.task (input) VALUES ('SELECT 1') RETURNING id");
    let state = format!("SELECT state::text FROM jobs.task WHERE id = {id}");
    mill.eventually("it is served", || one::<String>(&database, &state) == "DONE");
    assert_eq!(queues(), std::slice::from_ref(&first));
    assert!(!one::<bool>(
        &database,
        "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'jobs.task'::regclass AND tgname ~ '^mill_job')"
    ));
    drop(mill);
    database
        .server()
        .try_connect(&second, database.name())
        .expect("the second one")
        .batch_execute(advice.split_once(": ").expect("SQL").1)
        .expect("the GRANT");
    let row = json!({"data": database.name(), "user": second, "schema": "jobs"});
    let mill = Supervisor::of(&database).queue(row).start();
    mill.eventually("both are registered", || queues() == [("jobs".to_owned(), second.clone()), first.clone()]);
    for queue in ["jobs.task", "public.task"] {
        let sql =
            format!("SELECT count(*) = 5 FROM pg_trigger WHERE tgrelid = '{queue}'::regclass AND tgname ~ '^mill_job'");
        mill.eventually("the queue runs jobs", || one::<bool>(&database, &sql));
    }
    assert!(mill.status().is_some_and(|status| !status.to_string().contains("GRANT INSERT")), "{}", mill.describe());
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
          WHERE p.pronamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND a.grantee = 0 \
         UNION ALL SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) a \
          WHERE c.relnamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND a.grantee = 0 \
         UNION ALL SELECT 'schema' FROM pg_namespace n, aclexplode(n.nspacl) a \
          WHERE n.nspname IN ('mill', 'mill_private') AND a.grantee = 0",
    );
    assert!(open.is_empty(), "{open:?}");
    // one looks for a function of the user's, with the user's rights and search_path; a body that was parsed when it
    // was made looks nothing up; and steps of the graph are for the catalog's owner alone, whose functions have set the path
    let loose: Vec<String> = all(
        &database,
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) \
            AND (p.proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (p.proconfig)) \
            AND (p.prosecdef OR (p.oid <> 'mill_private.check_job_writer()'::regprocedure AND p.prosqlbody IS NULL AND NOT (p.proname ~ \
                '^(finish_activation|deliver_tokens|consume_tokens|pick_tokens|is_paused|lock_flows|order_run|order_graph_run|\
order_graph_runs|free_places|check_queue_right|free_flow_place|is_overtaken|count_ended_run)$' \
                AND NOT EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
                                 WHERE a.grantee <> p.proowner))))",
    );
    assert!(loose.is_empty(), "functions without a fixed search_path: {loose:?}");
    let mut client = database.server().try_connect(&stranger, database.name()).expect("connect");
    for sql in
        ["SELECT mill.why(1)", "SELECT * FROM mill.queue", "SELECT mill_private.s_register('public.task'::regclass)"]
    {
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
    let reporter = role(&database, "reporter");
    let mut owner = database.connect();
    let call = |function: &str| format!("SELECT mill.{function}");
    owner.batch_execute(&call(&format!("grant('{reporter}', 'use')"))).expect("grant");
    owner.batch_execute(&format!("GRANT SELECT ON public.task TO {}", quote_ident(&reporter))).expect("grant");
    let id = database.insert_with("SELECT 1", "plan = now() + interval '1 day'");
    let mut client = database.server().try_connect(&reporter, database.name()).expect("connect");
    let why: String = client.query_one("SELECT mill.why($1::bigint)", &[&id]).expect("why").get(0);
    assert!(why.contains("planned for"), "{why}");
    for sql in [
        "UPDATE mill.meta SET version = 'x'",
        "DELETE FROM mill.queue",
        "SELECT mill.uninstall()",
        "SELECT mill.grant('x', 'use')",
        "SELECT mill.s_version()",
    ] {
        assert!(refusal(&mut client, sql).starts_with("42501"), "{sql}");
    }
    assert!(refusal(&mut owner, &call(&format!("grant('{reporter}', 'rule')"))).contains("choose use or operate"));
    assert!(refusal(&mut owner, &call("grant('nobody at all', 'use')")).contains("does not exist"));
    owner.batch_execute(&call(&format!("revoke('{reporter}')"))).expect("revoke");
    assert!(refusal(&mut client, "SELECT mill.why(1)").starts_with("42501"));
    drop((client, owner, mill));
    drop_role(&database, &reporter);
}

#[test]
fn a_stranger_who_is_let_in_registers_only_what_is_his() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let second = role(&database, "second");
    database.connect().batch_execute(&format!("SELECT mill.admit('{second}')")).expect("admit");
    let mut client = database.server().try_connect(&second, database.name()).expect("connect");
    assert!(
        refusal(&mut client, "SELECT mill_private.s_register('public.task'::regclass)")
            .contains("may not serve public.task")
    );
    assert!(refusal(&mut client, "SELECT mill_private.s_register(1)").starts_with("42P01"));
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

/// What `check --connect` says with one row of this database.
#[track_caller]
fn check(database: &Database) -> Ended {
    let workdir = Workdir::new();
    let config = json!({
        "connect": database.server().conninfo(database.login()),
        "json": [{"data": database.name(), "user": database.owner()}],
    });
    workdir.write("mill.json", &config.to_string());
    workdir.run(&["check", "--connect", "--config", "mill.json"])
}

/// Everything that the harness and PostgreSQL give by themselves is taken away.
fn bare(database: &Database) {
    let (name, owner, login) =
        (quote_ident(database.name()), quote_ident(database.owner()), quote_ident(database.login()));
    database.run(&format!(
        "ALTER DATABASE {name} OWNER TO postgres; REVOKE ALL ON DATABASE {name} FROM PUBLIC; \
         REVOKE ALL ON SCHEMA public FROM PUBLIC; REVOKE {owner} FROM {login}; GRANT CONNECT ON DATABASE {name} TO {login}"
    ));
}

#[test]
fn check_names_every_missing_grant_and_running_them_is_enough() {
    let database = Cluster::shared().database();
    bare(&database);
    let (owner, login) = (quote_ident(database.owner()), quote_ident(database.login()));
    let said = check(&database);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("permission denied for database"), "{}", said.all());
    assert!(said.stderr.contains(&format!("run: GRANT {owner} TO {login}")), "{}", said.all());
    database.run(&format!("GRANT CONNECT ON DATABASE {} TO {owner}", quote_ident(database.name())));
    // then exactly what it says, until it has nothing to say
    for round in 0.. {
        let said = check(&database);
        let advice: Vec<&str> =
            said.stderr.lines().filter_map(|line| line.split_once("run: ").map(|(_, sql)| sql)).collect();
        if advice.is_empty() {
            assert_eq!(said.code, Some(0), "{}", said.all());
            assert_eq!(said.stdout.matches(": ok").count(), 3, "{}", said.all());
            break;
        }
        assert!(round < 3, "{}", said.all());
        advice.iter().for_each(|sql| database.run(sql));
    }
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    mill.eventually("the queue is registered", || {
        database.query("SELECT 1 FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1)
    });
    assert!(mill.status().is_some_and(|status| status["databases"][0]["why"].is_null()), "{}", mill.describe());
}

#[test]
fn the_documented_grants_of_queue_user_and_launcher_are_enough() {
    let database = Cluster::shared().database();
    bare(&database);
    let (name, owner, login) =
        (quote_ident(database.name()), quote_ident(database.owner()), quote_ident(database.login()));
    database.run(&format!(
        "GRANT CONNECT, CREATE ON DATABASE {name} TO {owner}; GRANT CREATE, USAGE ON SCHEMA public TO {owner}; \
         GRANT CONNECT ON DATABASE postgres TO {login}; GRANT pg_signal_backend, pg_read_all_stats TO {login}"
    ));
    let said = check(&database);
    assert_eq!(said.code, Some(0), "{}", said.all());
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    let task = database.insert("SELECT pg_sleep(100)");
    let backend = crate::queries::running(&mill, &database, task);
    mill.kill9(crate::queries::worker_of(&mill, task).expect("its worker"));
    mill.eventually("a dead worker's session is ended", || {
        database.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&backend]).is_some_and(|rows| rows.is_empty())
    });
}

#[test]
fn a_launcher_that_creates_needs_no_more_than_createdb_and_createrole() {
    let database = Cluster::shared().database();
    let login = quote_ident(database.login());
    database.run(&format!("ALTER ROLE {login} CREATEDB CREATEROLE"));
    let (role, made) = (format!("{}_made", database.owner()), format!("{}_made", database.name()));
    let workdir = Workdir::new();
    let config =
        json!({"connect": database.server().conninfo(database.login()), "json": [{"data": made, "user": role}]});
    workdir.write("mill.json", &config.to_string());
    let said = workdir.run(&["check", "--connect", "--config", "mill.json"]);
    assert!(said.code == Some(0) && said.stdout.contains("the first start creates it"), "{}", said.all());
    let connect = database.server().conninfo(database.login());
    let mill = Supervisor::bare().queue(json!({"data": made, "user": role})).key("connect", connect).start();
    mill.eventually("the row is served", || {
        mill.status().is_some_and(|status| status["databases"][0]["phase"] == "running")
    });
    let said = workdir.run(&["check", "--connect", "--config", "mill.json"]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    drop(mill);
    database.run(&format!("DROP DATABASE {} WITH (FORCE)", quote_ident(&made)));
    database.run(&format!("DROP ROLE {}", quote_ident(&role)));
}

#[test]
fn check_lists_who_may_insert_besides_the_owner_and_the_rows_user() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.eventually("the table is there", || database.query("SELECT FROM public.task", &[]).is_some());
    drop(mill);
    database.run(&format!("REVOKE {} FROM {}", quote_ident(database.owner()), quote_ident(database.login())));
    let who = format!("json[0] {} public.task as {}", database.name(), quote_ident(database.owner()));
    let said = check(&database);
    assert!(said.stdout.contains(&format!("{who}: no other role may INSERT")), "{}", said.all());
    let names = ["reporter", "team", "member", "column", "reader"].map(|what| role(&database, what));
    let [reporter, team, member, column, reader] = names.each_ref().map(|name| quote_ident(name));
    database.run(&format!(
        "GRANT INSERT ON public.task TO {reporter}, {team}; GRANT {team} TO {member}; GRANT SELECT ON public.task TO {reader}; \
         GRANT INSERT (input) ON public.task TO {column}; ALTER ROLE {member} NOINHERIT"
    ));
    let mut roles = [reporter, column, member, team];
    roles.sort_unstable();
    let roles = roles.join(", ");
    let owner = quote_ident(database.owner());
    let list = |roles: &str| format!("{who}: INSERT, and so run SQL as {owner}, may also: {roles}");
    let said = check(&database);
    assert!(said.stdout.lines().any(|line| line.ends_with(&list(&roles))), "{}", said.all());
    database.run("GRANT INSERT ON public.task TO PUBLIC");
    let said = check(&database);
    assert!(said.stdout.contains(&list(&format!("PUBLIC, {roles}"))), "{}", said.all());
    names.iter().for_each(|name| drop_role(&database, name));
}
