//! `launcher apply`, `export` and `graph`: a flow as a document and as a picture.

use serde_json::{Value, json};
use tests::{Cluster, Supervisor};

use crate::graphs::{declare, ended, ready};
use crate::queries::{all, one};

fn document() -> Value {
    json!({
        "flow": "etl", "window": 4, "note": "every night",
        "timers": [{"name": "daily", "cron": "0 3 * * *", "timezone": "Europe/Paris", "start": "2026-01-01T00:00:00+00:00"}],
        "jobs": [{"name": "load", "input": "SELECT 1", "queue": "public.task", "max_retries": 2},
                 {"name": "sum", "input": "SELECT 1 / 0", "queue": "public.task"},
                 {"name": "alarm", "queue": "public.task", "threshold": 1}],
        "edges": [{"job": "load", "from_timer": "daily"}, {"job": "sum", "from_job": "load"},
                  {"job": "alarm", "from_job": "sum", "on": "failure"}, {"job": "load", "from_job": "load", "shift": "1 day", "first": true}],
    })
}

#[test]
fn a_document_makes_a_flow_and_comes_back_as_it_went() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let file = mill.home().join("etl.json");
    let apply = |document: &Value| {
        std::fs::write(&file, document.to_string()).expect("written");
        let output = mill.command(&["apply", file.to_str().expect("a path")]);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).trim().to_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    assert_eq!(apply(&document()), (Some(0), "flow \"etl\": 9 created, 0 changed, 0 unchanged, 0 removed".into()));
    assert_eq!(apply(&document()), (Some(0), "flow \"etl\": 0 created, 0 changed, 9 unchanged, 0 removed".into()));
    let exported = mill.command(&["export", "etl"]);
    let exported: Value = serde_json::from_slice(&exported.stdout).expect("JSON");
    assert_eq!(exported, document());
    // a mistake is named by its place, and nothing is changed
    let mut wrong = document();
    wrong["jobs"][1]["inptu"] = json!("x");
    wrong["note"] = json!("changed");
    let (status, said) = apply(&wrong);
    assert!(status == Some(1) && said.contains("jobs[1].inptu: unknown key"), "{said}");
    assert_eq!(one::<String>(&database, "SELECT note FROM mill.flow"), "every night");
    // what is missing goes, what is different changes
    let mut less = document();
    less["jobs"][0]["input"] = json!("SELECT 2");
    less["jobs"].as_array_mut().expect("a list").pop();
    less["edges"].as_array_mut().expect("a list").remove(2);
    assert_eq!(apply(&less), (Some(0), "flow \"etl\": 0 created, 1 changed, 6 unchanged, 2 removed".into()));
    assert_eq!(all::<String>(&database, "SELECT name FROM mill.job ORDER BY id"), ["load", "sum"]);
    let (status, said) = apply(&json!({"flow": "other", "jobs": [{"name": "load"}]}));
    assert!(status == Some(1) && said.contains("\"load\" exists already and belongs to the flow etl"), "{said}");
    let none = mill.command(&["export", "nothing"]);
    assert!(
        !none.status.success() && String::from_utf8_lossy(&none.stderr).contains("flow \"nothing\" does not exist")
    );
}

#[test]
fn a_picture_shows_the_state_at_one_logical_time() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let file = mill.home().join("etl.json");
    std::fs::write(&file, document().to_string()).expect("written");
    assert!(mill.command(&["apply", file.to_str().expect("a path")]).status.success());
    declare(&database, "SELECT mill.fire('daily', '2026-01-01Z')");
    // the timer has fired for a later time, too
    mill.eventually("the alarm of that time has ended", || ended(&database, "alarm", "at = '2026-01-01Z'") == 1);
    let draw = |arguments: &[&str]| {
        let output = mill.command(arguments);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (status, dot, _) = draw(&["graph", "etl", "--at", "2026-01-01Z"]);
    assert_eq!(status, Some(0));
    for part in
        ["load\\nsucceeded", "sum\\nfailed", "alarm\\nany 1\\nsucceeded", "\"job load\" -> \"job sum\"", "+ 1 day"]
    {
        assert!(dot.contains(part), "{part} is not in\n{dot}");
    }
    let (_, other, _) = draw(&["graph", "etl", "--at", "2026-01-05Z"]);
    assert!(!other.contains("succeeded"), "{other}");
    let (status, svg, said) = draw(&["graph", "etl", "--at", "2026-01-01Z", "--svg"]);
    if std::process::Command::new("dot").arg("-V").output().is_err() {
        assert!(status == Some(1) && said.contains("install Graphviz"), "{said}");
        tests::skip("a picture of a flow", "Graphviz is not installed (scripts/test installs it where it may)");
        return;
    }
    assert_eq!(status, Some(0), "{said}");
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    // a node for every job and timer, an arrow for every edge, with the state at that time
    let count = |part: &str| svg.matches(part).count();
    assert_eq!((count("class=\"node\""), count("class=\"edge\"")), (4, 4), "{svg}");
    for word in ["load", "sum", "alarm", "daily", "succeeded", "failed", "any 1"] {
        assert!(svg.contains(word), "{word} is not in\n{svg}");
    }
}
