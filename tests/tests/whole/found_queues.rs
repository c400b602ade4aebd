//! Whose code runs as whom where the config says `{"data": "*"}`: a queue runs as its table's owner, the launcher's login
//! runs no task, and it reads nothing that a stranger could have made.

use std::time::Duration;

use postgres::Client;
use serde_json::{Value, json};
use tests::launch::Launch;
use tests::{Cluster, Supervisor, Workdir};

const SOON: Duration = Duration::from_secs(20);
const LOGIN: &str = "mill";
const OWNER: &str = "app_tasks";

#[track_caller]
fn must(client: &mut Client, sql: &str) {
    client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

#[track_caller]
fn enter(cluster: &Cluster, user: &str) -> Client {
    cluster.server().try_connect(user, "app").expect("connect")
}

/// The roles and the database of the README's Deploy, with its GRANT.
fn deployed(cluster: &Cluster) {
    let mut root = cluster.connect("postgres");
    must(
        &mut root,
        &format!(
            "CREATE ROLE {LOGIN} LOGIN; CREATE ROLE {OWNER} LOGIN; GRANT {OWNER} TO {LOGIN}; CREATE ROLE stranger LOGIN"
        ),
    );
    must(&mut root, &format!("CREATE DATABASE app OWNER {OWNER}"));
    must(&mut root, "GRANT CREATE ON DATABASE app TO stranger");
}

fn install(cluster: &Cluster, user: &str) {
    must(&mut enter(cluster, user), &shared::db::catalog::install_text(env!("CARGO_PKG_VERSION")));
}

/// Another task table, owned by whoever says this.
fn make_table(client: &mut Client, schema: &str) {
    let queue = shared::db::statement::Queue { schema: schema.to_owned(), table: "task".to_owned() };
    let state = queue.fill(shared::db::statement::MAKE_STATE);
    must(client, &format!("CREATE SCHEMA {schema}; {state}; {}", shared::db::catalog::table_text(&queue)));
}

fn star(connect: String) -> Launch<'static> {
    Supervisor::bare().key("connect", connect).key("probe", "300 ms").key("poll", "200 ms")
}

fn launcher(cluster: &Cluster) -> Supervisor<'static> {
    star(cluster.server().conninfo(LOGIN)).queue(json!({"data": "*"})).start()
}

/// A row of `status`.
fn row(mill: &Supervisor<'_>, schema: &str) -> Option<Value> {
    let status = mill.status()?;
    let rows = status["databases"].as_array()?.iter();
    rows.filter(|row| row["data"] == "app").find(|row| row["schema"] == schema).cloned()
}

#[track_caller]
fn why(mill: &Supervisor<'_>, schema: &str, words: &[&str]) -> String {
    mill.wait(&format!("{schema} says {words:?}")).within(SOON).until(|| {
        let why = row(mill, schema)?["why"].as_str()?.to_owned();
        words.iter().all(|words| why.contains(words)).then_some(why)
    })
}

/// Inserts a task, and gives the users that it ran as.
#[track_caller]
fn ran_as(mill: &Supervisor<'_>, client: &mut Client, table: &str) -> String {
    let insert = format!(
        "INSERT INTO {table} (input, header) VALUES ('SELECT concat(current_user, ''/'', session_user)', false) RETURNING id"
    );
    let id: i64 = client.query_one(&insert, &[]).expect("insert").get(0);
    let text = format!("SELECT output FROM {table} WHERE id = $1 AND state = 'DONE'");
    mill.wait("the task is done")
        .within(SOON)
        .until(|| client.query_opt(&text, &[&id]).expect("the query").map(|row| row.get::<_, String>(0)))
}

