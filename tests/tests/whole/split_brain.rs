//! Two servers of one origin that both accept writes: a task runs where its row is recorded, or not at all.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use tests::failover::Pair;
use tests::{Database, Server, Supervisor};

use crate::asking::{one, state};

/// An address that can be pointed at another server; connections that there are stay where they are.
struct FloatingAddress {
    folder: PathBuf,
}

impl FloatingAddress {
    fn new(server: &Server) -> FloatingAddress {
        let folder = std::env::temp_dir().join(format!("pgmill-floating-{}-{}", std::process::id(), server.port));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let address = FloatingAddress { folder };
        address.point_at(server);
        address
    }

    fn point_at(&self, server: &Server) {
        let (own, new) = (self.folder.join(".s.PGSQL.5432"), self.folder.join("new"));
        symlink(server.socket_folder.join(format!(".s.PGSQL.{}", server.port)), &new).expect("a link");
        fs::rename(new, own).expect("replace the link");
    }

    fn conninfo(&self, user: &str) -> String {
        format!("host={} port=5432 user={user}", self.folder.display())
    }
}

impl Drop for FloatingAddress {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Tasks of every kind that leave a mark where they have run; how many marks that makes.
fn load(database: &Database) -> i64 {
    let mark = "INSERT INTO public.did SELECT pg_catalog.current_setting(''pg_task.id'')::bigint";
    for columns in [
        // in a group each, so that each worker needs a session
        r#""group", atomic) SELECT '{mark}', 'plain ' || n, false"#,
        r#""group", atomic) SELECT '{mark}', 'atomic ' || n, true"#,
        r#""group", live) SELECT '{mark}', 'live', interval '1 minute'"#,
        r#""group", "max", count) SELECT '{mark}', 'counted', 1, 3"#,
    ] {
        let columns = columns.replace("{mark}", mark);
        database.run(&format!("INSERT INTO public.task (input, {columns} FROM generate_series(1, 6) AS n"));
    }
    24
}

fn make_marks(database: &Database) {
    database.run("CREATE TABLE public.did (id bigint); GRANT ALL ON public.did TO PUBLIC");
}

fn marks(database: &Database) -> i64 {
    one(database, "SELECT count(*) FROM public.did")
}

/// Every task has left its mark here and is recorded as done.
#[track_caller]
fn all_marked(mill: &Supervisor<'_>, database: &Database, count: i64) {
    mill.wait("all tasks have left their mark").within(Duration::from_secs(60)).until(|| marks(database) == count);
    let open = "SELECT count(*) FROM public.task WHERE state <> 'DONE'";
    mill.eventually("all of them are done", || one::<i64>(database, open) == 0);
}

/// The stand-by is promoted, and the old primary comes back as a primary of its own.
fn split(pair: &mut Pair, old: &Database) -> (Database, Database) {
    pair.catch_up();
    pair.kill_primary();
    pair.promote();
    (back_as_primary(pair, old), pair.on_primary(old))
}

/// The old primary is started as if nothing had happened.
fn back_as_primary(pair: &Pair, database: &Database) -> Database {
    pair.start_old_as_primary();
    let old = database.on(pair.standby().server());
    tests::eventually("the old primary accepts writes", || {
        old.look("SELECT pg_is_in_recovery()", &[]).is_some_and(|rows| !rows[0].get::<_, bool>(0))
    });
    old
}

#[test]
fn workers_that_reach_another_primary_run_nothing_and_both_servers_are_named() {
    let mut pair = Pair::start(true);
    let database = pair.primary().database();
    make_marks(&database);
    let mill = Supervisor::of(&database).key("connect", pair.conninfo(database.login())).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    drop(mill);
    let (old, new) = split(&mut pair, &database);
    let address = FloatingAddress::new(new.server());
    let mill = Supervisor::of(&new).key("connect", address.conninfo(new.login())).row_key("sleep", 100).start();
    let first = new.insert("SELECT 1");
    mill.finished(&new, first);

    address.point_at(old.server());
    // what workers have left is on the right server: they are to need new sessions
    new.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_task %'");
    let count = load(&new);
    load(&old);
    let waiting: i64 = one(&new, "SELECT min(id)::bigint FROM public.task WHERE \"group\" LIKE 'plain %'");
    let names_both = |text: &str| text.contains("timeline 1,") && text.contains("timeline 2,");
    mill.eventually("status names both servers", || {
        mill.status().is_some_and(|status| names_both(&status.to_string()))
    });
    mill.eventually("the log names both servers", || {
        mill.log_contains("timeline 1,") && mill.log_contains("timeline 2,")
    });
    let why = "SELECT mill.why($1::bigint)";
    mill.eventually("mill.why names both servers and what to do", || {
        let text: String = crate::asking::one_with(&new, why, &[&waiting]);
        names_both(&text) && text.contains("fence")
    });
    assert_eq!((marks(&old), marks(&new)), (0, 0), "nothing has run: {}", mill.describe());

    address.point_at(new.server());
    all_marked(&mill, &new, count);
    let untouched: i64 = one(&old, "SELECT count(*) FROM public.task WHERE state <> 'PLAN' AND id > 1");
    assert_eq!((untouched, marks(&old)), (0, 0), "the other server is left alone: {}", mill.describe());
}

#[test]
fn an_old_primary_that_comes_back_on_the_first_host_is_left_alone() {
    let mut pair = Pair::start(true);
    let old = pair.primary().database();
    make_marks(&old);
    let mill = Supervisor::of(&old).key("connect", pair.conninfo(old.login())).row_key("sleep", 100).start();
    let mut count = load(&old);
    all_marked(&mill, &old, count);
    old.run("INSERT INTO mill.job (input, schedule_interval) VALUES ('INSERT INTO public.did VALUES (0)', '300 ms')");
    mill.eventually("the job runs", || one::<i64>(&old, "SELECT count(*) FROM public.did WHERE id = 0") > 0);
    let lasting = old.insert("SELECT pg_sleep(0.5)");
    crate::asking::running(&mill, &old, lasting);
    pair.catch_up();
    pair.kill_primary();
    pair.promote();
    let new = pair.on_primary(&old);
    mill.eventually("the promoted server is served", || mill.log_contains("queue has moved to another server"));
    let old = back_as_primary(&pair, &old);
    let on_old = marks(&old);
    count += load(&new);
    load(&old);
    let marked = "SELECT count(DISTINCT id) FROM public.did WHERE id <> 0";
    let finished = || one::<i64>(&new, marked) == count;
    mill.wait("the tasks of the promoted server run there").within(Duration::from_secs(60)).until(finished);
    let runs = one::<i64>(&new, "SELECT count(*) FROM public.did WHERE id = 0");
    mill.eventually("the job runs there", || one::<i64>(&new, "SELECT count(*) FROM public.did WHERE id = 0") > runs);

    // Every session is dialled anew, the first host first: a primary answers there.
    new.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
          WHERE pid <> pg_backend_pid() AND (application_name LIKE 'pg_%' OR application_name LIKE 'pgmill%')",
    );
    count += load(&new);
    mill.wait("they still run there").within(Duration::from_secs(60)).until(finished_count(&new, marked, count));
    mill.eventually("the task that ran at the fail-over has run again", || state(&new, lasting) == "DONE");
    assert_eq!(marks(&old), on_old, "nothing has run on the old primary: {}", mill.describe());
    let stuck = "SELECT count(*) FROM public.task WHERE state IN ('TAKE', 'WORK')";
    mill.eventually("nothing is stuck", || one::<i64>(&new, stuck) == 0);
}

fn finished_count<'d>(database: &'d Database, marked: &'d str, count: i64) -> impl FnMut() -> bool + 'd {
    move || one::<i64>(database, marked) == count
}
