//! What a queue's owner may pretend: results of runs in his own queue, once each, and nothing else.

use std::thread;
use std::time::Duration;

use postgres::Client;
use tests::{Database, Supervisor, steadily};

use crate::asking::{all, one, refusal};
use crate::trap_calls::value;
use crate::trap_stage::{CatalogOf, Stage};

/// Runs a statement and gives what came: done, or why not.
fn attempt(client: &mut Client, sql: &str) -> Result<(), String> {
    client.batch_execute(sql).map_err(|error| match error.as_db_error() {
        Some(said) => format!("{} {}", said.code().code(), said.message()),
        None => error.to_string(),
    })
}

/// A job of the application that runs in its own queue, for long, with jobs that follow its end. Its number and its run.
fn prey(stage: &Stage, mill: &Supervisor<'_>) -> (i32, i64) {
    stage.say(
        stage.database.owner(),
        "BEGIN; INSERT INTO mill.job (name, input, queue) VALUES ('prey', 'SELECT pg_sleep(600)', 'public.task'), \
             ('alarm', 'SELECT 1', 'public.task'), ('heir', 'SELECT 1', 'public.task'); \
         INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('alarm', 'prey', 'failure'), ('heir', 'prey', 'success'); COMMIT",
    );
    let job = one(&stage.database, "SELECT id FROM mill.job WHERE name = 'prey'");
    let mut app = stage.session(stage.database.owner());
    let run: i64 = app.query_one("SELECT mill.run_job($1)", &[&job]).expect("run_job").get(0);
    mill.eventually("the prey runs", || numbers(&stage.database, "prey") == [1, 0, 0, 0]);
    (job, run)
}

/// Of a job: how many runs are at work, and how many have succeeded, failed and crashed; a crash is a start without an end.
fn numbers(database: &Database, job: &str) -> [i64; 4] {
    let sql = format!(
        "SELECT ARRAY[s.running, s.total_successes, s.total_failures, s.total_crashes - s.running]::bigint[] \
           FROM mill.job_stat s JOIN mill.job j ON j.id = s.job WHERE j.name = '{job}'"
    );
    one::<Vec<i64>>(database, &sql).try_into().expect("four numbers")
}

/// The prey runs on, and nothing has followed.
#[track_caller]
fn unharmed(stage: &Stage, after: &str) {
    let followed = "SELECT count(*) FROM mill.run r JOIN mill.job j ON j.id = r.job WHERE j.name IN ('alarm', 'heir')";
    steadily("what is forged changes nothing", Duration::from_secs(1), || {
        let seen = (numbers(&stage.database, "prey"), one::<i64>(&stage.database, followed));
        assert_eq!(seen, ([1, 0, 0, 0], 0), "numbers of the prey, and runs that follow, after {after}");
        true
    });
}

#[test]
fn a_row_that_names_a_run_of_another_queue_does_not_end_it() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let (job, run) = prey(&stage, &mill);
    for end in ["FAIL", "DONE", "GONE"] {
        let said = stage.forge_end(job, run, end);
        unharmed(&stage, &format!("{end} ({said:?})"));
    }
}

/// The entry points of a queue: what is called, with the types and names of its arguments.
fn entry_points(stage: &Stage, relation: &str) -> Vec<(String, Vec<String>, Vec<String>)> {
    let rows = stage.database.look(
        "SELECT p.oid::regproc::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, o) ORDER BY o), \
                coalesce(p.proargnames, '{}')::text[] FROM pg_proc p \
          WHERE p.pronamespace = to_regnamespace('mill_private') AND p.proname ~ ('^q' || to_regclass($1)::oid || '_') ORDER BY 1",
        &[&relation],
    );
    let found: Vec<_> = rows.expect("pg_proc").iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert!(!found.is_empty(), "{relation} has no entry points mill_private.q<oid>_*");
    found
}

