//! By hand: run, rerun, clear, cancel, skip, mark, fire, pause, resume; limits of a flow; values between tasks.

use std::time::Duration;

use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::asking::{all, one, refusal};
use crate::graphs::{balanced, declare, ended, ready, wait_ended};

const DAY: &str = "2026-01-01";

/// Two parents and their join, each noting that it ran; `gate` is waited for by `left`.
fn declare_join(database: &Database) {
    declare(
        database,
        "CREATE TABLE seen (job text, at timestamptz, id bigserial);
         CREATE TABLE bad (job text);
         BEGIN; INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name, input) SELECT 'f', n, format('BEGIN; INSERT INTO seen VALUES (%1$L, mill.at()); COMMIT; '
             'SELECT 1 / (1 - count(*)) FROM bad WHERE job = %1$L', n) FROM unnest(ARRAY['root', 'left', 'right', 'join', 'last']) AS n;
         INSERT INTO mill.job (flow, name) VALUES ('f', 'alarm');
         INSERT INTO mill.timer (name, start, period) VALUES ('daily', '2100-01-01Z', '1 day');
         INSERT INTO mill.edge (job, from_timer) VALUES ('root', 'daily');
         INSERT INTO mill.edge (job, from_job) VALUES ('left', 'root'), ('right', 'root'), ('join', 'left'), ('join', 'right'), ('last', 'join');
         INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('alarm', 'left', 'failure'); COMMIT",
    );
}

fn seen(database: &Database) -> Vec<String> {
    all(database, "SELECT job FROM seen ORDER BY job, id")
}

/// What the function says.
#[track_caller]
fn told(database: &Database, call: &str) -> String {
    let mut client = database.connect();
    let row = client.query_one(&format!("SELECT mill.{call}::text"), &[]);
    row.unwrap_or_else(|error| panic!("{call}: {error:?}")).get::<_, Option<String>>(0).unwrap_or_default()
}

#[test]
fn what_failed_is_run_again_with_all_that_follows_and_joins_are_seeded_from_outside() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare_join(&database);
    declare(&database, "INSERT INTO bad VALUES ('left')");
    told(&database, &format!("fire('daily', '{DAY}')"));
    wait_ended(&mill, &database, "alarm", 1);
    wait_ended(&mill, &database, "right", 1);
    assert_eq!(seen(&database), ["left", "right", "root"]);
    declare(&database, "DELETE FROM bad");
    // a rerun of only the failed job leads to nothing
    told(&database, &format!("rerun('left', '{DAY}', 'only')"));
    wait_ended(&mill, &database, "left", 2);
    steadily("it leads to nothing", Duration::from_millis(500), || ended(&database, "join", "true") == 0);
    // down from it: the join has the other parent's token already
    let said = told(&database, &format!("rerun(flow => 'f', at => '{DAY}', how => 'failed')"));
    assert_eq!(said, "nothing has failed", "its last run was the good one");
    let said = told(&database, &format!("rerun('left', '{DAY}')"));
    assert!(said.starts_with("1 job started"), "{said}");
    wait_ended(&mill, &database, "last", 1);
    assert_eq!(seen(&database), ["join", "last", "left", "left", "left", "right", "root"]);
    balanced(&database);
    // once more from the middle: what is above does not run again
    told(&database, &format!("rerun('join', '{DAY}')"));
    wait_ended(&mill, &database, "last", 2);
    assert_eq!(seen(&database), ["join", "join", "last", "last", "left", "left", "left", "right", "root"]);
    balanced(&database);
    let audit: Vec<String> = all(
        &database,
        "SELECT concat_ws(' ', action, job, flow, timer, how, made_by = session_user) FROM mill.command ORDER BY id",
    );
    assert_eq!(audit.len(), 5);
    assert_eq!(audit[4], "rerun join down f", "who did it is the row user, not who looks");
    let mut client = database.connect_superuser();
    assert!(refusal(&mut client, "UPDATE mill.command SET result = 'nothing'").contains("cannot be changed"));
}

