//! Names as users may choose them: quotes, blanks, upper case, an attack, placeholders of
//! our own statements, another alphabet. For databases, roles, schemas, tables and groups.

use serde_json::{Value, json};
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor};

use crate::ledger;

const NAMES: [&str; 8] = [
    "with \"quotes\"",
    "It's",
    " blank s ",
    "UPPER",
    "\"; DROP TABLE public.x; --",
    "задача 表",
    "back\\slash",
    "{queue}",
];

/// The names of tables that collide with those of our statements' placeholders.
const PLACEHOLDERS: [&str; 3] = ["{state}", "{default_active}", "$1"];

fn row(database: &Database, schema: &str, table: &str) -> Value {
    json!({"data": database.name(), "user": database.owner(), "schema": schema, "table": table, "sleep": 50})
}

fn table(schema: &str, table: &str) -> String {
    format!("{}.{}", quote_ident(schema), quote_ident(table))
}

/// Inserts a task there and waits for its output.
#[track_caller]
fn runs_in(supervisor: &Supervisor<'_>, database: &Database, table: &str, group: &str) {
    let mut owner = database.connect();
    let insert = format!("INSERT INTO {table} (input, \"group\") VALUES ('SELECT 7', $1) RETURNING id");
    let id: i64 = owner.query_one(&insert, &[&group]).expect("insert").get(0);
    let what = format!("the task in {table} is done");
    supervisor.eventually(&what, || {
        let sql = format!("SELECT output FROM {table} WHERE id = $1 AND state = 'DONE'");
        let rows = database.query(&sql, &[&id])?;
        rows.first().map(|row| assert_eq!(row.get::<_, String>(0), "7"))
    });
}

#[test]
fn schemas_tables_and_groups_may_have_any_name() {
    let database = Cluster::shared().database();
    database.connect().batch_execute("CREATE TABLE public.x (a int)").expect("make a table to lose");
    let mut launch = Supervisor::bare().key("max_workers", 32);
    let pairs = NAMES.iter().zip(NAMES.iter().rev()).chain(PLACEHOLDERS.iter().zip(&PLACEHOLDERS));
    let pairs: Vec<(&str, &str)> = pairs.map(|(schema, table)| (*schema, *table)).collect();
    for (schema, table) in &pairs {
        launch = launch.queue(row(&database, schema, table));
    }
    let connect = database.server().conninfo(database.login());
    let supervisor = launch.key("connect", connect).start();
    for (schema, name) in &pairs {
        let table = table(schema, name);
        supervisor.eventually(&format!("{table} is made"), || {
            database
                .query("SELECT 1 FROM pg_class WHERE oid = to_regclass($1)", &[&table])
                .filter(|rows| !rows.is_empty())
        });
        runs_in(&supervisor, &database, &table, schema);
    }
    let left = database.query("SELECT to_regclass('public.x') IS NOT NULL", &[]).expect("the server is there");
    assert!(left[0].get::<_, bool>(0), "public.x is still there");
    assert_eq!(supervisor.schedulers().len(), pairs.len());
    let title = format!("pgmill: scheduler {} UPPER.{}", database.name(), NAMES[4]);
    assert!(supervisor.schedulers().iter().any(|scheduler| scheduler.title == title), "{:?}", supervisor.schedulers());
}

#[test]
fn databases_and_roles_may_have_any_name() {
    let cluster = Cluster::shared();
    let databases: Vec<Database> =
        NAMES.iter().map(|name| cluster.database_named(&format!("{name} d"), &format!("{name} r"))).collect();
    let mut launch = Supervisor::bare().key("max_workers", 32);
    for database in &databases {
        launch = launch.and(database);
    }
    let supervisor = launch.queue_key("sleep", 50).start();
    for database in &databases {
        runs_in(&supervisor, database, "public.task", "group");
        assert!(
            supervisor.status().is_some_and(|status| status.to_string().contains(&json!(database.name()).to_string()))
        );
    }
}

#[test]
fn a_killed_workers_task_is_settled_whatever_its_names_are() {
    let name = NAMES[4];
    let database = Cluster::shared().database_named(&format!("{name} k"), &format!("{name} kr"));
    let supervisor =
        Supervisor::of(&database).queue_key("sleep", 50).queue_key("schema", name).queue_key("table", name).start();
    let table = table(name, name);
    let insert = format!("INSERT INTO {table} (input) VALUES ('SELECT pg_sleep(100)')");
    database.connect().batch_execute(&insert).expect("insert");
    let attempt = |number: i32| {
        let sql = format!("SELECT 1 FROM {table} WHERE state = 'WORK' AND attempt = $1");
        database.query(&sql, &[&number]).is_some_and(|rows| rows.len() == 1)
    };
    supervisor.eventually("it runs", || attempt(1) && supervisor.workers().len() == 1);
    supervisor.kill9(supervisor.workers()[0].pid);
    supervisor.eventually("it runs again", || attempt(2));
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler", "worker"]);
}

#[test]
fn databases_in_other_encodings_keep_their_bytes() {
    let owner = Cluster::shared().database();
    let encodings = ["LATIN1", "SQL_ASCII"];
    let names = encodings.map(|encoding| format!("{}_{}", owner.name(), encoding.to_lowercase()));
    let mut launch = Supervisor::bare().key("connect", owner.server().conninfo(owner.login()));
    for (name, encoding) in names.iter().zip(encodings) {
        owner.run(&format!(
            "CREATE DATABASE {name} OWNER {} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
            owner.owner()
        ));
        launch = launch.queue(json!({"data": name, "user": owner.owner(), "sleep": 50}));
    }
    let supervisor = launch.start();
    for name in &names {
        let mut client = owner.server().try_connect(owner.owner(), name).expect("connect");
        // one byte that is no UTF-8: in a result, an input, a group, a header and an error
        let insert = r#"INSERT INTO public.task (input, quote, "group") VALUES
            ('SELECT chr(233), ' || quote_literal(chr(233)) || ' AS ' || chr(233), '|', chr(233)),
            ('SELECT 1/0 AS ' || chr(233), '', 'other')"#;
        supervisor.eventually("the table is made", || client.batch_execute(insert).is_ok());
        let sql = r"SELECT
            (SELECT state = 'DONE' AND output = replace(E'|chr|\t|e|\n|e|\t|e|', 'e', chr(233))
               FROM public.task WHERE id = 1)
            AND (SELECT state = 'FAIL' AND error = E'ERROR:  division by zero\nSTATEMENT:  ' || input
               FROM public.task WHERE id = 2)";
        supervisor
            .eventually("the texts are as they were", || client.query_one(sql, &[]).expect("query").get::<_, bool>(0));
    }
    drop(supervisor);
    for name in &names {
        owner.run(&format!("DROP DATABASE {name} WITH (FORCE)"));
    }
}