#[test]
fn a_queue_runs_as_its_tables_owner_and_the_launchers_login_runs_none() {
    let cluster = Cluster::start();
    deployed(&cluster);
    install(&cluster, OWNER);
    let mut root = cluster.connect("app");
    must(
        &mut root,
        &format!("GRANT CREATE ON DATABASE app TO {LOGIN}; CREATE ROLE locked; SELECT mill.admit('{LOGIN}')"),
    );
    make_table(&mut enter(&cluster, LOGIN), "own");
    make_table(&mut root, "super");
    make_table(&mut enter(&cluster, OWNER), "locked");
    must(&mut root, "ALTER TABLE locked.task OWNER TO locked");
    // a table that only has the trigger: its owner did not make a queue of it
    must(
        &mut enter(&cluster, OWNER),
        "CREATE SCHEMA orders; CREATE TABLE orders.task (id int, text text); \
         CREATE TRIGGER mill_wakeup_insert AFTER INSERT ON orders.task EXECUTE FUNCTION public.mill_wakeup()",
    );
    let mill = launcher(&cluster);
    let mut client = enter(&cluster, OWNER);
    assert_eq!(ran_as(&mill, &mut client, "public.task"), format!("{OWNER}/{OWNER}"));
    let own = why(&mill, "own", &["not served", "\"mill\"", "ALTER TABLE \"own\".\"task\" OWNER TO", "\"user\""]);
    assert!(mill.log_contains("queue is not served"), "{own}\n{}", mill.describe());
    why(&mill, "super", &["superuser \"postgres\"", "ALTER TABLE", "\"user\""]);
    why(&mill, "locked", &["role \"locked\"", "cannot log in", "ALTER ROLE \"locked\" LOGIN"]);
    // a START does not help
    must(&mut client, "SELECT mill.start()");
    assert_eq!(row(&mill, "own").expect("a row")["state"], "DISABLED");
    assert_eq!(row(&mill, "orders"), None);
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'orders.task'::regclass AND attnum > 0";
    assert_eq!(root.query_one(columns, &[]).expect("the query").get::<_, i64>(0), 2);
    // handed to a role of its own, it is served as that
    must(&mut root, &format!("ALTER SCHEMA own OWNER TO {OWNER}; ALTER TABLE own.task OWNER TO {OWNER}"));
    assert_eq!(ran_as(&mill, &mut client, "own.task"), format!("{OWNER}/{OWNER}"));
    must(&mut root, "ALTER ROLE locked LOGIN; GRANT USAGE ON SCHEMA locked TO locked");
    why(&mill, "locked", &["neither admitted", "GRANT \"locked\" TO \"mill\"", "SELECT mill.admit('locked')"]);
    must(&mut client, "SELECT mill.admit('locked')");
    assert_eq!(ran_as(&mill, &mut root, "locked.task"), "locked/locked");
    // and back again it is served no more
    must(&mut root, &format!("ALTER TABLE own.task OWNER TO {LOGIN}"));
    why(&mill, "own", &["not served"]);
    // work on the catalog restarts schedulers, but none of this queue
    must(&mut root, "BEGIN; LOCK TABLE mill.meta; COMMIT");
    mill.wait("its scheduler has ended")
        .within(SOON)
        .until(|| row(&mill, "own").is_some_and(|row| row["state"] == "DISABLED"));
}

#[test]
fn a_row_that_names_a_user_serves_what_that_user_may() {
    let cluster = Cluster::start();
    deployed(&cluster);
    // a superuser's table may be served by anybody
    install(&cluster, "postgres");
    let mill = star(cluster.server().conninfo(LOGIN)).queue(json!({"data": "*", "user": OWNER})).start();
    let mut root = cluster.connect("app");
    must(&mut root, &format!("GRANT ALL ON public.task, public.task_id_seq TO {OWNER}"));
    assert_eq!(ran_as(&mill, &mut root, "public.task"), format!("{OWNER}/{OWNER}"));
    must(&mut root, "CREATE SCHEMA foreign_hands AUTHORIZATION stranger");
    make_table(&mut root, "strange");
    must(&mut root, "ALTER TABLE strange.task OWNER TO stranger; GRANT USAGE ON SCHEMA strange TO PUBLIC");
    why(&mill, "strange", &["role \"stranger\"", "neither admitted"]);
    must(&mut root, &format!("GRANT stranger TO {LOGIN}"));
    why(&mill, "strange", &["belongs to \"stranger\"", "set the queue's user to \"stranger\""]);
}

#[test]
fn an_owner_without_a_password_is_named_with_the_place_for_it() {
    let cluster = Cluster::configure().tcp().start();
    deployed(&cluster);
    install(&cluster, OWNER);
    must(
        &mut cluster.connect("postgres"),
        &format!("ALTER ROLE {LOGIN} PASSWORD 'one'; ALTER ROLE {OWNER} PASSWORD 'two'"),
    );
    let workdir = Workdir::new();
    let port = cluster.server().port;
    let passfile = workdir.write("pass", &format!("127.0.0.1:{port}:*:{LOGIN}:one\n"));
    let connect = format!("host=127.0.0.1 port={port} user={LOGIN} passfile={}", passfile.display());
    let mill = star(connect).queue(json!({"data": "*"})).start();
    why(
        &mill,
        "public",
        &["password", &format!("as \"{OWNER}\", the owner of its table"), "password file", "\"user\""],
    );
    assert!(mill.log_contains("queue is not served"), "{}", mill.describe());
    workdir.write("pass", &format!("127.0.0.1:{port}:*:{LOGIN}:one\n127.0.0.1:{port}:app:{OWNER}:two\n"));
    assert_eq!(ran_as(&mill, &mut enter(&cluster, OWNER), "public.task"), format!("{OWNER}/{OWNER}"));
}

#[test]
fn index_predicates_of_a_strangers_schema_mill_never_run_as_the_launcher() {
    a_strangers_schema_mill_runs_nothing_as_the_launcher("");
}

/// Policies alone: our sessions refuse to read a table that has some, and then its predicates never run.
#[test]
fn policies_of_a_strangers_schema_mill_never_run_as_the_launcher() {
    a_strangers_schema_mill_runs_nothing_as_the_launcher(
        "ALTER TABLE mill.meta ENABLE ROW LEVEL SECURITY; ALTER TABLE mill.queue ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY meta ON mill.meta USING (mill.note()); CREATE POLICY queue ON mill.queue USING (mill.note())",
    );
}

