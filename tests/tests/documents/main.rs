//! The documents for users, run: commands that they show are executed on a real server with a real launcher, and the
//! output is compared with what they show.
//!
//! A block is run if its info string has the word `run`; `runner.rs` has the other words. Each document has a test and a
//! launcher of its own, shared by its blocks. Blocks of SQL or shell that are not run are listed in [`NOT_RUN`].
#![forbid(unsafe_code)]

mod block;
mod output;
mod runner;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use block::{Block, blocks};
use runner::Runner;
use serde_json::Value;

/// Blocks of commands that are not run: the document, the first line of the block, the reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "docs/install.md",
        "GRANT CONNECT, CREATE ON DATABASE app TO app_tasks;   -- CREATE: for the catalog, see below",
        "the alternative to the block before it",
    ),
    (
        "README.md",
        "$ scripts/run       # builds pgmill, starts a private PostgreSQL in ./mill-data, runs a task, stays until Ctrl-C",
        "they build the program; the example of a task below uses what scripts/run starts",
    ),
    ("docs/install.md", "$ cargo build --release -p launcher", "the tests use the build under test"),
    (
        "docs/install.md",
        "$ install -d -o root -g pgmill -m 0750 /etc/pgmill",
        "it changes the machine; service_manager.rs tests the unit",
    ),
    ("docs/install.md", "$ launcher install app --config mill.json", "the catalog is there already"),
];

/// The most that a document may have, in bytes.
const SIZES: &[(&str, u64)] = &[("README.md", 8 * 1024), ("ARCHITECTURE.md", 12 * 1024)];

/// A queue without a user would run as the launcher's login.
#[test]
fn the_example_config_has_no_mistake_and_a_user_for_every_queue() {
    let example = top().join("mill.example.json");
    let output = Command::new(tests::binary::launcher()).arg("check").arg("--config").arg(&example).output();
    let output = output.expect("run launcher check");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let config: Value = serde_json::from_str(&fs::read_to_string(example).expect("the example")).expect("JSON");
    let queues = config["json"].as_array().expect("queues");
    assert!(!queues.is_empty() && queues.iter().all(|queue| queue["user"].is_string()), "{queues:?}");
}

/// The top of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(document: &str) -> Vec<Block> {
    let text = fs::read_to_string(top().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
    blocks(document, &text)
}

/// README.md and the documents of docs/, not those of its folders.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned()];
    for entry in fs::read_dir(top().join("docs")).expect("the folder docs") {
        let name = entry.expect("an entry of docs").file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            found.push(format!("docs/{name}"));
        }
    }
    found.sort();
    found
}

#[test]
fn readme() {
    let runner = Runner::embedded().file("docs/examples/etl.json");
    let script = fs::read_to_string(top().join("scripts/run")).expect("scripts/run");
    // the task that scripts/run inserts, so that the numbers are those that a reader sees
    let first = script.split("sql \"").nth(1).and_then(|rest| rest.split('"').next()).expect("its first statement");
    runner.shell_sql(first);
    runner.run(&read("README.md"));
}

#[test]
fn install() {
    Runner::server().run(&read("docs/install.md"));
}

#[test]
fn tasks() {
    Runner::served().run(&read("docs/tasks.md"));
}

#[test]
fn jobs() {
    Runner::served().run(&read("docs/jobs.md"));
}

#[test]
fn graphs() {
    Runner::served().file("docs/examples/etl.json").at("docs").run(&read("docs/graphs.md"));
}

#[test]
fn remote() {
    let runner = Runner::prepared();
    for statement in ["CREATE ROLE app LOGIN PASSWORD 'secret'", "CREATE DATABASE reports OWNER app"] {
        runner.administer("postgres", statement);
    }
    let (socket, remote) = (
        runner.socket(),
        "host=reports.example user=app password=secret dbname=reports sslmode=verify-full \
        sslrootcert=/etc/ssl/reports.crt",
    );
    let entry = format!("{socket} user=app dbname=reports");
    let login = format!("{socket} user=mill");
    let runner = runner.with(remote, &entry).with("host=db.example port=5432 user=mill", &login);
    runner.run(&read("docs/remote.md"));
}

#[test]
fn operations() {
    Runner::served().run(&read("docs/operations.md"));
}

#[test]
fn coming_from_timescaledb_and_pg_cron() {
    let runner = Runner::configured();
    for statement in [
        "CREATE SCHEMA cron; GRANT USAGE ON SCHEMA cron TO mill",
        // the table of pg_cron 1.4, as a restored copy
        "CREATE TABLE cron.job (jobid bigserial PRIMARY KEY, schedule text, command text, nodename text DEFAULT 'localhost', \
         nodeport int DEFAULT current_setting('port')::int, database text DEFAULT current_database(), username text, \
         active bool DEFAULT true, jobname name)",
        "INSERT INTO cron.job (jobname, schedule, command, username) VALUES \
             ('nightly', '0 3 * * *', 'VACUUM', 'postgres'), \
             ('sales', '*/10 8-18 * * 1-5', 'REFRESH MATERIALIZED VIEW sales', 'app_tasks'), \
             (NULL, '0 0 1 * *', 'CALL close_month()', 'app_tasks'), \
             ('warm', '@reboot', 'SELECT 1', 'app_tasks')",
        "GRANT SELECT ON cron.job TO mill",
    ] {
        runner.administer("app", statement);
    }
    runner.run(&read("docs/coming-from-timescaledb-and-pg_cron.md"));
}

#[test]
fn copies_of_example_files_are_the_files() {
    for document in documents() {
        for block in read(&document) {
            let Some(path) = block.value("same-as") else { continue };
            let file = fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(block.text, file, "{block} shows {path}");
        }
    }
}

#[test]
fn the_reference_names_every_column_that_users_meet() {
    let runner = Runner::served();
    let sql = "SELECT attname FROM pg_attribute WHERE attrelid IN ('task'::regclass, 'mill.job'::regclass, 'mill.run'::regclass, \
               'mill.job_status'::regclass) AND attnum > 0 AND NOT attisdropped";
    let reference = fs::read_to_string(top().join("docs/reference.md")).expect("the reference");
    let words: HashSet<&str> = reference.split(|char: char| !char.is_alphanumeric() && char != '_').collect();
    let missing: Vec<String> = runner.ask(sql).into_iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/reference.md does not name {missing:?}");
}

#[test]
fn every_block_of_commands_is_run_or_listed_with_a_reason() {
    let mut listed = NOT_RUN.to_vec();
    for document in documents() {
        for block in read(&document).iter().filter(|block| block.is_command() && !block.has("run")) {
            let place = listed.iter().position(|(name, line, _)| *name == document && *line == block.first_line());
            let place = place.unwrap_or_else(|| panic!("{block} is not run: {}", block.first_line()));
            listed.remove(place);
        }
    }
    assert!(listed.is_empty(), "listed as not run, and no longer there: {listed:?}");
}

#[test]
fn documents_that_everybody_reads_are_short() {
    for (document, most) in SIZES {
        let size = fs::metadata(top().join(document)).unwrap_or_else(|error| panic!("{document}: {error}")).len();
        assert!(size <= *most, "{document} has {size} bytes, more than {most}");
    }
}
