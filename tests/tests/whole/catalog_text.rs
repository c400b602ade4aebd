//! The text of the catalog: its parts in order, a comment on everything, and its schema as pg_dump writes it.

use std::fs;
use std::path::Path;
use std::process::Command;

use shared::VERSION;
use shared::db::catalog;
use tests::server_programs::bin;
use tests::skipping::skip;
use tests::{Cluster, Database};

use crate::queries::{all, one};

/// The schema as a reader sees it: what a fresh installation makes, with a first task table that is not registered yet.
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/sql/schema.sql");

/// Set to 1, the test writes that file.
const WRITE: &str = "PGMILL_WRITE_SCHEMA";

/// pg_dump writes the same schema differently in other versions.
const SCHEMA_MAJOR: i32 = 15;

/// How many functions users have to know at most.
const MOST_FUNCTIONS: i64 = 45;

fn installed() -> Database {
    let database = Cluster::shared().database();
    let (catalog, task) = (catalog::text(VERSION), catalog::task_text());
    database.run(&format!("BEGIN; SET LOCAL check_function_bodies = on; {catalog} {task}; COMMIT"));
    database
}

fn dump(database: &Database) -> String {
    let server = database.server();
    let mut command = Command::new(bin().join("pg_dump"));
    command.arg("-h").arg(&server.socket_folder).args(["-p", &server.port.to_string(), "-U", "postgres"]);
    command.args(["--schema-only", "--no-owner", "--no-privileges"]);
    command.args(["--schema=mill", "--schema=mill_private", "--schema=public", "-d", database.name()]);
    let output = command.output().expect("run pg_dump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let by_run = ["-- Dumped ", "\\restrict ", "\\unrestrict "];
    let mut lines: Vec<&str> =
        text.lines().filter(|line| !by_run.iter().any(|start| line.starts_with(start))).collect();
    lines.dedup_by(|next, line| next.is_empty() && line.is_empty());
    let head = "-- Generated: the catalog of a fresh installation and the task table public.task, as pg_dump of PostgreSQL 15 writes them.\n\
                -- A test compares it; PGMILL_WRITE_SCHEMA=1 makes that test write it. The sources are in catalog/parts. Registering a queue\n\
                -- adds its entry points, mill_private.q<oid>_*, and the row triggers of jobs.";
    format!("{head}\n{}\n", lines.join("\n").trim_end())
}

#[test]
fn the_schema_in_the_sources_is_that_of_a_fresh_installation() {
    let database = installed();
    let version: i32 = one(&database, "SELECT current_setting('server_version_num')::int / 10000");
    if version != SCHEMA_MAJOR {
        skip("the comparison of schema.sql", &format!("it is for PostgreSQL {SCHEMA_MAJOR}, and this is {version}"));
        return;
    }
    let made = dump(&database);
    if std::env::var(WRITE).as_deref() == Ok("1") {
        fs::write(SCHEMA, &made).expect("write schema.sql");
    }
    let kept = fs::read_to_string(Path::new(SCHEMA)).unwrap_or_default();
    let different: Vec<_> = made.lines().zip(kept.lines()).filter(|(made, kept)| made != kept).take(5).collect();
    assert!(made == kept, "shared/sql/schema.sql is out of date; {WRITE}=1 writes it: {different:#?}");
}

#[test]
fn every_function_body_compiles() {
    let database = installed();
    // CREATE FUNCTION has checked each body against what was there by then; now all is there
    let bodies: i64 = one(
        &database,
        "SELECT count(*) FROM (SELECT plpgsql_validator(p.oid) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
          WHERE l.lanname = 'plpgsql' AND p.pronamespace::regnamespace::text IN ('mill', 'mill_private') OFFSET 0) AS checked",
    );
    assert!(bodies > 100, "{bodies}");
}

#[test]
fn everything_in_the_catalog_has_a_comment() {
    let database = installed();
    let bare: Vec<String> = all(
        &database,
        "SELECT p.oid::regprocedure::text FROM pg_proc p \
          WHERE p.pronamespace::regnamespace::text IN ('mill', 'mill_private') AND obj_description(p.oid, 'pg_proc') IS NULL \
         UNION ALL \
         SELECT c.oid::regclass::text FROM pg_class c \
          WHERE c.relnamespace::regnamespace::text IN ('mill', 'mill_private') AND c.relkind IN ('r', 'v') \
            AND obj_description(c.oid, 'pg_class') IS NULL \
         UNION ALL \
         SELECT c.oid::regclass || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
          WHERE a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL \
            AND (c.relnamespace::regnamespace::text = 'mill' AND c.relkind IN ('r', 'v') \
                 OR c.relnamespace::regnamespace::text = 'mill_private' AND c.relkind = 'r') \
          ORDER BY 1",
    );
    assert!(bare.is_empty(), "{bare:#?}");
    let functions: i64 = one(&database, "SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'mill'::regnamespace");
    assert!(functions <= MOST_FUNCTIONS, "{functions} functions in the schema of users");
}
