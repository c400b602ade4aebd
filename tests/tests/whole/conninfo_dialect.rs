//! One conninfo dialect: what leads psql to a server leads both of pgmill's clients to the same one, and what does
//! not, does not. The cases of TLS are in `tls`.

use tests::dialect::{Case, ConninfoFiles, fails, leads};
use tests::{Cluster, eventually};

const PASSWORD: &str = r"it's \ se:cret";

/// Two servers with the same roles and databases, one of them a stand-by's primary.
fn servers() -> (Cluster, Cluster, Cluster) {
    let make = || {
        let cluster = Cluster::configure()
            .tcp()
            .hba("host all trusty 127.0.0.1/32 trust")
            .hba("host all md5er 127.0.0.1/32 md5")
            .hba("host all clear 127.0.0.1/32 password")
            .hba("host all banned 127.0.0.1/32 reject")
            .start();
        let password = PASSWORD.replace('\'', "''");
        let mut client = cluster.connect("postgres");
        for role in ["app", "trusty", "clear", "banned", "Odd Name"] {
            let sql = format!("CREATE ROLE \"{role}\" LOGIN PASSWORD '{password}'; CREATE DATABASE \"{role}\"");
            for statement in sql.split(';') {
                client.batch_execute(statement).expect("make a role");
            }
        }
        let md5 = format!("SET password_encryption = md5; CREATE ROLE md5er LOGIN PASSWORD '{password}'");
        client.batch_execute(&md5).expect("make a role");
        cluster
    };
    let (one, two) = (make(), make());
    let standby = Cluster::standby_of(&one, true);
    eventually("the stand-by answers", || standby.server().try_connect("postgres", "postgres").is_ok());
    (one, two, standby)
}

fn files(one: &Cluster, two: &Cluster, standby: &Cluster) -> ConninfoFiles {
    let mut files = ConninfoFiles::new(env!("CARGO_BIN_EXE_dial"));
    for (name, cluster) in [("one", one), ("two", two), ("standby", standby)] {
        files.word(name, cluster.server().port);
        files.word(&format!("{name}_socket"), cluster.home().display());
        files.word(&format!("{name}_socket_uri"), cluster.home().display().to_string().replace('/', "%2F"));
    }
    files.word("password", PASSWORD.replace('\\', r"\\").replace('\'', r"\'"));
    files.word("password_uri", "it%27s%20%5C%20se%3Acret");
    files.word("raw", PASSWORD);
    let line = PASSWORD.replace('\\', r"\\").replace(':', r"\:");
    files.file(
        ".pgpass",
        &format!("# mine\n127.0.0.1:{{one}}:*:app:{line}\nlocalhost:*:*:app:{line}\n*:*:postgres:clear:{line}\n"),
    );
    files.file("other.pgpass", &format!("nowhere:1:a:b:c\n*:{{two}}:*:*:{line}\n{{one_socket}}:*:*:*:unused\n"));
    files.file("wrong.pgpass", "*:*:*:*:wrong\n");
    files.file_with_mode("open.pgpass", &format!("*:*:*:*:{line}\n"), 0o644);
    files.file(
        ".pg_service.conf",
        "[one]\nhost=127.0.0.1\nport={one}\nuser=app\ndbname=postgres\n\n# two\n[two]\nhost={two_socket}\nport={two}\nuser=app\n\
         [broken]\nhost=127.0.0.1\nnonsense\n[unknown]\nhost=127.0.0.1\ncolour=red\n[nested]\nservice=one\n\
         [optional]\nhost={one_socket}\nport={one}\nuser=app\noptions=-c work_mem=7MB\n",
    );
    files.file("system/pg_service.conf", "[one]\nhost=/nowhere\n[deep]\nhost={two_socket}\nport={two}\nuser=app\n");
    files.file("mine.conf", "[one]\nhost={two_socket}\nport={two}\nuser=app\ndbname=postgres\n");
    files
}

