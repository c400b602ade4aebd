//! The next time: repetition with and without drift, what it copies, when it ends, and the pause of a negative max.

use rand::RngExt;
use serde_json::Value;
use shared::db::statement::Queue;
use std::time::Duration;
use tests::{Cluster, Database, Supervisor, sized};

use crate::queries::{all, all_are, one, one_with, running, state, worker_of};

/// The row that repeats this one, if there is one.
fn repetition(database: &Database, id: i64) -> Option<Value> {
    database.tasks().into_iter().find(|row| row["parent"] == id)
}

/// A condition on a finished row `p` and its repetition `n`.
#[track_caller]
fn holds(database: &Database, id: i64, condition: &str) {
    let sql = format!("SELECT {condition} FROM public.task p JOIN public.task n ON n.parent = p.id WHERE p.id = $1");
    let row = database.tasks();
    assert!(one_with::<bool>(database, &sql, &[&id]), "{condition}: {row:#?}");
}

#[test]
fn a_repetition_is_a_new_row_at_the_first_multiple_that_is_not_missed_or_counted_from_the_end() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let columns = "plan = now() - interval '2.5 hours', active = '1 day', repeat = '1 hour', delete = false";
    let steady = database.insert_with("SELECT 1", columns);
    let drifting = database.insert_with("SELECT 1", &format!("{columns}, drift = true, group = 'd'"));
    let monthly = database
        .insert_with("SELECT 1", "plan = '2024-01-31 10:00+00', active = '100 years', repeat = '1 month', group = 'm'");
    for id in [steady, drifting, monthly] {
        mill.finished(&database, id);
    }
    holds(&database, steady, "n.plan = p.plan + interval '3 hours'");
    holds(&database, drifting, "n.plan BETWEEN p.stop + interval '1 hour' AND p.stop + interval '1 hour 2 seconds'");
    holds(
        &database,
        monthly,
        "n.plan = (SELECT min(p.plan + k * interval '1 month') FROM generate_series(1, 5000) AS k \
         WHERE p.plan + k * interval '1 month' > p.stop)",
    );
    for id in [steady, drifting, monthly] {
        holds(
            &database,
            id,
            "n.state = 'PLAN' AND n.attempt = 0 AND n.held AND n.start IS NULL AND n.stop IS NULL AND n.pid IS NULL \
             AND n.output IS NULL AND n.error IS NULL AND n.repeat = p.repeat AND n.drift = p.drift \
             AND n.input = p.input AND n.\"group\" = p.\"group\" AND n.active = p.active AND n.delete = p.delete",
        );
    }
}

#[test]
fn a_repeating_task_goes_on_and_on_also_after_failures() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert_with("SELECT 1 / 0", "repeat = '300 ms'");
    let rows = mill.wait("five runs are over").within(Duration::from_secs(20)).until(|| {
        let rows = database.tasks();
        (rows.iter().filter(|row| row["state"] == "FAIL").count() >= 5).then_some(rows)
    });
    let mut expected = Value::Null;
    for row in &rows {
        assert_eq!(row["parent"], expected, "each has the one before as its parent: {rows:#?}");
        expected = row["id"].clone();
    }
    let steps: bool = one_with(
        &database,
        "SELECT bool_and(extract(epoch FROM n.plan - p.plan)::numeric % 0.3 = 0 AND n.start >= n.plan) \
         FROM public.task p JOIN public.task n ON n.parent = p.id WHERE p.id >= $1 AND n.start IS NOT NULL",
        &[&id],
    );
    assert!(steps, "always a multiple of the step");
    // a repetition that its owner takes away is the last one
    database.run("UPDATE public.task SET state = 'STOP' WHERE state = 'PLAN'; UPDATE public.task SET repeat = '0'");
}

#[test]
fn a_repetition_copies_the_users_columns_but_for_those_that_the_server_makes() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    // added while the queue is served
    database.run(
        "ALTER TABLE public.task ADD tag text, ADD twice text GENERATED ALWAYS AS (tag || tag) STORED, \
         ADD number int GENERATED ALWAYS AS IDENTITY, ADD \"a \"\"b\"\"\" int DEFAULT 7, ADD gone int; \
         ALTER TABLE public.task DROP gone",
    );
    let columns = "repeat = '1 hour', tag = 'x', a \"b\" = 8, data = 'mine', priority = 3, remote = NULL";
    let ran = database.insert_with("SELECT 1", columns);
    let failed = database.insert_with("SELECT 1 / 0", &format!("{columns}, group = 'f'"));
    let expired =
        database.insert_with("SELECT 1", &format!("{columns}, plan = now() - interval '9 hours', group = 'e'"));
    for id in [ran, failed, expired] {
        mill.finished(&database, id);
        holds(
            &database,
            id,
            "n.tag = 'x' AND n.twice = 'xx' AND n.number > p.number AND n.\"a \"\"b\"\"\" = 8 AND n.data = 'mine' \
             AND n.priority = 3",
        );
    }
}

