//! Two servers of one origin that both accept writes: a task runs where its row is recorded, or not at all.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use tests::failover::Pair;
use tests::{Database, Server, Supervisor};

use crate::queries::{one, state};

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

/// Tasks of every kind that leave a mark where they have run; how many marks that makes. Repeating ones leave another kind
/// of mark, for ever.
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
    database.run(
        "INSERT INTO public.task (input, \"group\", repeat, active) \
         SELECT 'INSERT INTO public.ticked VALUES (''repeat'')', 'repeat ' || n, '200 ms', '1 day' FROM generate_series(1, 2) AS n",
    );
    24
}

fn make_marks(database: &Database) {
    database.run(
        "CREATE TABLE public.did (id bigint); CREATE TABLE public.ticked (what text); \
         GRANT ALL ON public.did, public.ticked TO PUBLIC",
    );
}

/// A job that leaves marks for ever, too.
fn make_job(mill: &Supervisor<'_>, database: &Database) {
    let job = "INSERT INTO mill.job (input, schedule_interval, retry_period, crash_wait) VALUES ('INSERT INTO public.ticked VALUES (''job'')', '300 ms', '0.2 s', '0.2 s')";
    mill.eventually("the queue is registered", || {
        database.query("SELECT FROM mill.queue", &[]).is_some_and(|rows| rows.len() == 1)
    });
    database.connect().batch_execute(job).expect("a job");
    ticks_go_on(mill, database, "job");
}

fn ticks(database: &Database, what: &str) -> i64 {
    crate::queries::one_with(database, "SELECT count(*) FROM public.ticked WHERE what = $1", &[&what])
}

#[track_caller]
fn ticks_go_on(mill: &Supervisor<'_>, database: &Database, what: &str) {
    let before = ticks(database, what);
    mill.wait(&format!("{what} goes on")).within(Duration::from_secs(30)).until(|| ticks(database, what) > before);
}

/// Nothing of ours has been done there: marks, and rows that are not as they were inserted.
fn done_on(database: &Database, inserted_after: i64) -> [i64; 3] {
    let touched = "SELECT count(*) FROM public.task WHERE id > $1 AND (state <> 'PLAN' OR attempt > 0)";
    let all = "SELECT count(*) FROM public.ticked";
    [marks(database), one(database, all), crate::queries::one_with(database, touched, &[&inserted_after])]
}

fn last_task(database: &Database) -> i64 {
    one(database, "SELECT max(id) FROM public.task")
}

fn marks(database: &Database) -> i64 {
    one(database, "SELECT count(*) FROM public.did")
}

/// Every task has left its mark here and is recorded as done.
#[track_caller]
fn all_marked(mill: &Supervisor<'_>, database: &Database, count: i64) {
    mill.wait("all tasks have left their mark").within(Duration::from_secs(60)).until(|| marks(database) == count);
    let open = "SELECT count(*) FROM public.task WHERE state <> 'DONE' AND job IS NULL AND repeat = '0'";
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
        old.query("SELECT pg_is_in_recovery()", &[]).is_some_and(|rows| !rows[0].get::<_, bool>(0))
    });
    old
}

#[test]
fn workers_that_reach_another_primary_run_nothing_and_both_servers_are_named() {
    let mut pair = Pair::start(true);
    let database = pair.primary().database();
    make_marks(&database);
    let mill = Supervisor::of(&database).key("connect", pair.conninfo(database.login())).start();
    make_job(&mill, &database);
    drop(mill);
    let (old, new) = split(&mut pair, &database);
    let address = FloatingAddress::new(new.server());
    let mill = Supervisor::of(&new).key("connect", address.conninfo(new.login())).queue_key("sleep", 100).start();
    let first = new.insert("SELECT 1");
    mill.finished(&new, first);
    ticks_go_on(&mill, &new, "job");
    let (last, ticked) = (last_task(&old), ticks(&old, "job"));

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
        let text: String = crate::queries::one_with(&new, why, &[&waiting]);
        names_both(&text) && text.contains("fence")
    });
    assert_eq!(done_on(&old, last), [0, ticked, 0], "nothing has run: {}", mill.describe());
    assert_eq!(marks(&new), 0, "nothing has run: {}", mill.describe());

    address.point_at(new.server());
    all_marked(&mill, &new, count);
    for what in ["job", "repeat"] {
        ticks_go_on(&mill, &new, what);
    }
    assert_eq!(done_on(&old, last), [0, ticked, 0], "the other server is left alone: {}", mill.describe());
}