fn by_keyword() -> Vec<Case> {
    vec![
        leads("host={one_socket} port={one} user=app dbname=postgres"),
        leads("host={one_socket} port={one} user=app"),
        leads("  host = {one_socket}   port= {one} user ='app' dbname='postgres'  "),
        leads("host={two_socket} port={two} user='Odd Name' dbname='Odd Name'"),
        leads("host={one_socket} port={two} port={one} user=app dbname=postgres"),
        leads("host=127.0.0.1 port={one} user=trusty dbname=app"),
        leads("host=127.0.0.1 port={one} user=app dbname=app password='{password}'"),
        fails("host=127.0.0.1 port={one} user=app dbname=app password=wrong"),
        leads("host=localhost port={one} user=trusty dbname=app"),
        leads("hostaddr=127.0.0.1 port={one} user=trusty dbname=app"),
        leads("host=no.such.name.invalid hostaddr=127.0.0.1 port={one} user=trusty dbname=app"),
        fails("host=no.such.name.invalid port={one} user=trusty dbname=app"),
        leads("host={one_socket} hostaddr=127.0.0.1 port={one} user=trusty dbname=app"),
        leads("host=127.0.0.1 port={one} user=md5er dbname=app password='{password}'"),
        fails("host=127.0.0.1 port={one} user=md5er dbname=app password=wrong"),
        leads("host=127.0.0.1 port={one} user=clear dbname=app password='{password}'"),
        fails("host=127.0.0.1 port={one} user=clear dbname=app password=wrong"),
        fails("host=127.0.0.1 port={one} user=banned dbname=app password='{password}'"),
        fails("host={one_socket} port={one} user=nobody dbname=app"),
        fails("host={one_socket} port={one} user=app dbname=nothing"),
        leads("host={one_socket} port={one} user=app options='-c work_mem=9MB'"),
        leads(r"host={one_socket} port={one} user=app options='-c work_mem=9MB -c datestyle=ISO,\\ DMY'"),
        fails("host={one_socket} port={one} user=app options='-c nonsense=9MB'"),
        leads(
            "host={one_socket} port={one} user=app application_name=x fallback_application_name=y client_encoding=UTF8",
        ),
        leads("host=127.0.0.1 port={one} user=trusty dbname=app keepalives=0 tcp_user_timeout=1000 keepalives_idle=3"),
        leads("host=127.0.0.1 port={one} user=trusty dbname=app keepalives_interval=1 keepalives_count=3"),
        fails("host=127.0.0.1 port={one} user=trusty dbname=app keepalives_idle=soon"),
        leads("host={one_socket} port={one} user=app connect_timeout=3"),
        fails("host={one_socket} port={one} user=app connect_timeout=soon"),
        fails("host={one_socket} port=0 user=app"),
        fails("host={one_socket} port=70000 user=app"),
        fails("hostaddr=nonsense port={one} user=trusty"),
        fails("host={one_socket} port={one} usr=app"),
        fails("host={one_socket} port={one} user"),
        fails("host={one_socket} port={one} user='app"),
        fails("host=/nowhere port={one} user=app"),
        leads("host={one_socket} port={one} user=app sslmode=require"),
        leads("host={one_socket} port={one} user=app gssencmode=disable"),
        fails("host={one_socket} port={one} user=app sslmode=maybe"),
        fails("host=127.0.0.1 port={one} user=trusty sslmode=require"),
        leads("host=127.0.0.1 port={one} user=trusty dbname=app sslmode=prefer"),
        leads("host=127.0.0.1 port={one} user=trusty dbname=app sslmode=allow"),
        fails("host=127.0.0.1 port={one} user=app password='{password}' dbname=app channel_binding=require"),
        leads("host=127.0.0.1 port={one} user=app password='{password}' dbname=app channel_binding=disable"),
    ]
}