/// Calls of an entry point about a run, with every word that may mean an end.
fn calls(entry: &(String, Vec<String>, Vec<String>), run: i64) -> Vec<String> {
    let (name, types, names) = entry;
    let call = |word: &str| {
        let arguments = types.iter().enumerate().map(|(place, kind)| match kind.as_str() {
            "bigint" => format!("{run}::bigint"),
            "bigint[]" => format!("ARRAY[{run}]::bigint[]"),
            "text" | "name" => format!("'{word}'"),
            "text[]" => format!("ARRAY['{word}']"),
            other => value(other, names.get(place).map_or("", String::as_str)),
        });
        format!("SELECT * FROM {name}({})", arguments.collect::<Vec<_>>().join(", "))
    };
    ["FAIL", "DONE", "GONE", "failed", "succeeded", "cancelled"].map(call).to_vec()
}

#[test]
fn an_entry_point_is_for_its_own_queue_and_takes_runs_of_its_own_queue() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let (_, run) = prey(&stage, &mill);
    let strangers = [(&stage.evil, "public.task"), (&stage.member, "public.task"), (&stage.member, "evil.task")];
    for (role, relation) in strangers {
        let mut client = stage.session(role);
        for entry in entry_points(&stage, relation) {
            for call in calls(&entry, run) {
                let said = refusal(&mut client, &call);
                assert!(said.starts_with("42501"), "{role}: {call}: {said}");
            }
        }
    }
    let mut app = stage.session(stage.database.owner());
    for entry in entry_points(&stage, "evil.task") {
        let said = refusal(&mut app, &calls(&entry, run)[0]);
        assert!(said.starts_with("42501"), "the application: {entry:?}: {said}");
    }
    let mut evil = stage.session(&stage.evil);
    evil.batch_execute("SET statement_timeout = '2s'").expect("SET");
    for entry in entry_points(&stage, "evil.task") {
        for call in calls(&entry, run) {
            for _ in 0..2 {
                let _ = attempt(&mut evil, &call);
            }
        }
        unharmed(&stage, &entry.0);
    }
}

#[test]
fn a_run_ends_once_whatever_its_queues_user_says_afterwards() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let mut evil = stage.session(&stage.evil);
    evil.batch_execute(
        "SET statement_timeout = '2s'; BEGIN; INSERT INTO mill.job (name, input, queue) VALUES ('own', 'SELECT 1', 'evil.task'), \
            ('next', 'SELECT 1', 'evil.task'); INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('next', 'own', 'done'); COMMIT",
    )
    .expect("evil's own jobs");
    let job: i32 = one(&stage.database, "SELECT id FROM mill.job WHERE name = 'own'");
    let run: i64 = evil.query_one("SELECT mill.run_job($1)", &[&job]).expect("run_job").get(0);
    let ended = || (numbers(&stage.database, "own"), numbers(&stage.database, "next"));
    // A run that is asked for by run_job delivers along no edge unless it has a time; mill.run does.
    mill.eventually("it has run", || ended().0 == [0, 1, 0, 0]);
    let with_time: i64 = evil.query_one("SELECT mill.run('own', '2026-01-01')", &[]).expect("run").get(0);
    mill.eventually("it has run, and the next one", || ended().0[1] == 2 && ended().1[1] >= 1);
    mill.eventually("nothing else follows", || {
        one::<i64>(&stage.database, "SELECT count(*) FROM mill_private.run WHERE outcome IS NULL") == 0
    });
    let before = ended();
    for one_of in [run, with_time] {
        for entry in entry_points(&stage, "evil.task") {
            for call in calls(&entry, one_of) {
                let _ = attempt(&mut evil, &call);
            }
        }
        let _ = stage.forge_end(job, one_of, "FAIL");
        let _ = stage.forge_end(job, one_of, "DONE");
    }
    steadily("an ended run stays as it ended", Duration::from_secs(1), || {
        assert_eq!(ended(), before, "running, succeeded, failed and crashed, of the job and of the next one");
        true
    });
}

