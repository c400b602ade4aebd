//! The harness itself: a cluster starts, gives databases, is restarted, and leaves
//! nothing behind, whatever becomes of the test process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tests::process::is_alive;
use tests::server_programs::ServerUser;
use tests::terminal::Terminal;
use tests::{Cluster, Pair, ShutdownMode, eventually, steadily, wait};

/// Set in the test process that a test starts in order to kill it.
const VICTIM: &str = "PGMILL_TEST_VICTIM";

#[test]
fn a_test_gets_a_database_of_its_own_and_leaves_none_behind() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let name = database.name().to_owned();
    let mut owner = database.connect();
    owner.batch_execute("CREATE TABLE t (a int)").expect("an owner may make tables");
    let row = owner
        .query_one("SELECT current_user::text, rolsuper FROM pg_roles WHERE rolname = current_user", &[])
        .expect("query");
    assert_eq!(row.get::<_, String>(0), database.owner());
    assert!(!row.get::<_, bool>(1), "the queue's user is no superuser");
    drop(database);
    let mut client = cluster.connect("postgres");
    let left = client.query("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]);
    assert!(left.expect("query").is_empty());
}

#[test]
fn the_launchers_login_is_a_member_of_the_queue_user_and_no_superuser() {
    let database = Cluster::shared().database();
    let rows = database.query(
        "SELECT pg_has_role($1::text, $2::text, 'MEMBER'), rolsuper FROM pg_roles WHERE rolname = $1",
        &[&database.login(), &database.owner()],
    );
    let row = &rows.expect("the server is there")[0];
    assert_eq!((row.get(0), row.get(1)), (true, false));
}

#[test]
fn names_with_quotes_blanks_and_upper_case_are_databases_too() {
    let database = Cluster::shared().database_named("A \"data\" 'base'", "An \"owner\"");
    let row = database.connect().query_one("SELECT current_database()::text, current_user::text", &[]);
    let row = row.expect("query");
    assert_eq!(row.get::<_, String>(0), database.name());
    assert_eq!(row.get::<_, String>(1), database.owner());
}

#[test]
fn over_tcp_a_password_is_asked_for() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    database.set_password("it's \\ secret");
    let connect = |password: &str| {
        let conninfo = cluster.server().conninfo_tcp(database.owner(), password);
        postgres::Client::connect(&format!("{conninfo} dbname={}", database.name()), postgres::NoTls)
    };
    assert!(connect("it's \\ secret").is_ok());
    let refused = connect("wrong").err().expect("a wrong password is refused");
    assert_eq!(refused.code(), Some(&postgres::error::SqlState::INVALID_PASSWORD));
}

#[test]
fn a_restarted_cluster_has_its_databases_and_a_database_looks_again() {
    let cluster = Cluster::configure().max_connections(20).start();
    let database = cluster.database();
    database.run("CREATE TABLE public.task (id bigint, state text); INSERT INTO public.task VALUES (1, 'DONE')");
    let before = cluster.postmaster();
    for mode in [ShutdownMode::Fast, ShutdownMode::Immediate] {
        assert!(database.finished(1).is_some());
        cluster.stop(mode);
        assert_eq!(cluster.postmaster(), None);
        assert_eq!(database.task(1), None, "a server that is away is no error while waiting");
        cluster.start_again();
        eventually("the table is seen again", || database.finished(1));
    }
    assert_ne!(cluster.postmaster(), before);
    let setting = database.query("SELECT current_setting('max_connections')", &[]);
    assert_eq!(setting.expect("the server is there")[0].get::<_, String>(0), "20");
}

#[test]
fn a_dropped_cluster_leaves_no_process_and_no_folder() {
    let cluster = Cluster::start();
    let (postmaster, home) = (cluster.postmaster().expect("it runs"), cluster.home().to_owned());
    drop(cluster);
    assert!(!is_alive(postmaster));
    assert!(!home.exists());
}

#[test]
fn a_cluster_outlives_its_test_process_by_a_moment_only() {
    let mut victim = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "harness::victim", "--ignored", "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start a test process");
    let mut said = BufReader::new(victim.stdout.take().expect("piped")).lines();
    let (postmaster, guardian, home) = eventually("the victim has a cluster", || {
        let line = said.next().expect("the victim goes on talking").expect("readable");
        let mut words = line.strip_prefix("victim ")?.splitn(3, ' ');
        let pids = (words.next()?.parse::<i32>().ok()?, words.next()?.parse::<i32>().ok()?);
        Some((pids.0, pids.1, PathBuf::from(words.next()?)))
    });
    assert!(is_alive(postmaster) && is_alive(guardian) && home.exists());

    victim.kill().expect("kill -9");
    victim.wait().expect("reap");
    eventually("the server is gone", || !is_alive(postmaster));
    eventually("the folder is gone", || !home.exists());
    eventually("the guardian is gone", || !is_alive(guardian));
}