fn by_uri() -> Vec<Case> {
    vec![
        leads("postgresql://app@{one_socket_uri}:{one}/postgres"),
        leads("postgres://app@{one_socket_uri}:{one}/postgres"),
        leads("postgresql:///postgres?host={one_socket}&port={one}&user=app"),
        leads("postgresql://app:{password_uri}@127.0.0.1:{one}/app"),
        fails("postgresql://app:wrong@127.0.0.1:{one}/app"),
        leads("postgresql://trusty@127.0.0.1:{one}/app?connect_timeout=3&application_name=x"),
        leads("postgresql://Odd%20Name@{two_socket_uri}:{two}/Odd%20Name"),
        leads("postgresql://trusty@nowhere.invalid,127.0.0.1:{one}/app"),
        leads("postgresql://trusty@127.0.0.1:1,127.0.0.1:{two}/app"),
        leads("postgresql://trusty@127.0.0.1:{one}/app?options=-c%20work_mem%3D9MB"),
        fails("postgresql://trusty@127.0.0.1:{one}/app?ssl=true"),
        fails("postgresql://trusty@127.0.0.1:{one}/app?nonsense=1"),
        fails("postgresql://trusty@127.0.0.1:{one}/app?user"),
        fails("postgresql://trusty@[127.0.0.1:{one}/app"),
        fails("postgresql://trusty@127.0.0.1:{one}/a%zzpp"),
    ]
}

fn by_environment() -> Vec<Case> {
    let here = |case: Case| case.env("PGHOST", "{one_socket}").env("PGPORT", "{one}");
    vec![
        here(leads("")).env("PGUSER", "app"),
        here(leads("dbname=postgres")).env("PGUSER", "app").env("PGDATABASE", "app"),
        here(leads("port={two} host={two_socket}")).env("PGUSER", "app"),
        here(leads("user=app")).env("PGOPTIONS", "-c work_mem=8MB"),
        leads("user=app dbname=app").env("PGHOSTADDR", "127.0.0.1").env("PGPORT", "{one}").env("PGPASSWORD", "{raw}"),
        fails("user=app dbname=app").env("PGHOSTADDR", "127.0.0.1").env("PGPORT", "{one}").env("PGPASSWORD", "wrong"),
        fails("user=trusty dbname=app host=127.0.0.1").env("PGPORT", "{one}").env("PGSSLMODE", "require"),
        fails("user=app").env("PGHOST", "{one_socket}").env("PGPORT", "nonsense"),
        leads("user=app").env("PGHOST", "/nowhere,{two_socket}").env("PGPORT", "{one},{two}"),
        here(leads("user=app host='' hostaddr=127.0.0.1 password='{password}'")),
    ]
}

fn by_service() -> Vec<Case> {
    vec![
        leads("service=one"),
        leads("service=two"),
        leads("").env("PGSERVICE", "one"),
        leads("postgresql:///?service=one"),
        leads("service=one host={two_socket} port={two}"),
        leads("service=two dbname=postgres").env("PGDATABASE", "app"),
        leads("service=one").env("PGHOST", "/nowhere").env("PGPORT", "1"),
        leads("service=optional"),
        fails("service=none"),
        fails("service=broken"),
        fails("service=unknown"),
        fails("service=nested"),
        leads("service=one").env("PGSERVICEFILE", "{dir}/mine.conf"),
        fails("service=one").env("PGSERVICEFILE", "{dir}/missing.conf"),
        leads("service=deep").env("PGSYSCONFDIR", "{dir}/system"),
        leads("service=deep").env("PGSYSCONFDIR", "{dir}/system").env("PGSERVICEFILE", "{dir}/mine.conf"),
        fails("service=deep").env("PGSYSCONFDIR", "{dir}/nowhere"),
        leads("service=one").env("PGSYSCONFDIR", "{dir}/system"),
    ]
}

fn by_password_file() -> Vec<Case> {
    vec![
        leads("host=127.0.0.1 port={one} user=app dbname=app"),
        leads("host=localhost port={two} user=app dbname=app"),
        fails("host=127.0.0.1 port={two} user=app dbname=app"),
        leads("host=127.0.0.1 port={two} user=clear dbname=postgres"),
        fails("host=127.0.0.1 port={two} user=clear dbname=app"),
        leads("host=127.0.0.1 port={two} user=app dbname=app passfile={dir}/other.pgpass"),
        fails("host=127.0.0.1 port={one} user=app dbname=app passfile={dir}/other.pgpass"),
        leads("host=127.0.0.1 port={two} user=app dbname=app").env("PGPASSFILE", "{dir}/other.pgpass"),
        fails("host=127.0.0.1 port={one} user=app dbname=app").env("PGPASSFILE", "{dir}/wrong.pgpass"),
        leads("host=127.0.0.1 port={one} user=app dbname=app password='{password}'")
            .env("PGPASSFILE", "{dir}/wrong.pgpass"),
        fails("host=127.0.0.1 port={one} user=app dbname=app passfile={dir}/open.pgpass"),
        fails("host=127.0.0.1 port={one} user=app dbname=app passfile={dir}/missing"),
        fails("host=127.0.0.1 port={one} user=app dbname=app passfile={dir}"),
        leads("host=127.0.0.1,127.0.0.1 port=1,{one} user=app dbname=app"),
    ]
}