#[test]
fn a_definer_function_of_somebody_else_has_no_rights_of_the_session_that_calls_it() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let app = stage.database.owner();
    stage.say(
        app,
        "BEGIN; INSERT INTO mill.flow (name) VALUES ('quiet flow'); \
         INSERT INTO mill.job (name, input, queue, flow) VALUES ('quiet', 'SELECT 1', 'public.task', 'quiet flow'), ('other', 'SELECT 1', 'public.task', NULL); \
         INSERT INTO mill.timer (name, start, period) VALUES ('calm', '2100-01-01', '1 day'); \
         INSERT INTO mill.edge (job, from_timer) VALUES ('quiet', 'calm'); COMMIT",
    );
    stage.say(
        &stage.evil,
        "CREATE FUNCTION evil.lure(statement text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN EXECUTE statement; END'",
    );
    let look = || -> String {
        one(
            &stage.database,
            "SELECT concat_ws(E'\\n', (SELECT string_agg(j::text, E'\\n' ORDER BY j.id) FROM mill.job j), \
                (SELECT string_agg(f::text, E'\\n' ORDER BY f.name) FROM mill.flow f), (SELECT string_agg(e.job, ' ' ORDER BY e.id) FROM mill.edge e), \
                (SELECT string_agg(concat(t.name, t.start, t.enabled), ' ') FROM mill.timer t), (SELECT count(*) FROM mill.command), \
                (SELECT count(*) FROM mill.backfill), (SELECT string_agg(concat(s.job, s.next_start, s.total_runs), ' ' ORDER BY s.job) FROM mill.job_stat s))",
        )
    };
    let job: i32 = one(&stage.database, "SELECT id FROM mill.job WHERE name = 'quiet'");
    let before = look();
    let mut victim = stage.session(app);
    let mut faults = Vec::new();
    let mut statements: Vec<String> = [
        "SELECT mill.run_job({})",
        "SELECT mill.run('quiet', '2026-01-01')",
        "SELECT mill.rerun('quiet', '2026-01-01', 'only')",
        "SELECT mill.mark('quiet', '2026-01-01', 'failure')",
        "SELECT mill.skip('quiet', '2026-01-01')",
        "SELECT mill.cancel('quiet')",
        "SELECT mill.fire('calm', '2026-01-01')",
        "SELECT mill.pause(flow => 'quiet flow')",
        "SELECT mill.pause(job => 'quiet')",
        "SELECT mill.clear('quiet flow', '2026-01-01')",
        "SELECT mill.alter_job({}, scheduled => false)",
        "SELECT mill.alter_job({}, next_start => now())",
        "UPDATE mill.job SET input = 'SELECT 2' WHERE id = {}",
        "INSERT INTO mill.job (name, input, queue, owner) VALUES ('planted', 'SELECT 1', 'evil.task', 'APP')",
        "INSERT INTO mill.flow (name, owner) VALUES ('planted', 'APP')",
        "INSERT INTO mill.edge (job, from_job) VALUES ('quiet', 'other')",
        "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('calm', '2026-01-01', '2026-02-01')",
        "INSERT INTO mill.command (action, job, at, made_by) VALUES ('run', 'quiet', '2026-01-01', 'APP')",
        "SELECT mill.delete_job({})",
        "DELETE FROM mill.job WHERE id = {}",
    ]
    .iter()
    .map(|statement| statement.replace("{}", &job.to_string()).replace("APP", app))
    .collect();
    let oid: u32 = one(&stage.database, "SELECT 'public.task'::regclass::oid");
    if !all::<String>(&stage.database, &format!("SELECT p.proname::text FROM pg_proc p WHERE p.proname ~ '^q{oid}_'"))
        .is_empty()
    {
        statements.extend(entry_points(&stage, "public.task").iter().flat_map(|entry| calls(entry, 1)));
    }
    for statement in statements {
        let said = victim.execute("SELECT evil.lure($1)", &[&statement]);
        let after = look();
        if after != before {
            faults.push(format!("{statement} ({}): {before}\nbecame\n{after}", said.is_ok()));
            break;
        }
        if statement.starts_with("SELECT * FROM") {
            let code = said.err().and_then(|error| error.code().map(|code| code.code().to_owned()));
            assert_eq!(code.as_deref(), Some("42501"), "{statement}");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    drop(mill);
}

#[test]
fn a_command_bears_the_name_of_whoever_gave_it() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let app = stage.database.owner();
    stage.say(app, "INSERT INTO mill.job (name, input, queue) VALUES ('theirs', 'SELECT 1', 'public.task')");
    stage.say(
        &stage.evil,
        "INSERT INTO mill.job (name, input, queue) VALUES ('own', 'SELECT 1', 'evil.task'); \
         CREATE FUNCTION evil.lure(job text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS \
             $$ BEGIN INSERT INTO mill.command (action, job) VALUES ('pause', lure.job); END $$",
    );
    stage.say(&stage.evil, "INSERT INTO mill.command (action, job) VALUES ('pause', 'own')");
    let forged = format!("INSERT INTO mill.command (action, job, made_by) VALUES ('resume', 'own', '{app}')");
    let mut said = vec![attempt(&mut stage.session(&stage.evil), &forged)];
    for job in ["own", "theirs"] {
        said.push(attempt(&mut stage.session(app), &format!("SELECT evil.lure('{job}')")));
    }
    let makers: Vec<String> = all(&stage.database, "SELECT DISTINCT made_by::text FROM mill.command");
    assert_eq!(makers, [stage.evil.as_str()], "{said:?}");
    drop(mill);
}