#[test]
fn a_task_that_is_deleted_when_it_is_done_leaves_its_repetition() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert_with("SELECT 1 WHERE false", "repeat = '1 hour'");
    let next = mill.eventually("there is a repetition", || repetition(&database, id));
    assert_eq!(next["state"], "PLAN");
    assert_eq!(state(&database, id), "none");
}

#[test]
fn the_longest_pause_is_a_pause_too() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    for drift in [false, true] {
        database.run(&format!(
            "INSERT INTO public.task (input, \"group\", max, drift) \
             SELECT 'SELECT 1', 'drift {drift}', -2147483648, {drift} FROM generate_series(1, 2)"
        ));
    }
    mill.eventually("one of each group is done", || {
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE stop IS NOT NULL") >= 2
    });
    let states: Vec<String> =
        all(&database, "SELECT DISTINCT concat_ws(' ', state, error, plan > now()) FROM public.task ORDER BY 1");
    assert_eq!(states, ["DONE f", "PLAN t"]);
}

#[test]
fn whether_a_task_repeats_is_decided_when_it_ends() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let ends = database.insert_with("SELECT pg_sleep(600)", "repeat = '1 hour', group = 'ends'");
    let begins = database.insert_with("SELECT pg_sleep(600)", "group = 'begins'");
    let backends = [running(&mill, &database, ends), running(&mill, &database, begins)];
    database.run(&format!(
        "UPDATE public.task SET repeat = '0' WHERE id = {ends}; UPDATE public.task SET repeat = '1 hour' WHERE id = {begins}"
    ));
    for backend in backends {
        database.run(&format!("SELECT pg_cancel_backend({backend})"));
    }
    mill.finished(&database, ends);
    mill.finished(&database, begins);
    assert_eq!(repetition(&database, ends), None);
    assert_eq!(repetition(&database, begins).map(|row| row["state"].clone()), Some("PLAN".into()));
}

#[test]
fn a_repetition_that_the_data_refuse_makes_the_task_a_failure_that_says_so() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run(
        "ALTER TABLE public.task ADD tag text UNIQUE; CREATE TABLE ledger (task bigint); GRANT ALL ON ledger TO PUBLIC; \
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not today''; END'; \
         CREATE TRIGGER refuse BEFORE INSERT ON public.task FOR EACH ROW WHEN (NEW.parent IS NOT NULL AND NEW.data = 'sad') \
         EXECUTE FUNCTION refuse()",
    );
    let input = "INSERT INTO public.ledger VALUES (1); SELECT 5";
    let unique = database.insert_with(input, "repeat = '1 hour', tag = 'x', live = '1 hour'");
    let raised = database.insert_with(input, "repeat = '1 hour', data = 'sad', group = 'r'");
    let failing = database.insert_with("SELECT 1 / 0", "repeat = '1 hour', tag = 'y', group = 'u'");
    let after = database.insert("SELECT 1");
    for (id, output, words) in [
        (unique, "INSERT 0 1\n5", "duplicate key"),
        (raised, "INSERT 0 1\n5", "not today"),
        (failing, "", "duplicate key"),
    ] {
        let row = mill.finished(&database, id);
        assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"completion".into()), "{row:#}");
        assert_eq!(row["output"], output);
        assert!(row["error"].as_str().is_some_and(|error| error.contains(words)), "{row:#}");
        assert_eq!(row["attempt"], 1);
    }
    let error = database.task(failing).expect("it is there")["error"].clone();
    assert!(
        error.as_str().is_some_and(|text| text.starts_with("ERROR:  division by zero")),
        "its own error stays: {error}"
    );
    assert_eq!(mill.finished(&database, after)["state"], "DONE", "the group goes on");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM ledger"), 2, "the input was not run again");
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task WHERE parent IS NOT NULL"), 0);
}

#[test]
fn a_negative_max_is_one_at_a_time_with_a_pause_and_the_first_is_not_delayed() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    for (group, drift) in [("steady", false), ("drifting", true)] {
        database.run(&format!(
            "INSERT INTO public.task (input, \"group\", max, drift) SELECT 'SELECT pg_sleep(0.2)', '{group}', -700, {drift} \
             FROM generate_series(1, 3)"
        ));
    }
    // of the same group, but without a pause: it waits its turn only
    let plain = database.insert_with("SELECT 1", "group = 'drifting', max = 0");
    all_are(&mill, &database, "state = 'DONE'", 20);
    for group in ["steady", "drifting"] {
        let sql = format!(
            "SELECT extract(epoch FROM start - lag(stop) OVER (ORDER BY start))::float8, \
             extract(epoch FROM start - min(start) OVER ())::float8 \
             FROM public.task WHERE \"group\" = '{group}' AND max < 0 ORDER BY start"
        );
        let rows = database.query(&sql, &[]).expect("it answers");
        for row in &rows[1..] {
            // steady: the next multiple of 0.7 s after the first plan, so 0.5 s after an end; drifting: 0.7 s after it
            let least = if group == "steady" { 0.3 } else { 0.69 };
            let pause: f64 = row.get(0);
            assert!(pause >= least, "{group}: only {pause} s after the end of the one before");
        }
    }
    let first: f64 = one(
        &database,
        "SELECT max(late)::float8 FROM (SELECT extract(epoch FROM min(start) - (SELECT min(start) FROM public.task)) AS late \
         FROM public.task WHERE max < 0 GROUP BY \"group\") AS f",
    );
    assert!(first < 2.0, "a first one was delayed by {first} s");
    assert_eq!(state(&database, plain), "DONE");
    let steady: bool = one(
        &database,
        "SELECT bool_and(extract(epoch FROM t.plan - f.plan)::numeric % 0.7 = 0) FROM public.task t, \
         (SELECT min(plan) AS plan FROM public.task WHERE \"group\" = 'steady') AS f WHERE \"group\" = 'steady'",
    );
    assert!(steady, "plans without drift are multiples of the pause");
}