fn by_several_hosts() -> Vec<Case> {
    let both = "host={one_socket},{two_socket} port={one},{two} user=app dbname=postgres";
    let pair = "host={one_socket},{standby_socket} port={one},{standby} user=app dbname=postgres";
    let back = "host={standby_socket},{one_socket} port={standby},{one} user=app dbname=postgres";
    let with = |text: &str, wanted: &str| format!("{text} target_session_attrs={wanted}");
    vec![
        leads(both),
        leads("host=/nowhere,{two_socket} port={two} user=app dbname=postgres"),
        leads("host=127.0.0.1,127.0.0.1 port=1,{two} user=trusty dbname=app"),
        fails("host=127.0.0.1,127.0.0.1 port={one},{two} user=banned dbname=app"),
        fails("host=a,b,c port=1,2 user=app"),
        fails("host=a,b hostaddr=127.0.0.1 user=app"),
        fails("host=/nowhere,/nowhere2 user=app"),
        leads("hostaddr=127.0.0.1,127.0.0.1 port=1,{two} user=trusty dbname=app"),
        leads(&with(back, "any")),
        leads(&with(back, "read-write")),
        leads(&with(pair, "read-only")),
        leads(&with(back, "primary")),
        leads(&with(pair, "standby")),
        leads(&with(pair, "prefer-standby")),
        leads(&with(both, "prefer-standby")),
        fails(&with(both, "standby")),
        fails(&with(both, "read-only")),
        fails(&with("host={standby_socket} port={standby} user=app dbname=postgres", "primary")),
        fails(&with("host={standby_socket} port={standby} user=app dbname=postgres", "read-write")),
        fails(&with(both, "whatever")),
        leads("host={one_socket},{two_socket} port={one},{two} user=app dbname=postgres")
            .env("PGTARGETSESSIONATTRS", "primary"),
    ]
}

#[test]
fn psql_and_both_clients_end_at_the_same_server() {
    let (one, two, standby) = servers();
    let files = files(&one, &two, &standby);
    let cases =
        [by_keyword(), by_uri(), by_environment(), by_service(), by_password_file(), by_several_hosts()].concat();
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    files.compare(&cases);
    println!("{} conninfos", cases.len());
}

#[test]
fn a_password_file_that_is_not_used_and_a_missing_password_say_so() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    database.set_password("s3cret word");
    let mut files = ConninfoFiles::new(env!("CARGO_BIN_EXE_dial"));
    files.word("port", cluster.server().port);
    files.word("who", database.owner());
    files.word("where", database.name());
    files.file_with_mode(".pgpass", "*:*:*:*:s3cret word\n", 0o640);
    for answer in files.ours(&fails("host=127.0.0.1 port={port} user={who} dbname={where}")) {
        assert!(answer.starts_with('-') && answer.contains("password") && answer.contains("chmod 600"), "{answer}");
        assert!(!answer.contains("s3cret"), "{answer}");
    }
}

#[test]
fn hosts_are_tried_in_random_order_where_that_is_asked_for() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let mut files = ConninfoFiles::new(env!("CARGO_BIN_EXE_dial"));
    let second = Cluster::start();
    for (name, server) in [("a", cluster.server()), ("b", second.server())] {
        files.word(name, server.port);
        files.word(&format!("{name}_socket"), server.socket_folder.display());
    }
    drop(database);
    let case = leads("host={a_socket},{b_socket} port={a},{b} user=postgres load_balance_hosts=random");
    let mut seen = std::collections::HashSet::new();
    eventually("both servers have been met by both clients", || {
        let [link, worker] = files.ours(&case);
        seen.extend([("link", link), ("worker", worker)]);
        seen.len() >= 4
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
}