#[test]
fn a_scheduler_that_reaches_another_primary_than_its_launcher_serves_nothing_there() {
    let mut pair = Pair::start(true);
    let database = pair.primary().database();
    make_marks(&database);
    let mill = Supervisor::of(&database).key("connect", pair.conninfo(database.login())).start();
    make_job(&mill, &database);
    drop(mill);
    let (old, new) = split(&mut pair, &database);
    let address = FloatingAddress::new(new.server());
    let mill = Supervisor::of(&new).key("connect", address.conninfo(new.login())).queue_key("sleep", 100).start();
    let first = new.insert("SELECT 1");
    mill.finished(&new, first);
    let (last, ticked) = (last_task(&old), ticks(&old, "job"));

    address.point_at(old.server());
    let mark = mill.log().mark();
    // all sessions of the queue; the launcher keeps its own
    new.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg\\_%'",
    );
    let names_both = |text: &str| {
        ["timeline 1,", "timeline 2,", "its launcher leads on server", "fence"].iter().all(|part| text.contains(part))
    };
    mill.eventually("status names both servers", || {
        let status = mill.status()?;
        (status["ready"] == false && names_both(&status.to_string())).then_some(())
    });
    mill.eventually("so does the log", || mill.log().since(mark).iter().any(|line| names_both(line)));
    let count = load(&new);
    load(&old);
    tests::steadily("nothing runs there", Duration::from_secs(3), || done_on(&old, last) == [0, ticked, 0]);
    let said = mill.log().since(mark).iter().filter(|line| line.contains("queue waits")).count();
    assert!(said <= 2, "{}", mill.describe());

    address.point_at(new.server());
    all_marked(&mill, &new, count);
    for what in ["job", "repeat"] {
        ticks_go_on(&mill, &new, what);
    }
    assert_eq!(done_on(&old, last), [0, ticked, 0], "the other server is left alone: {}", mill.describe());
}

#[test]
fn an_old_primary_that_comes_back_on_the_first_host_is_left_alone() {
    let mut pair = Pair::start(true);
    let old = pair.primary().database();
    make_marks(&old);
    let mill = Supervisor::of(&old).key("connect", pair.conninfo(old.login())).queue_key("sleep", 100).start();
    let mut count = load(&old);
    all_marked(&mill, &old, count);
    make_job(&mill, &old);
    // every count of a death, though the end of a task clears it
    old.run(
        "CREATE TABLE public.death (task bigint); GRANT ALL ON public.death TO PUBLIC; \
         CREATE FUNCTION public.note_death() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.death VALUES (NEW.id); RETURN NULL; END $$; \
         CREATE TRIGGER note_death AFTER UPDATE ON public.task FOR EACH ROW WHEN (NEW.crashes > OLD.crashes) EXECUTE FUNCTION public.note_death()",
    );
    let lasting = old.insert("SELECT pg_sleep(0.5)");
    crate::queries::running(&mill, &old, lasting);
    pair.catch_up();
    pair.kill_primary();
    pair.promote();
    let new = pair.on_primary(&old);
    mill.eventually("the promoted server is served", || mill.log_contains("queue has moved to another server"));
    let old = back_as_primary(&pair, &old);
    let last = last_task(&old);
    let on_old = done_on(&old, last);
    count += load(&new);
    load(&old);
    let marked = "SELECT count(DISTINCT id) FROM public.did";
    let finished = || one::<i64>(&new, marked) == count;
    mill.wait("the tasks of the promoted server run there").within(Duration::from_secs(60)).until(finished);
    for what in ["job", "repeat"] {
        ticks_go_on(&mill, &new, what);
    }

    // Every session is dialled anew, the first host first: a primary answers there.
    new.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
          WHERE pid <> pg_backend_pid() AND (application_name LIKE 'pg_%' OR application_name LIKE 'pgmill%')",
    );
    count += load(&new);
    mill.wait("they still run there").within(Duration::from_secs(60)).until(finished_count(&new, marked, count));
    mill.eventually("the task that ran at the fail-over has run again", || state(&new, lasting) == "DONE");
    assert_eq!(done_on(&old, last), on_old, "nothing has run on the old primary: {}", mill.describe());
    assert_eq!(one::<i64>(&new, "SELECT count(*) FROM public.death"), 0, "a fail-over is no death of a task");
    let stuck = "SELECT count(*) FROM public.task WHERE state IN ('TAKE', 'WORK') AND start < now() - interval '2 s'";
    mill.eventually("nothing is stuck", || one::<i64>(&new, stuck) == 0);
}

fn finished_count<'d>(database: &'d Database, marked: &'d str, count: i64) -> impl FnMut() -> bool + 'd {
    move || one::<i64>(database, marked) == count
}