#[test]
fn a_time_that_is_cleared_during_a_run_is_recorded_and_leads_to_nothing() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare_join(&database);
    declare(&database, "UPDATE mill.job SET input = 'SELECT pg_sleep(2)' WHERE name = 'root'");
    told(&database, &format!("fire('daily', '{DAY}')"));
    mill.eventually("the root runs", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'WORK'") == 1
    });
    let said = told(&database, &format!("clear('f', '{DAY}')"));
    assert_eq!(said, "6 jobs cleared; runs under way, which will deliver nothing: 1");
    // begun anew meanwhile
    told(&database, &format!("fire('daily', '{DAY}')"));
    wait_ended(&mill, &database, "last", 1);
    wait_ended(&mill, &database, "root", 2);
    steadily("the cleared run leads to nothing", Duration::from_millis(500), || {
        seen(&database) == ["join", "last", "left", "right"]
    });
    balanced(&database);
}

#[test]
fn a_person_cancels_skips_and_marks() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare_join(&database);
    // skipped before its turn, and while it runs: counts as a success
    told(&database, &format!("skip('right', '{DAY}')"));
    declare(&database, "UPDATE mill.job SET input = 'SELECT pg_sleep(600)' WHERE name = 'left'");
    told(&database, &format!("fire('daily', '{DAY}')"));
    mill.eventually("left runs", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'WORK' AND input LIKE '%600%'") == 1
    });
    assert_eq!(told(&database, &format!("skip('left', '{DAY}')")), "1 run skipped");
    wait_ended(&mill, &database, "last", 1);
    assert_eq!(seen(&database), ["join", "last", "root"]);
    mill.eventually("its statement has ended", || {
        one::<i64>(&database, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()") == 0
    });
    let skipped: Vec<String> = all(
        &database,
        "SELECT j.name FROM mill.run r JOIN mill.job j ON j.id = r.job WHERE r.state = 'skipped' ORDER BY 1",
    );
    assert_eq!(skipped, ["left", "right"]);
    // cancelled: a failure, no retry, failure edges fire
    declare(&database, "UPDATE mill.job SET max_retries = 5 WHERE name = 'left'");
    told(&database, "fire('daily', '2026-01-02')");
    mill.eventually("left runs", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'WORK' AND input LIKE '%600%'") == 1
    });
    assert_eq!(told(&database, "cancel('left', '2026-01-02')"), "1 run cancelled (1 under way, asked to stop)");
    wait_ended(&mill, &database, "alarm", 1);
    steadily("it is not retried", Duration::from_millis(300), || ended(&database, "left", "true") == 2);
    // marked as good after all: the join goes on
    wait_ended(&mill, &database, "right", 2);
    told(&database, "mark('left', '2026-01-02', 'success')");
    wait_ended(&mill, &database, "last", 2);
    told(&database, "mark('join', '2026-01-03', 'failure')");
    assert_eq!(ended(&database, "join", "state = 'FAIL' AND reason = 'marked'"), 1);
    balanced(&database);
}

#[test]
fn a_paused_flow_starts_nothing_and_goes_on_where_it_was() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare_join(&database);
    declare(&database, "UPDATE mill.job SET input = 'SELECT pg_sleep(1)' WHERE name = 'root'");
    told(&database, &format!("fire('daily', '{DAY}')"));
    told(&database, "fire('daily', '2026-01-02')");
    mill.eventually("a root runs", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'WORK'") == 1
    });
    told(&database, "pause('f')");
    wait_ended(&mill, &database, "root", 1);
    // the running one has finished, the other is held, tokens wait
    let held = "SELECT count(*) FROM mill_private.run WHERE held AND ordered AND start IS NULL AND outcome IS NULL";
    let rows = "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')";
    let is_still = || one::<i64>(&database, held) == 1 && one::<i64>(&database, rows) == 0;
    mill.eventually("the other one is held, and no row waits", is_still);
    steadily("a paused flow starts nothing", Duration::from_millis(500), is_still);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.waiting WHERE why = 'flow \"f\" is paused'"), 2);
    let why: String = one(&database, "SELECT mill.why('root')");
    assert!(why.contains("flow \"f\" is paused"), "{why}");
    told(&database, "resume('f')");
    wait_ended(&mill, &database, "last", 2);
    balanced(&database);
}