#[test]
fn functions_that_keep_the_graph_are_for_its_keepers_alone() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let keepers = "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname IN \
        ('s_fire_timers', 's_set_timers', 's_list_timers', 's_list_backfills', 's_advance_backfill', 's_stop_backfill', 's_sweep_graph', 's_end_idle_runs') \
        ORDER BY 1";
    let functions: Vec<String> = all(&stage.database, keepers);
    assert!(functions.len() >= 6, "{functions:?}");
    let mut wrong = Vec::new();
    for function in &functions {
        for (role, may) in [(stage.evil.as_str(), false), (&stage.member, false), (stage.database.owner(), true)] {
            let sql = format!("SELECT has_function_privilege('{role}', '{function}', 'EXECUTE')");
            if one::<bool>(&stage.database, &sql) != may {
                wrong.push(format!("{role} {} call {function}", if may { "may not" } else { "may" }));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let said = refusal(&mut stage.session(&stage.evil), "SELECT mill_private.s_stop_backfill(1, 'no')");
    assert!(said.starts_with("42501"), "{said}");
    drop(mill);
}

#[test]
fn a_row_trigger_of_a_queue_cannot_be_hung_onto_a_table_of_somebody_else() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let sql = "SELECT DISTINCT t.tgfoid::regproc::text FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid \
                WHERE t.tgrelid = 'public.task'::regclass AND NOT t.tgisinternal AND p.prosecdef";
    let functions: Vec<String> = all(&stage.database, sql);
    assert!(
        !functions.is_empty(),
        "no trigger of a task table is a definer: whoever changes a row would need rights on the catalog"
    );
    let mut evil = stage.session(&stage.evil);
    evil.batch_execute("CREATE TABLE evil.own (LIKE evil.task INCLUDING ALL)").expect("a copy");
    for function in functions {
        let said = refusal(
            &mut evil,
            &format!(
                "CREATE TRIGGER forged AFTER INSERT OR UPDATE ON evil.own FOR EACH ROW EXECUTE FUNCTION {function}()"
            ),
        );
        assert!(said.starts_with("42501"), "{function}: {said}");
    }
    drop(mill);
}

#[test]
fn a_caller_who_waits_for_no_lock_pauses_no_job() {
    let stage = Stage::new(CatalogOf::Superuser);
    let mill = stage.serve();
    let app = stage.database.owner();
    stage.say(
        app,
        "INSERT INTO mill.job (name, input, queue, schedule_interval) VALUES ('spy', 'SELECT 1', 'evil.task', '1 s')",
    );
    mill.eventually("it runs", || numbers(&stage.database, "spy")[1] > 0);
    drop(mill);
    tests::eventually("it is due again", || {
        one::<bool>(&stage.database, "SELECT coalesce(next_start < now(), true) FROM mill.job_stat")
    });
    let services = stage.database.look(
        "SELECT p.oid::regproc::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, o) ORDER BY o), \
                coalesce(p.proargnames, '{}')::text[] FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
          WHERE n.nspname IN ('mill', 'mill_private') AND p.prorettype <> 'trigger'::regtype AND p.proname <> 's_watch_graph' \
            AND (p.proname LIKE 's\\_%' OR p.proname ~ '^q[0-9]+_') AND has_schema_privilege($1, n.oid, 'USAGE') \
            AND has_function_privilege($1, p.oid, 'EXECUTE')",
        &[&app],
    );
    let mut holder = stage.session(&stage.evil);
    // a row of evil.task waits for a lock that somebody else holds
    holder
        .batch_execute(
            "CREATE TABLE evil.gate (); GRANT ALL ON evil.gate TO PUBLIC;
             CREATE FUNCTION evil.wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOCK TABLE evil.gate; RETURN NEW; END';
             CREATE TRIGGER a_waits BEFORE INSERT ON evil.task FOR EACH ROW EXECUTE FUNCTION evil.wait()",
        )
        .expect("a trigger");
    holder.batch_execute("BEGIN; LOCK TABLE evil.gate").expect("LOCK");
    let mut client = stage.session(app);
    client.batch_execute("SET lock_timeout = '1ms'; SET statement_timeout = '2s'").expect("SET");
    for service in services.expect("functions") {
        let (name, types, names): (String, Vec<String>, Vec<String>) = (service.get(0), service.get(1), service.get(2));
        let arguments =
            types.iter().enumerate().map(|(place, kind)| value(kind, names.get(place).map_or("", String::as_str)));
        let _ = attempt(&mut client, &format!("SELECT * FROM {name}({})", arguments.collect::<Vec<_>>().join(", ")));
    }
    for view in ["mill.run", "mill.job_stat", "mill.job_status", "mill.waiting", "mill.integrity"] {
        let _ = attempt(&mut client, &format!("SELECT * FROM {view}"));
    }
    drop((client, holder));
    let paused: Option<String> = one(
        &stage.database,
        "SELECT concat(s.reason, '!') FROM mill.job_stat s JOIN mill.job j ON j.id = s.job AND j.name = 'spy' AND NOT j.scheduled UNION ALL SELECT NULL LIMIT 1",
    );
    assert_eq!(paused, None, "the job has been paused by a caller's lock_timeout");
}

/// A session of the row user at work, its backend and the moment its query began.
fn bystander(database: &Database) -> (thread::JoinHandle<Option<String>>, i32) {
    let mut client = database.connect();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).expect("a session").get(0);
    let at_work =
        thread::spawn(move || client.batch_execute("SELECT pg_sleep(600)").err().map(|error| error.to_string()));
    (at_work, pid)
}