/// The arithmetic, against counting: the first of plan + k * step after now.
#[test]
fn the_next_time_is_what_counting_would_find() {
    let database = Cluster::shared().database();
    let queue = Queue { schema: "public".into(), table: "task".into() };
    let next = queue.fill("SELECT t.id, {next_time} FROM given t").replace("statement_timestamp()", "t.now");
    let steps = [
        "1 second",
        "0.7 seconds",
        "90 minutes",
        "1 hour",
        "23:59:59.5",
        "1 day",
        "1 day 1 hour",
        "7 days",
        "1 month",
        "3 months",
        "1 month 3 days",
        "1 month 12 hours",
        "1 year",
        "13 months",
        "1 month -1 day",
        "1 day -1 hour",
        "2 days -1 hour",
    ];
    let mut random = rand::rng();
    let mut client = database.connect_superuser();
    client
        .batch_execute(
            "CREATE TEMP TABLE given (id serial, plan timestamptz, now timestamptz, repeat interval, drift bool DEFAULT false, at timestamptz)",
        )
        .expect("a table");
    for _ in 0..sized(400, 5000) {
        let step = steps[random.random_range(0..steps.len())];
        // around the ends of months and changes of the clock more often than not
        let day = ["2020-01-31", "2020-02-29", "2021-03-14", "2021-11-07", "2019-12-31", "2022-08-30"]
            [random.random_range(0..6)];
        let second = random.random_range(0..86_400 * 3);
        let past = random.random_range(0.0..900.0f64);
        let sql = format!(
            "INSERT INTO given (plan, now, repeat) SELECT p, p + {past} * interval '{step}' \
             + {} * interval '1 second', '{step}' FROM (SELECT timestamptz '{day}' + {second} * interval '1 second' AS p) AS s",
            random.random_range(-7200..7200),
        );
        client.batch_execute(&sql).expect("an example");
    }
    for zone in ["UTC", "America/New_York", "Australia/Lord_Howe"] {
        client.batch_execute(&format!("SET timezone = '{zone}'")).expect("a zone");
        let sql = format!(
            "SELECT format('%s + k * %s after %s: %s instead of %s', g.plan, g.repeat, g.now, found.plan, counted.plan) \
             FROM given g JOIN ({next}) AS found (id, plan) ON found.id = g.id, \
             LATERAL (SELECT g.plan + k * g.repeat AS plan FROM generate_series(1, 12000) AS k \
                       WHERE g.plan + k * g.repeat > g.now ORDER BY k LIMIT 1) AS counted \
             WHERE found.plan IS DISTINCT FROM counted.plan"
        );
        let wrong: Vec<String> = client.query(&sql, &[]).expect("a comparison").iter().map(|row| row.get(0)).collect();
        assert!(wrong.is_empty(), "{zone}, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
        let counted: i64 = client.query_one("SELECT count(*) FROM given", &[]).expect("query").get(0);
        assert!(counted > 0);
    }
    assert!(all::<i32>(&database, "SELECT 1").len() == 1);
}

#[test]
fn a_task_whose_end_cannot_be_written_at_all_is_not_run_again() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run(
        "CREATE TABLE ledger (task bigint); GRANT ALL ON ledger TO PUBLIC; \
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''never''; END'; \
         CREATE TRIGGER refuse BEFORE UPDATE ON public.task FOR EACH ROW \
         WHEN (NEW.data = 'sad' AND NEW.state IN ('DONE', 'FAIL')) EXECUTE FUNCTION refuse()",
    );
    let sad = database.insert_with("INSERT INTO public.ledger VALUES (1)", "data = 'sad', group = 'sad'");
    mill.eventually("it is told", || mill.log_contains("cannot record the result"));
    // whatever makes the scheduler look for unfinished tasks
    let other = database.insert("SELECT pg_sleep(600)");
    running(&mill, &database, other);
    let worker = mill.eventually("the worker says what it runs", || worker_of(&mill, other));
    mill.kill9(worker);
    mill.eventually("the other one runs again", || database.task(other).is_some_and(|row| row["attempt"] == 2));
    let scheduler = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
                     AND application_name LIKE 'pg_work%'";
    database.run(scheduler);
    mill.eventually("it is served again", || mill.log_contains("queue served again"));
    let next = database.insert_with("SELECT 1", "group = 'next'");
    mill.finished(&database, next);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM ledger"), 1, "its input has run once");
    let state = state(&database, sad);
    assert!(state == "WORK" || state == "STOP", "{state}");
}
