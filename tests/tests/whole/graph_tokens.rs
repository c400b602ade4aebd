//! Tokens: what one end delivers activates the next job, exactly once, whoever ends it and whatever dies meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use tests::{Cluster, Database, Supervisor, sized, steadily};

use crate::graphs::{balanced, declare, ended, ready, say, wait_ended};
use crate::job_fixture::put_held;
use crate::queries::{all, one, refusal};

const ETL: &str = "BEGIN;
    INSERT INTO mill.edge (job, from_timer) VALUES ('load', 'daily');
    INSERT INTO mill.edge (job, from_job) VALUES ('sum', 'load');
    INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('alarm', 'load', 'failure'), ('alarm', 'sum', 'failure');
    INSERT INTO mill.flow (name) VALUES ('etl');
    INSERT INTO mill.job (flow, name, input) VALUES ('etl', 'load', 'INSERT INTO seen VALUES (''load'', mill.at())'),
        ('etl', 'sum', 'BEGIN; INSERT INTO seen VALUES (''sum'', mill.at()); COMMIT; SELECT 1 / (SELECT count(*) FROM good WHERE good.at = mill.at())'),
        ('etl', 'alarm', 'INSERT INTO seen VALUES (''alarm'', mill.at())');
    INSERT INTO mill.timer (name, cron, timezone) VALUES ('daily', '0 3 * * *', 'Europe/Paris');
    COMMIT";

#[test]
fn a_flow_declared_in_any_order_runs_along_its_edges() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "CREATE TABLE seen (job text, at timestamptz); CREATE TABLE good (at timestamptz); INSERT INTO good VALUES ('2026-01-02')",
    );
    declare(&database, ETL);
    declare(&database, "SELECT mill.fire('daily', '2026-01-01'), mill.fire('daily', '2026-01-02')");
    wait_ended(&mill, &database, "sum", 2);
    wait_ended(&mill, &database, "alarm", 1);
    let seen: Vec<String> =
        all(&database, "SELECT concat_ws(' ', job, at AT TIME ZONE 'UTC') FROM seen ORDER BY at, job");
    assert_eq!(
        seen,
        [
            "alarm 2026-01-01 00:00:00",
            "load 2026-01-01 00:00:00",
            "sum 2026-01-01 00:00:00",
            "load 2026-01-02 00:00:00",
            "sum 2026-01-02 00:00:00"
        ]
    );
    balanced(&database);
}

#[test]
fn a_chain_of_fifty_jobs_without_input_is_through_in_a_moment_without_a_worker() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "INSERT INTO mill.flow (name) VALUES ('chain');
         INSERT INTO mill.job (flow, name) SELECT 'chain', 'n' || i FROM generate_series(1, 50) AS i;
         INSERT INTO mill.edge (job, from_job) SELECT 'n' || i, 'n' || i - 1 FROM generate_series(2, 50) AS i",
    );
    let began = Instant::now();
    declare(&database, "SELECT mill.run('n1', '2026-01-01')");
    mill.wait("the last one is done").within(Duration::from_secs(30)).until(|| ended(&database, "n50", "true") == 1);
    println!("50 jobs without input: {:?}", began.elapsed());
    let took: f64 = one(&database, "SELECT extract(epoch FROM max(stop) - min(due))::float8 FROM mill_private.run");
    println!("from the first order to the last stop: {took:.3} s");
    assert!(took < 10.0, "{took}");
    let all_done: bool = one(
        &database,
        "SELECT count(*) = 50 AND bool_and(outcome = 'succeeded' AND attempt = 0 AND task IS NULL) FROM mill_private.run",
    );
    assert!(all_done && one::<i64>(&database, "SELECT count(*) FROM public.task") == 0, "no worker was needed");
    balanced(&database);
}

