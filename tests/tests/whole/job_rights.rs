//! Whose jobs they are: members of the owner see, change and run them, nobody else; and only the mill itself says whose
//! run a row is.

use tests::{Cluster, Database, Supervisor};

use crate::job_fixture::{self, insert, runs, status};
use crate::queries::{all, one, refusal};

/// A role that may use the mill and insert tasks; gone with the database's own.
fn user(database: &Database, name: &str) -> String {
    let role = format!("{}_{name}", database.owner());
    database.run(&format!(
        "CREATE ROLE \"{role}\" LOGIN; GRANT INSERT ON public.task TO \"{role}\"; SELECT mill.grant('{role}', 'use')"
    ));
    role
}

fn drop_users(database: &Database, roles: &[&String]) {
    for role in roles {
        database.run(&format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""));
    }
}

#[test]
fn each_user_sees_changes_and_runs_the_jobs_of_his_own_roles_alone() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let (alice, bob) = (user(&database, "alice"), user(&database, "bob"));
    let connect = |role: &str| database.server().try_connect(role, database.name()).expect("he may log in");
    let (mut a, mut b) = (connect(&alice), connect(&bob));
    let sql = "INSERT INTO mill.job (name, input, schedule_interval) VALUES ($1, 'SELECT current_user', '1 day') RETURNING id";
    let hers: i32 = a.query_one(sql, &[&"hers"]).expect("INSERT").get(0);
    let his: i32 = b.query_one(sql, &[&"his"]).expect("INSERT").get(0);
    for job in [hers, his] {
        mill.eventually("it has run", || runs(&database, job) == ["succeeded"]);
    }
    let output: String = one(&database, &format!("SELECT output FROM public.task WHERE job = {hers}"));
    assert_eq!(output, database.owner(), "a run executes as the queue's user, never as the owner");
    for (client, own) in [(&mut a, hers), (&mut b, his)] {
        for table in ["mill.run", "mill.job_status", "mill.job_stat"] {
            let rows = client.query(&format!("SELECT job FROM {table}"), &[]).expect("he may read");
            assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [own], "{table}");
        }
        assert_eq!(client.query("SELECT id FROM mill.job", &[]).expect("he may read").len(), 1);
    }
    for sql in
        ["alter_job({}, scheduled => false)", "alter_job({}, next_start => now())", "run_job({})", "delete_job({})"]
    {
        let said = refusal(&mut b, &format!("SELECT mill.{}", sql.replace("{}", &hers.to_string())));
        assert!(said.contains("does not exist, or you are not a member of its owner"), "{said}");
    }
    assert_eq!(b.execute("UPDATE mill.job SET scheduled = false WHERE id = $1", &[&hers]).expect("no row"), 0);
    assert_eq!(b.query("SELECT * FROM mill.run WHERE job = $1", &[&hers]).expect("no row").len(), 0);
    assert_eq!(status(&database, hers).0, "Scheduled");
    let said = refusal(&mut a, &format!("INSERT INTO mill.job (name, input, owner) VALUES ('x', 'SELECT 1', '{bob}')"));
    assert!(said.starts_with("42501"), "{said}");
    // a group role: both may
    database.run(&format!("GRANT \"{alice}\" TO \"{bob}\""));
    b.batch_execute(&format!("SELECT mill.run_job({hers})")).expect("a member may");
    mill.eventually("it has run twice", || runs(&database, hers).len() == 2);
    // who may not insert tasks may not have jobs
    database.run(&format!("REVOKE INSERT ON public.task FROM \"{alice}\""));
    let said = refusal(&mut a, &format!("SELECT mill.run_job({hers})"));
    assert!(said.contains("may not INSERT into public.task"), "{said}");
    let said = refusal(&mut a, "INSERT INTO mill.job (name, input) VALUES ('x', 'SELECT 1')");
    assert!(said.contains("may not INSERT into public.task"), "{said}");
    drop((a, b));
    database.run("DELETE FROM mill.job");
    drop_users(&database, &[&bob, &alice]);
}

