//! The history of runs: what mill.run shows, and that the server finds it by its indexes, however much there is.

use postgres::{Client, SimpleQueryMessage};
use serde_json::Value;
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor};

use crate::job_fixture::{self, insert, runs};
use crate::queries::{one, refusal};

#[test]
fn a_run_shows_its_job_flow_and_sqlstate_and_keeps_them_when_its_row_is_gone() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    database.run("INSERT INTO mill.flow (name, owner) SELECT 'f', pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'mill'");
    let good = insert(&database, "good", "flow, input", "'f', 'SELECT 7 AS n'");
    let bad = insert(&database, "bad", "input", "'SELECT 1 / 0'");
    let slow = insert(&database, "slow", "input, timeout", "'SELECT pg_sleep(100)', '200 ms'");
    let mut client = database.connect();
    let mut run =
        |job: i32| -> i64 { client.query_one(&format!("SELECT mill.run_job({job})"), &[]).expect("run").get(0) };
    let (first, second, third) = (run(good), run(bad), run(slow));
    for (job, state) in [(good, "succeeded"), (bad, "failed"), (slow, "failed")] {
        mill.eventually("it has run", || runs(&database, job) == [state]);
    }
    database.run("DELETE FROM public.task; UPDATE mill.job SET name = 'better' WHERE name = 'good'");
    let told = |id: i64| -> String {
        one(
            &database,
            &format!(
                "SELECT concat_ws(' ', name, COALESCE(flow, '-'), queue, state, COALESCE(sqlstate, '-'), attempt, definition, \
                 start <= stop, task IS NOT NULL, run_of = id, COALESCE(reason, '-')) FROM mill.run WHERE id = {id}"
            ),
        )
    };
    assert_eq!(told(first), "better f public.task succeeded - 1 SELECT 7 AS n t t t -");
    assert_eq!(told(second), "bad - public.task failed 22012 1 SELECT 1 / 0 t t t -");
    assert_eq!(told(third), "slow - public.task failed 57014 1 SELECT pg_sleep(100) t t t timeout");
    let (error, output): (String, String) = {
        let rows = database.query("SELECT error, output FROM mill.run WHERE state = 'failed' AND name = 'bad'", &[]);
        let rows = rows.expect("an answer");
        (rows[0].get(0), rows[0].get(1))
    };
    assert!(error.starts_with("ERROR:  division by zero"), "{error}");
    assert_eq!(output, "");
    assert_eq!(one::<String>(&database, &format!("SELECT output FROM mill.run WHERE id = {first}")), "7");
    assert!(refusal(&mut client, "UPDATE mill.job SET id = 99").contains("cannot be set"));
    assert!(refusal(&mut client, "INSERT INTO mill.job (id, name) VALUES (99, 'chosen')").contains("cannot be set"));
}

/// As many jobs and runs as are asked for, half of them of another owner, one run a second, every hundredth failed.
fn fill(database: &Database, member: &str, jobs: i64, count: i64) {
    let owner = database.owner();
    database.run(&format!(
        "SET session_replication_role = replica; \
         INSERT INTO mill.job (id, name, queue, owner, input) SELECT i, 'job ' || i, 'public.task', \
           CASE WHEN i % 2 = 0 THEN '{member}' ELSE '{owner}' END, 'SELECT 1' FROM generate_series(1, {jobs}) AS i; \
         RESET session_replication_role; \
         INSERT INTO mill_private.job_state (job, queue, scheduled) SELECT id, 'public.task'::regclass, true FROM mill.job; \
         INSERT INTO mill_private.run (job, owner, queue, at, due, ordered, task, start, stop, outcome, definition) \
         SELECT j.id, j.owner, 'public.task'::regclass, now(), now(), false, i, now() - i * interval '1 s', \
           now() - i * interval '1 s', CASE WHEN i / {jobs} % 100 = 7 THEN 'failed' ELSE 'succeeded' END, 'SELECT 1' \
           FROM generate_series({count}, 1, -1) AS i JOIN mill.job j ON j.id = 1 + i * 7919 % {jobs}; \
         ANALYZE mill.job; ANALYZE mill_private.run"
    ));
}

/// The relations that a plan reads from end to end.
fn whole_scans(plan: &Value, found: &mut Vec<String>) {
    if plan["Node Type"].as_str().is_some_and(|node| node.ends_with("Seq Scan")) {
        found.extend(plan["Relation Name"].as_str().map(str::to_owned));
    }
    for part in plan["Plans"].as_array().into_iter().flatten() {
        whole_scans(part, found);
    }
}

#[track_caller]
fn explain(client: &mut Client, query: &str) -> Value {
    let answer = client.simple_query(&format!("EXPLAIN (FORMAT JSON) {query}")).expect("EXPLAIN");
    let text = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    serde_json::from_str(text.expect("a plan")).expect("JSON")
}

#[test]
fn the_server_finds_runs_by_indexes_for_a_member_and_for_the_owner() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    drop(mill);
    let member = format!("{}_member", database.owner());
    let role = quote_ident(&member);
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT INSERT ON public.task TO {role}; SELECT mill.grant('{member}', 'use')"
    ));
    fill(&database, &member, 3_000, 60_000);
    let version: i32 = one(&database, "SELECT current_setting('server_version_num')::int");
    let mut queries = vec![
        "SELECT * FROM mill.run WHERE job = 1000",
        "SELECT * FROM mill.run WHERE name = 'job 1000'",
        "SELECT * FROM mill.run WHERE state = 'failed' AND stop > now() - interval '1 hour'",
        "SELECT * FROM mill.run WHERE state IN ('failed', 'crashed') AND stop > now() - interval '1 hour'",
    ];
    // see part `job_face` of the catalog: before version 15 the view keeps a join and a LIMIT away from the indexes
    if version >= 150_000 {
        queries.push("SELECT * FROM mill.run ORDER BY id DESC LIMIT 20");
        queries.push("SELECT r.* FROM mill.run r JOIN mill.job j ON j.id = r.job WHERE j.name = 'job 1000'");
        queries.push("SELECT r.* FROM mill.run r JOIN mill.job j ON j.name = r.name WHERE j.name = 'job 1000'");
    }
    for login in [member.as_str(), database.owner()] {
        let mut client = database.server().try_connect(login, database.name()).expect("connect");
        for query in &queries {
            let plan = explain(&mut client, query);
            let mut found = Vec::new();
            whole_scans(&plan[0]["Plan"], &mut found);
            found.retain(|relation| relation == "run");
            assert!(found.is_empty(), "{login}: {query}: {plan:#}");
        }
        // half of the jobs are the member's, and all of them his who owns the catalog
        let seen: i64 = client.query_one("SELECT count(*) FROM mill.run", &[]).expect("a count").get(0);
        assert_eq!(seen, if login == member { 30_000 } else { 60_000 }, "{login}");
    }
    database.run("DELETE FROM mill_private.run; DELETE FROM mill.job");
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