#[test]
fn one_parent_twice_is_not_two_parents_and_waiting_names_the_missing_one() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name, input) VALUES ('f', 'left', 'SELECT 1'), ('f', 'right', 'SELECT 1'), ('f', 'join', 'SELECT 1');
         INSERT INTO mill.edge (job, from_job) VALUES ('join', 'left'), ('join', 'right')",
    );
    declare(&database, "SELECT mill.run('left', '2026-01-01')");
    wait_ended(&mill, &database, "left", 1);
    declare(&database, "SELECT mill.run('left', '2026-01-01')");
    wait_ended(&mill, &database, "left", 2);
    steadily("the join waits", Duration::from_millis(500), || ended(&database, "join", "true") == 0);
    let missing: Vec<String> = one(&database, "SELECT missing FROM mill.waiting WHERE job = 'join'");
    assert_eq!(missing, ["job \"right\""]);
    let delivered: Vec<String> = one(&database, "SELECT delivered FROM mill.waiting WHERE job = 'join'");
    assert_eq!(delivered, ["job \"left\" (2 times)"]);
    let why: String = one(&database, "SELECT mill.why('join', '2026-01-01')");
    assert!(why.contains("waiting since") && why.ends_with("for job \"right\""), "{why}");
    declare(&database, "SELECT mill.run('right', '2026-01-01')");
    wait_ended(&mill, &database, "join", 1);
    // one token of each is spent: the other one of `left` waits for its own partner
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.waiting"), 1);
    declare(&database, "SELECT mill.run('right', '2026-01-01')");
    wait_ended(&mill, &database, "join", 2);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.waiting"), 0);
    balanced(&database);
}

/// Runs of both parents for so many minutes of a year, put into the table and held: no worker takes them.
fn put_parents(database: &Database, year: i32, times: i64) {
    put_held(
        &mut database.connect(),
        &format!(
            "SELECT mill_private.order_run(j.id, '{year}-01-01'::timestamptz + i * interval '1 min', mill.now(), held => true, epoch => 0)
               FROM mill.job j, generate_series(1, {times}) AS i WHERE j.name IN ('left', 'right') ORDER BY i, j.id"
        ),
    );
}

/// Two sessions end the runs of one parent each, minute by minute, both in the same moment.
fn end_parents_together(database: &Database, parents: [i32; 2], year: i32, times: i64) {
    let barrier = std::sync::Barrier::new(parents.len());
    thread::scope(|scope| {
        for job in parents {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut client = database.connect();
                for i in 1..=times {
                    barrier.wait();
                    let end = format!(
                        "UPDATE public.task SET state = 'DONE', start = now(), stop = now() WHERE job = {job} \
                         AND at = '{year}-01-01'::timestamptz + {i} * interval '1 min'"
                    );
                    say(&mut client, &end);
                }
            });
        }
    });
}

#[test]
fn two_parents_that_finish_in_the_same_moment_activate_their_child_once() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let times = sized(300, 10_000);
    declare(
        &database,
        "INSERT INTO mill.flow (name, paused) VALUES ('f', true);
         INSERT INTO mill.job (flow, name, input) VALUES ('f', 'left', 'SELECT 1'), ('f', 'right', 'SELECT 1'), ('f', 'join', 'SELECT 1');
         INSERT INTO mill.edge (job, from_job) VALUES ('join', 'left'), ('join', 'right')",
    );
    let parents =
        ["left", "right"].map(|name| one(&database, &format!("SELECT id FROM mill.job WHERE name = '{name}'")));
    put_parents(&database, 2026, times);
    end_parents_together(&database, parents, 2026, times);
    // paused: all tokens wait, and resuming activates each join once; by the counters, because old rows are deleted
    let of_join = "FROM mill.job_stat s JOIN mill.job j ON j.id = s.job WHERE j.name = 'join'";
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill.token k WHERE cardinality(k.waiting) = 2"), times);
    declare(&database, "UPDATE mill.job SET input = NULL WHERE name = 'join'; SELECT mill.resume('f')");
    mill.wait("every join has run")
        .within(Duration::from_secs(120))
        .until(|| one::<i64>(&database, &format!("SELECT total_successes {of_join}")) == times);
    // and the same with the flow running: the second parent's end activates
    declare(
        &database,
        "UPDATE mill.job SET input = 'SELECT 1', live = '1 hour' WHERE name = 'join'; SELECT mill.pause(job => 'left'), mill.pause(job => 'right')",
    );
    put_parents(&database, 2027, times);
    end_parents_together(&database, parents, 2027, times);
    let twice: i64 = one(
        &database,
        "SELECT count(*) FROM mill.token k JOIN mill.job j ON j.id = k.job WHERE j.name = 'join' AND k.activations <> 1",
    );
    let activated: i64 = one(
        &database,
        "SELECT sum(k.activations)::bigint FROM mill.token k JOIN mill.job j ON j.id = k.job WHERE j.name = 'join'",
    );
    assert_eq!((twice, activated), (0, 2 * times));
    mill.wait("every join has run again")
        .within(Duration::from_secs(sized(60, 600)))
        .until(|| one::<i64>(&database, &format!("SELECT total_successes {of_join}")) == 2 * times);
    balanced(&database);
}

