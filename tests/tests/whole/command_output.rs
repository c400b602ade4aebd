//! What commands do when their output cannot be written: a full disk is an error, a reader who has seen enough is none.

use std::fs::OpenOptions;
use std::process::{Output, Stdio};

use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Supervisor};

/// Every write to it fails as on a full disk.
fn full_disk() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("/dev/full").into()
}

/// A pipe whose reader is gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_that_prints_reports_a_full_disk_and_ignores_a_closed_pipe() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let name = database.name();
    mill.eventually("the catalog is there", || database.query("SELECT FROM mill.meta", &[]).is_some());
    let flow = mill.home().join("etl.json");
    let document = json!({"flow": "etl", "jobs": [{"name": "load", "input": "SELECT 1"}], "timers": [], "edges": []});
    std::fs::write(&flow, document.to_string()).expect("write the flow");
    let flow = flow.to_string_lossy().into_owned();
    let applied = mill.command(&["apply", &flow]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    database.run(&format!(
        "CREATE SCHEMA cron; CREATE TABLE cron.job (jobid bigint, schedule text, command text, nodename text, nodeport int, \
         database text, username text, active bool, jobname name); \
         GRANT USAGE ON SCHEMA cron TO {0}; GRANT SELECT ON cron.job TO {0}",
        quote_ident(database.login())
    ));
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["check", "--help"],
        &["check"],
        &["check", "--connect"],
        &["status"],
        &["status", "--json"],
        &["status", "--wait", "30"],
        &["fsck", name],
        &["install", "--print"],
        &["install", name],
        &["upgrade", name],
        &["apply", &flow],
        &["export", "etl"],
        &["graph", "etl"],
        &["import", "pg_cron", "--database", name, "--dry-run"],
        &["import", "pg_cron", "--database", name],
        &["start", name],
        &["stop", name],
        &["restart", name],
        &["uninstall", name],
    ] {
        let refused = mill.command_into(arguments, full_disk());
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?} into a full disk: {said}");
        assert!(said.contains("cannot write the output: No space left on device"), "{arguments:?}: {said}");
        let unread = mill.command_into(arguments, closed_pipe());
        assert_eq!(unread.status.code(), Some(0), "{arguments:?} into a closed pipe: {}", stderr(&unread));
        assert_eq!(stderr(&unread), "", "{arguments:?}");
    }
}

#[test]
fn what_was_not_written_is_not_hidden_by_another_exit_status() {
    let mill = Supervisor::bare().config_text(r#"{"connect": "host=/nowhere", "json": [{"data": "a"}]}"#).launch();
    mill.eventually("it answers", || mill.command(&["status"]).status.code() != Some(3));
    let refused = mill.command_into(&["status"], full_disk());
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    // usage and mistakes of the config are told on stderr, which is fine
    assert_eq!(mill.command_into(&["stauts"], full_disk()).status.code(), Some(2));
}