/// A row that claims to be at work in that session.
fn begun(database: &Database, state: &str, pid: i32) -> i64 {
    database.insert_with(
        "SELECT 7",
        &format!("state = '{state}', pid = {pid}, start = now(), attempt = 1, group = '{state}'"),
    )
}

#[track_caller]
fn is_planned_and_runs(mill: &Supervisor<'_>, database: &Database, id: i64) {
    let row = mill.wait("it is planned, and runs").within(Duration::from_secs(15)).until(|| database.finished(id));
    assert_eq!(row["state"], "DONE", "{row:#}");
}

#[test]
fn a_row_inserted_as_begun_is_planned() {
    let database = tests::Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.finished(&database, database.insert("SELECT 1"));
    for state in ["WORK", "TAKE"] {
        is_planned_and_runs(&mill, &database, begun(&database, state, 1));
    }
    drop(mill);
    let inserted = ["WORK", "TAKE"].map(|state| begun(&database, state, 1));
    let mill = Supervisor::of(&database).start();
    inserted.into_iter().for_each(|id| is_planned_and_runs(&mill, &database, id));
}

#[test]
fn a_session_that_a_row_inserted_as_begun_names_goes_on_after_a_restart() {
    let database = tests::Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    mill.finished(&database, database.insert("SELECT 1"));
    let (at_work, pid) = bystander(&database);
    let at_it = format!(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '%pg_sleep%')"
    );
    tests::eventually("it is at work", || one::<bool>(&database, &at_it));
    let before = begun(&database, "WORK", pid);
    drop(mill);
    let meanwhile = begun(&database, "WORK", pid);
    let mill = Supervisor::of(&database).start();
    mill.finished(&database, database.insert("SELECT 1"));
    steadily("the session that was named goes on", Duration::from_secs(3), || one::<bool>(&database, &at_it));
    assert!(!at_work.is_finished(), "{:?}", at_work.join());
    [before, meanwhile].into_iter().for_each(|id| is_planned_and_runs(&mill, &database, id));
    database.run(&format!("SELECT pg_terminate_backend({pid})"));
}
