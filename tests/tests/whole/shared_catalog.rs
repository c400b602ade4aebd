//! Two queues of different users in one new database: the second one uses the catalog that the first one makes as soon as it
//! is there and both sides agree, without a restart, and meanwhile the advice is right.

use serde_json::{Value, json};
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor};

use crate::queries::one;

/// A second user with a schema of its own, who may not create in the database.
fn second_user(database: &Database) -> String {
    let second = format!("{}_second", database.owner());
    let (name, role) = (quote_ident(database.name()), quote_ident(&second));
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; CREATE SCHEMA jobs AUTHORIZATION {role}; GRANT CONNECT ON DATABASE {name} TO {role}; \
         GRANT {role} TO {}",
        quote_ident(database.login())
    ));
    second
}

/// Serves both from the first moment on.
fn start<'d>(database: &'d Database, second: &str) -> Supervisor<'d> {
    let row = json!({"data": database.name(), "user": second, "schema": "jobs"});
    Supervisor::of(database).queue(row).start()
}

fn row_of_second(mill: &Supervisor<'_>) -> Option<Value> {
    Some(mill.status()?["databases"][1].clone())
}

#[track_caller]
fn advised(mill: &Supervisor<'_>, advice: &str) {
    mill.eventually("status names what is missing", || {
        row_of_second(mill)?["why"].as_str().is_some_and(|why| why.contains(advice)).then_some(())
    });
    // there with quotes in quotes
    assert!(mill.log_contains(&advice.replace('"', "\\\"")), "{}", mill.describe());
    assert!(!mill.log_contains("GRANT CREATE ON DATABASE"), "{}", mill.describe());
}

/// The second queue is registered and runs a job, by the same scheduler.
#[track_caller]
fn used(mill: &Supervisor<'_>, database: &Database, pid: &Value) {
    mill.eventually("the second queue is registered", || {
        let sql = "SELECT FROM mill.queue WHERE schema = 'jobs'";
        database.query(sql, &[]).is_some_and(|rows| rows.len() == 1)
    });
    mill.eventually("the reason is gone", || row_of_second(mill)?["why"].is_null().then_some(()));
    assert_eq!(&row_of_second(mill).expect("status")["pid"], pid, "{}", mill.describe());
    let mut owner = database.connect();
    owner
        .batch_execute(
            "INSERT INTO mill.job (name, input, queue) VALUES ('one', 'SELECT 1', 'jobs.task'); \
             SELECT mill.run_job(id) FROM mill.job",
        )
        .expect("a job");
    mill.eventually("the job has run there", || {
        let sql = "SELECT FROM mill.run WHERE state = 'succeeded' AND queue = 'jobs.task'";
        database.query(sql, &[]).is_some_and(|rows| rows.len() == 1)
    });
}

#[test]
fn the_second_queue_of_a_new_database_notices_the_catalog_and_the_consent_without_a_restart() {
    let database = Cluster::shared().database();
    let second = second_user(&database);
    let mill = start(&database, &second);
    let consent = format!("GRANT INSERT ON \"jobs\".\"task\" TO {}", quote_ident(database.owner()));
    advised(&mill, &consent);
    let owner: String =
        one(&database, "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'");
    assert_eq!(owner, database.owner());
    let pid = row_of_second(&mill).expect("status")["pid"].clone();
    let mut client = database.server().try_connect(&second, database.name()).expect("connect");
    client.batch_execute(&consent).expect("the GRANT");
    used(&mill, &database, &pid);
}

#[test]
fn the_second_queue_notices_that_it_was_admitted_without_a_restart() {
    let database = Cluster::shared().database();
    let second = second_user(&database);
    // the launcher's login can let nobody in
    database.run(&format!("REVOKE {} FROM {}", quote_ident(database.owner()), quote_ident(database.login())));
    let mill = start(&database, &second);
    let consent = format!("GRANT INSERT ON \"jobs\".\"task\" TO {}", quote_ident(database.owner()));
    advised(&mill, &consent);
    let pid = row_of_second(&mill).expect("status")["pid"].clone();
    let mut client = database.server().try_connect(&second, database.name()).expect("connect");
    client.batch_execute(&consent).expect("the GRANT");
    let admission = format!("SELECT mill.admit('{second}')");
    advised(&mill, &format!("run as that role: {admission}"));
    database.connect().batch_execute(&admission).expect("admit");
    used(&mill, &database, &pid);
}