fn a_strangers_schema_mill_runs_nothing_as_the_launcher(more: &str) {
    let cluster = Cluster::start();
    deployed(&cluster);
    let mut root = cluster.connect("app");
    must(&mut root, "CREATE TABLE public.record (who text); GRANT INSERT ON public.record TO PUBLIC");
    // Everything that reading or planning can run notes its user.
    let trap = "CREATE SCHEMA mill; GRANT USAGE ON SCHEMA mill TO PUBLIC; \
        CREATE FUNCTION mill.note() RETURNS bool LANGUAGE plpgsql SECURITY INVOKER AS \
            $$BEGIN INSERT INTO public.record VALUES (current_user), (session_user); RETURN true; END$$; \
        CREATE FUNCTION mill.trap() RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN mill.note(); END$$; \
        CREATE TABLE mill.meta (version text, enabled bool NOT NULL DEFAULT true); \
        CREATE TABLE mill.queue (relid oid, schema name, name name, owner name); \
        CREATE INDEX ON mill.meta (version) WHERE mill.trap(); CREATE INDEX ON mill.queue (relid) WHERE mill.trap(); \
        INSERT INTO mill.meta VALUES ('0.1.0'); \
        CREATE FUNCTION mill.s_version() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS \
            $$BEGIN PERFORM mill.note(); RETURN '0.1.0'; END$$; \
        GRANT SELECT ON ALL TABLES IN SCHEMA mill TO PUBLIC";
    let mut stranger = enter(&cluster, "stranger");
    must(&mut stranger, &format!("{trap}; {more}"));
    make_table(&mut stranger, "strange");
    must(&mut root, "INSERT INTO mill.queue VALUES ('strange.task'::regclass, 'strange', 'task', 'stranger')");
    must(&mut root, "TRUNCATE public.record");
    let mill = launcher(&cluster);
    let mut noted = || {
        let text = "SELECT DISTINCT who FROM public.record";
        let who: Vec<String> = root.query(text, &[]).expect("the query").iter().map(|row| row.get(0)).collect();
        assert!(!who.iter().any(|who| who == LOGIN), "{who:?}\n{}", mill.describe());
    };
    // a table that is found shows that the database has been looked at
    mill.wait("it has been looked at").within(SOON).until(|| {
        noted();
        row(&mill, "strange").is_some()
    });
    make_table(&mut stranger, "last");
    mill.wait("and again").within(SOON).until(|| {
        noted();
        row(&mill, "last").is_some()
    });
    noted();
}

#[test]
fn a_catalog_without_a_table_is_no_queue_and_none_is_made() {
    let cluster = Cluster::start();
    deployed(&cluster);
    let mut client = enter(&cluster, OWNER);
    must(&mut client, &format!("BEGIN; {}; COMMIT", shared::db::catalog::text(env!("CARGO_PKG_VERSION"))));
    let mill = launcher(&cluster);
    mill.wait_ready();
    let told = mill.command(&["start", "app"]);
    let text = String::from_utf8_lossy(&told.stderr).into_owned() + &String::from_utf8_lossy(&told.stdout);
    assert_eq!(told.status.code(), Some(1), "{text}");
    assert!(text.contains("no task table") && text.contains("launcher install --print"), "{text}");
    assert_eq!(row(&mill, "public"), None);
    let made = "SELECT to_regclass('public.task')::text";
    assert_eq!(client.query_one(made, &[]).expect("the query").get::<_, Option<String>>(0), None);
    // one that comes is found
    must(&mut client, &shared::db::catalog::task_text());
    let told = mill.command(&["start", "app"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert_eq!(ran_as(&mill, &mut client, "public.task"), format!("{OWNER}/{OWNER}"));
}

#[test]
fn check_names_queues_that_would_not_be_served() {
    let cluster = Cluster::start();
    deployed(&cluster);
    install(&cluster, OWNER);
    let mut root = cluster.connect("app");
    must(&mut root, &format!("GRANT CREATE ON DATABASE app TO {LOGIN}"));
    make_table(&mut enter(&cluster, LOGIN), "own");
    let workdir = Workdir::new();
    let config = json!({"connect": cluster.server().conninfo(LOGIN), "json": [{"data": "*"}]});
    workdir.write("mill.json", &config.to_string());
    let check = || workdir.run(&["check", "--connect", "--config", "mill.json"]);
    let said = check();
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stdout.contains(&format!("app public.task as \"{OWNER}\": ok")), "{}", said.all());
    assert!(said.stderr.contains("app own.task as \"mill\": not served"), "{}", said.all());
    must(&mut root, &format!("ALTER TABLE own.task OWNER TO {OWNER}; ALTER SCHEMA own OWNER TO {OWNER}"));
    let said = check();
    assert_eq!(said.code, Some(0), "{}", said.all());
}