#[test]
fn retries_leave_tokens_alone_and_only_the_last_failure_delivers() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "CREATE SEQUENCE tries;
         INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name, input, max_retries, retry_period) VALUES
            ('f', 'shaky', 'SELECT 1 / (nextval(''tries'') / 3)', 5, '10 ms'), ('f', 'hopeless', 'SELECT 1 / 0', 3, '10 ms');
         INSERT INTO mill.job (flow, name) VALUES ('f', 'after'), ('f', 'alarm');
         INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('after', 'shaky', 'success'), ('alarm', 'shaky', 'failure'),
            ('after', 'hopeless', 'failure'), ('alarm', 'hopeless', 'success');
         UPDATE mill.job SET threshold = 1 WHERE name IN ('after', 'alarm')",
    );
    declare(&database, "SELECT mill.run('shaky', '2026-01-01'), mill.run('hopeless', '2026-01-01')");
    wait_ended(&mill, &database, "after", 2);
    assert_eq!(ended(&database, "shaky", "state = 'FAIL'"), 2);
    assert_eq!(ended(&database, "hopeless", "state = 'FAIL'"), 3);
    assert_eq!(ended(&database, "alarm", "true"), 0);
    balanced(&database);
}

#[test]
fn a_job_that_would_be_activated_without_end_is_stopped_after_a_hundred_times() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    declare(
        &database,
        "INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name) VALUES ('f', 'a'), ('f', 'b');
         INSERT INTO mill.edge (job, from_job) VALUES ('b', 'a')",
    );
    declare(&database, "SELECT mill.run('a', '2026-01-01') FROM generate_series(1, 103)");
    wait_ended(&mill, &database, "a", 103);
    wait_ended(&mill, &database, "b", 103);
    assert_eq!(ended(&database, "b", "state = 'DONE'"), 100);
    let error: String = one(&database, "SELECT DISTINCT error FROM mill.run WHERE reason = 'loop'");
    assert!(error.starts_with("ERROR:  job \"b\" has been activated 100 times for 2026-01-01"), "{error}");
    balanced(&database);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    ready(&mill, &database);
    let mut client = database.connect();
    say(
        &mut client,
        "INSERT INTO mill.flow (name) VALUES ('f');
         INSERT INTO mill.job (flow, name) SELECT 'f', n FROM unnest(ARRAY['a', 'b', 'c']) AS n;
         INSERT INTO mill.timer (name, period) VALUES ('t', '1 hour');
         INSERT INTO mill.edge (job, from_job) VALUES ('b', 'a'), ('c', 'b')",
    );
    let refused = [
        ("INSERT INTO mill.flow (name) VALUES ('')", "a flow needs a name"),
        ("INSERT INTO mill.flow (name) VALUES (repeat('x', 201))", "at most 200 characters"),
        ("INSERT INTO mill.flow (name) VALUES (E'a\\nb')", "must not have control characters"),
        ("INSERT INTO mill.flow (name, parallel) VALUES ('g', 0)", "at least 1"),
        ("INSERT INTO mill.flow (name, \"window\") VALUES ('g', 0)", "at least 1"),
        ("INSERT INTO mill.flow (name, owner) VALUES ('g', 'postgres')", "not a member of it"),
        ("INSERT INTO mill.timer (name) VALUES ('u')", "needs either a period or a cron expression"),
        (
            "INSERT INTO mill.timer (name, period, cron) VALUES ('u', '1 h', '* * * * *')",
            "needs either a period or a cron expression",
        ),
        ("INSERT INTO mill.timer (name, period) VALUES ('u', '0')", "must be more than 0"),
        ("INSERT INTO mill.timer (name, period) VALUES ('u', '-1 day')", "must be more than 0"),
        ("INSERT INTO mill.timer (name, cron) VALUES ('u', '61 * * * *')", "61 is not within 0 to 59"),
        ("INSERT INTO mill.timer (name, cron) VALUES ('u', '0 0 30 2 *')", "never fires"),
        ("INSERT INTO mill.timer (name, period, timezone) VALUES ('u', '1 h', 'Europe/Atlantis')", "Europe/Atlantis"),
        ("INSERT INTO mill.timer (name, period, catchup) VALUES ('u', '1 h', 'some')", "unknown catchup \"some\""),
        (
            "INSERT INTO mill.timer (name, period, start, stop) VALUES ('u', '1 h', '2026-01-02', '2026-01-01')",
            "stops before it starts",
        ),
        ("INSERT INTO mill.edge (job) VALUES ('a')", "needs either from_job or from_timer"),
        (
            "INSERT INTO mill.edge (job, from_job, from_timer) VALUES ('a', 'b', 't')",
            "needs either from_job or from_timer",
        ),
        (
            "INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('a', 'b', 'maybe')",
            "on of an edge must be success, failure or done, not \"maybe\"",
        ),
        ("INSERT INTO mill.edge (job, from_timer, \"on\") VALUES ('a', 't', 'failure')", "a timer does not fail"),
        ("INSERT INTO mill.edge (job, from_job) VALUES ('b', 'a')", "23505"),
        ("INSERT INTO mill.edge (job, from_job) VALUES ('b', 'nobody')", "23503"),
        ("INSERT INTO mill.edge (job, from_job) VALUES ('a', 'c')", "form a cycle whose shifts add up to 0"),
        ("INSERT INTO mill.edge (job, from_job) VALUES ('a', 'a')", "form a cycle"),
        (
            "INSERT INTO mill.edge (job, from_job, shift) VALUES ('a', 'c', '1 day'), ('b', 'c', '-1 day')",
            "form a cycle whose shifts add up to 0",
        ),
        ("INSERT INTO mill.job (name, flow) VALUES ('d', 'nowhere')", "23503"),
        ("UPDATE mill.job SET schedule_interval = '1 h' WHERE name = 'b'", "a schedule of its own and incoming edges"),
        (
            "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('t', '2026-01-02', '2026-01-01')",
            "from lo up to a later hi",
        ),
        ("INSERT INTO mill.backfill (timer, lo, hi) VALUES ('u', '2026-01-01', '2026-01-02')", "23503"),
        ("SELECT mill.run('nobody')", "job \"nobody\" does not exist"),
        ("SELECT mill.clear('f', NULL)", "needs the logical time"),
        ("SELECT mill.mark('a', '2026-01-01', 'perhaps')", "mark needs how"),
        ("INSERT INTO mill.command (action, job) VALUES ('dance', 'a')", "unknown action \"dance\""),
        ("INSERT INTO mill.command (action, flow) VALUES ('run', 'f')", "run needs a job"),
    ];
    for (sql, reason) in refused {
        let said = refusal(&mut client, sql);
        assert!(said.contains(reason), "{sql}\nsaid: {said}\nnot: {reason}");
    }
    // a cycle that moves on in time is none
    say(&mut client, "INSERT INTO mill.edge (job, from_job, shift) VALUES ('a', 'c', '1 day'), ('a', 'a', '1 day')");
    // and one transaction may pass through what its end is not
    say(
        &mut client,
        "BEGIN; INSERT INTO mill.edge (job, from_job) VALUES ('a', 'b'); DELETE FROM mill.edge WHERE job = 'b' AND from_job = 'a'; \
         DELETE FROM mill.edge WHERE job = 'a' AND from_job = 'a'; DELETE FROM mill.edge WHERE shift <> '0'; COMMIT",
    );
}
