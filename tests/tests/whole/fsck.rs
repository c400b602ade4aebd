//! `mill.fsck` and `launcher fsck`: what is wrong is named in a sentence, and what is right is not.

use tests::{Cluster, Database, Supervisor};

use crate::queries::{all, running};

fn differences(database: &Database) -> Vec<String> {
    all(database, "SELECT concat_ws(' ', queue, task, problem) FROM mill.fsck()")
}

#[test]
fn healthy_counters_have_no_differences_while_tasks_wait_run_and_are_finished() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    for columns in ["group = 'a'", "group = 'b', atomic = true", "group = 'c', repeat = '1 hour'"] {
        let id = database.insert_with("SELECT 1", columns);
        mill.finished(&database, id);
    }
    let failed = database.insert("SELECT 1 / 0");
    mill.finished(&database, failed);
    database.insert_with("SELECT 1", "plan = '2100-01-01'");
    let long = database.insert_with("SELECT pg_sleep(60)", "group = 'l'");
    running(&mill, &database, long);
    database.insert_with("SELECT 1", "group = 'l', plan = now() - interval '10 min'");
    mill.eventually("nothing differs", || differences(&database).is_empty());
    let asked = mill.command(&["fsck", database.name()]);
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.success(), "{said}");
    assert_eq!(said.trim(), format!("{}: no problems found", database.name()));
}

#[test]
fn every_difference_is_named_in_a_sentence() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let done = database.insert("SELECT 1");
    mill.finished(&database, done);
    drop(mill);
    // what no program of ours leaves behind
    database.run(
        "SET session_replication_role = replica; \
         INSERT INTO public.task (id, input, state, start, stop, pid, error) VALUES \
         (101, '', 'WORK', now(), NULL, NULL, NULL), (102, '', 'WORK', now(), NULL, 2147483000, NULL), \
         (103, '', 'TAKE', now(), NULL, NULL, NULL), (104, '', 'DONE', now(), NULL, NULL, NULL), \
         (105, '', 'DONE', now(), now(), NULL, 'ERROR:  x'), (106, '', 'FAIL', now(), now(), NULL, NULL), \
         (107, '', 'PLAN', now(), NULL, 5, NULL), (108, '', 'WORK', now(), NULL, 2147483000, NULL); \
         UPDATE mill.queue SET relid = relid WHERE false",
    );
    let found = differences(&database).join("\n");
    for sentence in [
        "public.task 101 WORK without a backend pid or a start",
        "public.task 102 WORK in backend pid 2147483000, which does not exist",
        "public.task 102 WORK in backend pid 2147483000, like 1 others",
        "public.task 103 TAKE with a backend pid or a start",
        "public.task 103 TAKE, but no scheduler serves the table",
        "public.task 104 DONE with no stop",
        "public.task 105 DONE with an error",
        "public.task 106 FAIL with no error",
        "public.task 107 PLAN with a start or a backend pid",
    ] {
        assert!(found.contains(sentence), "no \"{sentence}\" in\n{found}");
    }
    let mill = Supervisor::of(&database).start();
    let asked = mill.command(&["fsck", database.name()]);
    let said = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(asked.status.code(), Some(1), "{said}");
    assert!(said.contains("public.task: task 104: DONE with no stop"), "{said}");
}

#[test]
fn jobs_whose_numbers_do_not_add_up_are_named() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.eventually("the catalog is made", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| !rows.is_empty())
    });
    database.run("INSERT INTO mill.job (name, input) VALUES ('a', 'SELECT 1')");
    assert_eq!(differences(&database), Vec::<String>::new());
    database.run("UPDATE mill_private.job_state SET total_runs = 3, total_failures = -1");
    let found = differences(&database).join("\n");
    assert!(found.contains("job \"a\": 3 runs, but 0 successes, -1 failures and 0 crashes"), "{found}");
    database.run("DELETE FROM mill_private.job_state");
    assert!(differences(&database).join("\n").contains("job \"a\" has no statistics"));
}