#[test]
fn a_renamed_job_keeps_the_edges_of_authors_who_have_left() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let (team, bob) = (user(&database, "team"), user(&database, "bob"));
    database.run(&format!("GRANT \"{team}\" TO \"{bob}\""));
    let connect = |role: &str| database.server().try_connect(role, database.name()).expect("he may log in");
    let (mut t, mut b) = (connect(&team), connect(&bob));
    t.batch_execute("INSERT INTO mill.job (name, input) VALUES ('first', 'SELECT 1'), ('second', 'SELECT 2')")
        .expect("jobs");
    b.batch_execute("INSERT INTO mill.edge (job, from_job) VALUES ('second', 'first')").expect("an edge of a member");
    database.run(&format!("REVOKE \"{team}\" FROM \"{bob}\""));
    t.batch_execute("UPDATE mill.job SET name = 'last' WHERE name = 'second'; UPDATE mill.job SET name = 'start' WHERE name = 'first'")
        .expect("renamed");
    let edge: String = one(&database, "SELECT concat_ws(' ', from_job, job, made_by) FROM mill.edge");
    assert_eq!(edge, format!("start last {bob}"));
    let said = refusal(&mut b, "INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('last', 'start', 'failure')");
    assert!(said.starts_with("42501"), "he has left: {said}");
    t.batch_execute("SELECT mill.run('start', '2026-01-01Z')").expect("run");
    mill.eventually("the edge leads on", || {
        one::<bool>(&database, "SELECT EXISTS (SELECT FROM mill.run WHERE name = 'last' AND state = 'succeeded')")
    });
    drop((t, b));
    database.run("DELETE FROM mill.job");
    drop_users(&database, &[&bob, &team]);
}

#[test]
fn nobody_else_says_whose_run_a_row_is_or_forges_its_end() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = insert(&database, "quiet", "input", "'SELECT 1'");
    let eve = user(&database, "eve");
    database.run(&format!("GRANT ALL ON public.task TO \"{eve}\"; GRANT USAGE ON SEQUENCE public.task_id_seq TO \"{eve}\"; GRANT CREATE ON SCHEMA public TO \"{eve}\""));
    let mut client = database.server().try_connect(&eve, database.name()).expect("she may log in");
    let said = refusal(&mut client, &format!("INSERT INTO public.task (input, job) VALUES ('SELECT 1', {job})"));
    assert!(said.contains("only pgmill writes job"), "{said}");
    let said =
        refusal(&mut client, "INSERT INTO public.task (input) VALUES ('SELECT 1'); UPDATE public.task SET job = 1");
    assert!(said.contains("only pgmill writes job"), "{said}");
    // neither the steps of the catalog nor the entry points of the queue, whose names anybody knows
    let queue: u32 = one(&database, "SELECT 'public.task'::regclass::oid");
    for function in [
        "mill_private.order_run(1, now(), now())".to_owned(),
        format!("mill_private.begin_run({queue}, 1, 1, 1)"),
        format!("mill_private.end_run({queue}, 1, 1, 'DONE', NULL, NULL, NULL, NULL, NULL)"),
        "mill_private.close_run(1, true, 'marked', NULL)".to_owned(),
        format!("mill_private.start_jobs({queue}, 1)"),
        format!("mill_private.insert_runs({queue}, 1, NULL)"),
        format!("mill_private.q{queue}_begin_run(1, 1, 1)"),
        format!("mill_private.q{queue}_end_run(1, 1, 'DONE', NULL, NULL, NULL, NULL, NULL)"),
        format!("mill_private.q{queue}_start_jobs(1)"),
        format!("mill_private.q{queue}_insert_runs(1, NULL)"),
    ] {
        let said = refusal(&mut client, &format!("SELECT {function}"));
        assert!(said.starts_with("42501"), "{function}: {said}");
        // it is the right that is missing, and not a function of that name
        database.run(&format!("BEGIN; SELECT {function}; ROLLBACK"));
    }
    // the triggers of the table run as its user: on a table of her own they would run for her
    let triggers: Vec<String> = all(
        &database,
        "SELECT DISTINCT t.tgfoid::regproc::text FROM pg_trigger t WHERE t.tgrelid = 'public.task'::regclass AND t.tgname LIKE 'mill_job_%'",
    );
    assert_eq!(triggers.len(), 4, "{triggers:?}");
    client.batch_execute("CREATE TABLE public.own (LIKE public.task)").expect("her own");
    for function in &triggers {
        let sql =
            format!("CREATE TRIGGER forged AFTER UPDATE ON public.own FOR EACH ROW EXECUTE FUNCTION {function}()");
        let said = refusal(&mut client, &sql);
        assert!(said.starts_with("42501"), "{function}: {said}");
    }
    drop(client);
    drop_users(&database, &[&eve]);
}