#[test]
#[ignore = "started, and killed, by a_cluster_outlives_its_test_process_by_a_moment_only"]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let cluster = Cluster::shared();
    let postmaster = cluster.postmaster().expect("it runs");
    println!("\nvictim {postmaster} {} {}", cluster.guardian(), cluster.home().display());
    // until killed; if the killer was killed first, until its pipe closes
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn ctrl_c_on_a_terminal_reaches_the_program_as_an_interrupt() {
    // a shell cannot trap what was ignored when it came, as it is for everything started with & by a script
    let (mut terminal, mut command) = Terminal::open(Path::new("env"));
    let script = "trap 'echo interrupted; exit 7' INT; echo waiting; while :; do sleep 0.05; done";
    let mut child = command.args(["--default-signal=INT", "sh", "-c", script]).spawn().expect("start sh");
    drop(command);
    eventually("it waits", || terminal.screen.contains("waiting"));
    terminal.press_ctrl_c();
    let status = eventually("it has ended", || child.try_wait().expect("wait"));
    assert_eq!(status.code(), Some(7));
    eventually("it has said so", || terminal.screen.contains("interrupted"));
}

#[test]
fn a_wait_in_vain_tells_what_was_seen_instead() {
    let failure = std::panic::catch_unwind(|| {
        wait("pigs fly").within(Duration::from_millis(20)).telling(|| "only birds".to_owned()).until(|| false);
    });
    let message = failure.expect_err("pigs do not fly");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("until pigs fly") && message.contains("only birds"), "{message}");
}

#[test]
fn what_holds_for_a_while_is_watched_for_that_while() {
    let began = Instant::now();
    steadily("time goes by", Duration::from_millis(50), || began.elapsed() < Duration::from_secs(60));
    assert!(began.elapsed() >= Duration::from_millis(50));
}

#[test]
fn root_runs_the_server_as_somebody_else() {
    let postmaster = Cluster::shared().postmaster().expect("it runs");
    let metadata = std::fs::metadata(format!("/proc/{postmaster}")).expect("it is in /proc");
    assert_ne!(std::os::unix::fs::MetadataExt::uid(&metadata), 0);
    if ServerUser::find() != ServerUser::own_self() {
        assert!(nix::unistd::geteuid().is_root(), "only root hands over");
    }
}

#[test]
fn a_pair_fails_over_is_rebuilt_and_keeps_what_was_committed_and_its_hosts() {
    let mut pair = Pair::start(true);
    let database = pair.primary().database();
    database.run("CREATE TABLE public.t (n int); INSERT INTO public.t VALUES (1)");
    let conninfo = pair.conninfo(database.owner());
    for round in 1..=2 {
        pair.kill_primary();
        assert_eq!(pair.primary().postmaster(), None);
        pair.promote();
        let seen = pair.on_primary(&database);
        let count = || seen.query("SELECT count(*) FROM public.t", &[]).expect("it answers")[0].get::<_, i64>(0);
        assert_eq!(count(), round, "what was acknowledged is there");
        pair.rebuild_old_as_standby();
        seen.run("INSERT INTO public.t VALUES (1)");
        assert_eq!(pair.conninfo(database.owner()), conninfo);
    }
}

#[test]
fn a_pair_whose_old_primary_comes_back_has_two_primaries() {
    let mut pair = Pair::start(false);
    let database = pair.primary().database();
    pair.catch_up();
    pair.kill_primary();
    pair.promote();
    pair.start_old_as_primary();
    for server in [pair.primary(), pair.standby()] {
        let seen = database.on(server.server());
        eventually("it accepts writes", || {
            seen.query("SELECT pg_is_in_recovery()", &[]).is_some_and(|rows| !rows[0].get::<_, bool>(0))
        });
        seen.run("CREATE TABLE public.t ()");
    }
    pair.rebuild_old_as_standby();
    let seen = database.on(pair.standby().server());
    assert!(seen.query("SELECT pg_is_in_recovery()", &[]).expect("it answers")[0].get::<_, bool>(0));
}
