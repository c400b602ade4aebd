//! `launcher sql`: what it prints is what a server takes, with the parameters that it says.

use postgres::types::{Kind, Type};
use postgres::{Client, Transaction};
use tests::desk::Desk;
use tests::{Cluster, Supervisor};

use crate::asking::one;

/// They change the schema, so that they cannot stand prepared, in the order in which a queue is made.
const SCRIPTS: [&str; 10] = [
    "task/make_schema",
    "task/make_state",
    "task/make_table",
    "task/make_indexes",
    "task/make_triggers",
    "task/set_rights",
    "task/set_function_rights",
    "task/comment_table",
    "task/upgrade/make_hash_trigger",
    "job/make_run_triggers",
];

/// A printed form: what is said of its parameters, and the text.
struct Printed {
    parameters: String,
    text: String,
}

/// The forms of a statement, as the command prints them.
fn printed(desk: &Desk, arguments: &[&str], name: &str) -> Vec<Printed> {
    let shown = desk.run(&[&["sql", name], arguments].concat());
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{name}: {shown:?}");
    let mut forms: Vec<Printed> = Vec::new();
    for line in shown.stdout.lines() {
        if line.strip_prefix("-- ").is_some_and(|rest| rest == name || rest.starts_with(&format!("{name},"))) {
            forms.push(Printed { parameters: String::new(), text: String::new() });
            continue;
        }
        let form = forms.last_mut().unwrap_or_else(|| panic!("{name} begins with {line}"));
        match line.strip_prefix("-- $1 ") {
            Some(_) => form.parameters = line[3..].to_owned(),
            None => form.text += &format!("{line}\n"),
        }
    }
    forms
}

/// As the command words it.
fn described(place: usize, name: &str, kind: &Type) -> String {
    let element = |kind: &Type| match *kind {
        Type::INT8 => "bigint".to_owned(),
        Type::INT4 => "int".to_owned(),
        ref other => other.name().to_owned(),
    };
    let kind = match kind.kind() {
        Kind::Array(of) => format!("{}[]", element(of)),
        _ => element(kind),
    };
    format!("${place} {name} {kind}")
}

fn prepare(work: &mut Transaction<'_>, name: &str, form: &Printed) {
    let prepared = work.prepare(&form.text).unwrap_or_else(|error| panic!("{name}: {error:?}\n{}", form.text));
    let mut names = form.parameters.split(", ").map(|said| said.split(' ').nth(1).unwrap_or_default());
    let wanted = prepared.params().iter().enumerate();
    let wanted: Vec<String> =
        wanted.map(|(i, kind)| described(i + 1, names.next().unwrap_or_default(), kind)).collect();
    assert_eq!(form.parameters, wanted.join(", "), "{name}\n{}", form.text);
}

fn names(desk: &Desk) -> Vec<String> {
    let listed = desk.run(&["sql"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    listed.stdout.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_statement_is_printed_as_a_server_takes_it() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    mill.eventually("the catalog is there", || one::<bool>(&database, "SELECT to_regclass('mill.meta') IS NOT NULL"));
    drop(mill);
    let desk = Desk::new();
    let mut client: Client = database.connect_superuser();
    let oid: u32 = one(&database, "SELECT 'public.task'::regclass::oid");
    let mut work = client.transaction().expect("begin");
    // what a foreign table and pg_cron have; in an older table the hash is a plain column
    work.batch_execute(
        "ALTER TABLE public.task ADD COLUMN \"user\" name, ALTER hash DROP EXPRESSION; CREATE SCHEMA cron; CREATE TABLE cron.job (jobid int)",
    )
    .expect("what some statements read");
    let mut forms = 0;
    for name in names(&desk).iter().filter(|name| !SCRIPTS.contains(&name.as_str())) {
        for form in printed(&desk, &[], name) {
            let text = form.text.replace("{oid}", &oid.to_string());
            prepare(&mut work, name, &Printed { text, ..form });
            forms += 1;
        }
    }
    assert!(forms > 120, "{forms} forms");
}

#[test]
fn the_statements_that_make_a_queue_make_that_of_the_config() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    mill.eventually("the catalog is there", || one::<bool>(&database, "SELECT to_regclass('mill.meta') IS NOT NULL"));
    drop(mill);
    let desk = Desk::new();
    let config = desk.write("mill.json", r#"[{"data":"app","user":"app","schema":"a :id","table":"it's {queue}"}]"#);
    let config = config.to_string_lossy().into_owned();
    let mut client = database.connect_superuser();
    let mut work = client.transaction().expect("begin");
    let user: u32 = work.query_one("SELECT oid FROM pg_roles WHERE rolname = current_user", &[]).expect("us").get(0);
    for name in SCRIPTS {
        for form in printed(&desk, &["--config", &config], name) {
            let table = work.query_one("SELECT to_regclass('\"a :id\".\"it''s {queue}\"')::oid", &[]).expect("a row");
            let oid = table.get::<_, Option<u32>>(0).unwrap_or_default().to_string();
            let text = form.text.replace("{oid}", &oid).replace("{user}", &user.to_string());
            if name == "task/upgrade/make_hash_trigger" {
                // It is for tables whose hash is a plain column.
                work.batch_execute("ALTER TABLE \"a :id\".\"it's {queue}\" ALTER hash DROP EXPRESSION").expect("plain");
            }
            work.batch_execute(&text).unwrap_or_else(|error| panic!("{name}: {error:?}\n{text}"));
        }
    }
    let made = work.query_one("SELECT count(*) FROM \"a :id\".\"it's {queue}\"", &[]).expect("the queue");
    assert_eq!(made.get::<_, i64>(0), 0);
}

#[test]
fn a_name_that_no_statement_has_is_a_mistake_of_usage() {
    let desk = Desk::new();
    for (name, hint) in
        [("clam_walk", "did you mean task/claim_walk?"), ("look_queue", "task/look_queue"), ("xyz", "launcher sql")]
    {
        let refused = desk.run(&["sql", name]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stdout.is_empty() && refused.stderr.contains(hint), "{refused:?}");
    }
    let bad = desk.write("mill.json", r#"[{"data":"app","sleeep":1}]"#);
    let refused = desk.run(&["sql", "claim_walk", "--config", &bad.to_string_lossy()]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
}
