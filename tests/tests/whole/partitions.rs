//! Tables of somebody else in several parts: partitions, and children by inheritance.

use serde_json::json;
use tests::{Cluster, Supervisor};

use crate::older_tables::{NEVER, SOON, count, make, starts_without_ddl, stop, text, wait_repaired};

#[test]
fn a_partitioned_table_is_served_if_its_key_never_changes() {
    let database = Cluster::shared().database();
    let partitions = [
        (
            "by_hash",
            "HASH (id)",
            "id",
            vec!["FOR VALUES WITH (MODULUS 2, REMAINDER 0)", "FOR VALUES WITH (MODULUS 2, REMAINDER 1)"],
        ),
        ("by_group", "LIST (\"group\")", "id, \"group\"", vec!["FOR VALUES IN ('a')", "DEFAULT"]),
        ("by_id", "RANGE (id)", "id", vec!["FOR VALUES FROM (1) TO (6)", "FOR VALUES FROM (6) TO (1000)"]),
    ];
    let mut launch = Supervisor::bare().key("connect", database.server().conninfo(database.login()));
    for (schema, by, key, bounds) in &partitions {
        let bounds: String = bounds
            .iter()
            .enumerate()
            .map(|(n, bound)| format!("CREATE TABLE {schema}.part{n} PARTITION OF {schema}.task {bound};"))
            .collect();
        make(
            &database,
            &format!(
                "CREATE SCHEMA {schema};
                 CREATE TABLE {schema}.task (id bigserial, plan timestamptz NOT NULL DEFAULT now(), \"group\" text NOT NULL,
                     state text NOT NULL DEFAULT 'PLAN', input text NOT NULL, PRIMARY KEY ({key})) PARTITION BY {by};
                 {bounds}
                 INSERT INTO {schema}.task (input, \"group\") SELECT 'SELECT 1', chr(97 + n % 3) FROM generate_series(1, 10) n;"
            ),
        );
        let row = json!({"data": database.name(), "user": database.owner(), "schema": schema, "sleep": NEVER});
        launch = launch.queue(row);
    }
    let supervisor = launch.start();
    let done = |schema: &str| {
        let sql = format!("SELECT count(*)::text FROM {schema}.task WHERE state = 'DONE'");
        text(&database, &sql).unwrap_or_default()
    };
    for (schema, ..) in &partitions {
        supervisor.wait("all are done").within(SOON).until(|| done(schema) == "10");
    }
    supervisor.eventually("all are repaired", || {
        supervisor.log().lines().iter().filter(|line| line.contains("table repaired")).count() == 3
    });
    // Row triggers of a partition notify for the whole table.
    for (schema, ..) in &partitions {
        make(
            &database,
            &format!("INSERT INTO {schema}.task (input, \"group\", state) VALUES ('SELECT 2', 'a', 'STOP')"),
        );
        make(&database, &format!("UPDATE {schema}.task SET state = 'PLAN' WHERE state = 'STOP'"));
        supervisor.wait("the notification has come").within(SOON).until(|| done(schema) == "11");
        let indexes = format!(
            "SELECT count(*)::text FROM pg_index WHERE indrelid = '{schema}.part0'::regclass AND indpred IS NOT NULL AND indisvalid"
        );
        assert_eq!(text(&database, &indexes).as_deref(), Some("6"), "{schema}");
    }
}

#[test]
fn a_table_whose_rows_would_wander_between_partitions_is_refused() {
    let database = Cluster::shared().database();
    let mut launch = Supervisor::bare().key("connect", database.server().conninfo(database.login()));
    for (schema, by) in [("by_plan", "RANGE (plan)"), ("by_state", "LIST (state)")] {
        let key = by.split(['(', ')']).nth(1).expect("a key");
        make(
            &database,
            &format!(
                "CREATE SCHEMA {schema}; CREATE TABLE {schema}.task (id bigserial, plan timestamptz NOT NULL DEFAULT now(),
                 state text NOT NULL DEFAULT 'PLAN', input text NOT NULL, PRIMARY KEY (id, {key})) PARTITION BY {by};"
            ),
        );
        launch = launch.queue(json!({"data": database.name(), "user": database.owner(), "schema": schema}));
    }
    let supervisor = launch.launch();
    for key in ["plan", "state"] {
        let reason = format!("it is partitioned by {key}, which pgmill changes");
        supervisor.eventually("it is refused", || supervisor.log_contains(&reason));
    }
}

#[test]
fn rows_of_inheritance_children_are_served() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 200).start();
    make(
        &database,
        "CREATE TABLE public.child () INHERITS (public.task); INSERT INTO public.child (input) VALUES ('SELECT 1'), ('SELECT 2')",
    );
    supervisor
        .wait("they are done")
        .within(SOON)
        .until(|| count(&database, "tableoid = 'public.child'::regclass AND state = 'DONE'") == 2);
}

#[test]
fn a_large_partitioned_table_gets_its_indexes_partition_by_partition() {
    let database = Cluster::shared().database();
    make(
        &database,
        "CREATE TABLE public.task (id bigserial, plan timestamptz NOT NULL DEFAULT now(), \"group\" text NOT NULL DEFAULT 'a',
             state text NOT NULL DEFAULT 'PLAN', input text NOT NULL, output text, PRIMARY KEY (id, \"group\"))
             PARTITION BY LIST (\"group\");
         ALTER TABLE public.task ALTER COLUMN output SET STORAGE PLAIN;
         CREATE TABLE public.part_a PARTITION OF public.task FOR VALUES IN ('a');
         CREATE TABLE public.part_b PARTITION OF public.task DEFAULT PARTITION BY RANGE (id);
         CREATE TABLE public.part_b1 PARTITION OF public.part_b FOR VALUES FROM (1) TO (1000000);
         INSERT INTO public.task (state, input, output, \"group\") SELECT 'DONE', 'SELECT 1', repeat(md5(n::text), 60), chr(97 + n % 2)
             FROM generate_series(1, 12000) n;
         INSERT INTO public.task (input, \"group\") SELECT 'SELECT 1', chr(97 + n % 2) FROM generate_series(1, 10) n;",
    );
    let supervisor = Supervisor::of(&database).queue_key("sleep", 200).start();
    supervisor.wait("what waited is done").within(SOON).until(|| count(&database, "state = 'DONE'") == 12010);
    wait_repaired(&supervisor);
    for table in ["task", "part_a", "part_b", "part_b1"] {
        let valid = format!(
            "SELECT count(*)::text FROM pg_index WHERE indrelid = 'public.{table}'::regclass AND indpred IS NOT NULL AND indisvalid"
        );
        assert_eq!(text(&database, &valid).as_deref(), Some("6"), "{table}\n{}", supervisor.describe());
    }
    stop(&supervisor);
    starts_without_ddl(&database);
}