#[test]
fn no_more_tasks_of_a_flow_run_at_once_than_it_allows() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "BEGIN; INSERT INTO mill.flow (name, parallel) VALUES ('f', 2);
         INSERT INTO mill.timer (name, start, period) VALUES ('t', '2100-01-01Z', '1 day');
         INSERT INTO mill.job (flow, name, input, max_retries, retry_period) SELECT 'f', 'j' || i, 'SELECT pg_sleep(0.2); SELECT 1 / (random() > 0.3)::int', 9, '10 ms' FROM generate_series(1, 8) AS i;
         INSERT INTO mill.edge (job, from_timer) SELECT 'j' || i, 't' FROM generate_series(1, 8) AS i; COMMIT",
    );
    told(&database, &format!("fire('t', '{DAY}')"));
    let mut most = 0;
    mill.wait("all are done").within(Duration::from_secs(60)).until(|| {
        most = most.max(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state IN ('TAKE', 'WORK')"));
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'") == 8
    });
    assert_eq!(most, 2);
    let held: i64 = one(&database, "SELECT count(*) FROM mill_private.run WHERE held");
    assert_eq!(held, 0);
    balanced(&database);
}

#[test]
fn values_go_from_task_to_task_and_with_a_run_that_fails() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "CREATE TABLE heard (at timestamptz, value text, attempt text);
         BEGIN; INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name, input, atomic) VALUES ('f', 'say', 'SELECT mill.stash(''word'', ''good '' || mill.at()::date)', false),
            ('f', 'hear', 'INSERT INTO heard SELECT mill.at(), mill.stash(''word''), current_setting(''mill.attempt'')', false),
            ('f', 'lie', 'SELECT mill.stash(''word'', ''bad''); SELECT 1 / 0', true);
         INSERT INTO mill.edge (job, from_job) VALUES ('hear', 'say');
         INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('hear', 'lie', 'failure'); UPDATE mill.job SET threshold = 1 WHERE name = 'hear'; COMMIT",
    );
    declare(&database, "SELECT mill.run('say', '2026-01-01'), mill.run('say', '2026-01-02')");
    wait_ended(&mill, &database, "hear", 2);
    declare(&database, "SELECT mill.run('lie', '2026-01-02'), mill.run('lie', '2026-01-03')");
    wait_ended(&mill, &database, "hear", 4);
    let heard: Vec<String> =
        all(&database, "SELECT concat_ws(' ', at::date, COALESCE(value, '-'), attempt) FROM heard ORDER BY at, value");
    assert_eq!(
        heard,
        [
            "2026-01-01 good 2026-01-01 1",
            "2026-01-02 good 2026-01-02 1",
            "2026-01-02 good 2026-01-02 1",
            "2026-01-03 - 1"
        ]
    );
    // only runs of jobs have a stash
    assert!(refusal(&mut database.connect(), "SELECT mill.stash('word')").contains("this session runs none"));
}

#[test]
fn a_stranger_sees_and_touches_only_what_is_his() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare_join(&database);
    let name = format!("{}_other", database.name());
    let role = quote_ident(&name);
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT INSERT ON public.task TO {role}; SELECT mill.grant('{name}', 'use')"
    ));
    let mut client = database.server().try_connect(&name, database.name()).expect("it may log in");
    let count = |client: &mut postgres::Client, sql: &str| client.query_one(sql, &[]).expect(sql).get::<_, i64>(0);
    for table in ["flow", "timer", "edge", "job", "waiting"] {
        assert_eq!(count(&mut client, &format!("SELECT count(*) FROM mill.{table}")), 0, "{table}");
    }
    for sql in ["SELECT mill.run('root')", "SELECT mill.pause('f')", "SELECT mill.fire('daily')"] {
        assert!(refusal(&mut client, sql).contains("is not a member of it"), "{sql}");
    }
    assert!(
        refusal(&mut client, "INSERT INTO mill.edge (job, from_timer) VALUES ('left', 'daily')")
            .contains("not a member of it")
    );
    // his own flow works, also from somebody's timer
    client
        .batch_execute("INSERT INTO mill.flow (name) VALUES ('mine'); INSERT INTO mill.job (flow, name) VALUES ('mine', 'my job'); SELECT mill.run('my job')")
        .expect("his own");
    wait_ended(&mill, &database, "my job", 1);
    assert_eq!(count(&mut client, "SELECT count(*) FROM mill.command"), 1);
    drop(client);
    drop(mill);
    database.run(&format!("DELETE FROM mill.job WHERE name = 'my job'; DROP OWNED BY {role}; DROP ROLE {role}"));
}
