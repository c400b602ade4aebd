//! TLS: every sslmode against real servers with real certificates, compared with psql, and a launcher that works over
//! it. Never a plain connection where TLS is asked for.

use serde_json::json;
use tests::certificates::{authority, serve, signed};
use tests::dialect::{Case, ConninfoFiles, fails, leads};
use tests::{Cluster, Database, Supervisor};

const NAMES: &str = "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,DNS:*.wild.test,IP:127.0.0.1\n";
const OTHER_NAMES: &str = "basicConstraints=CA:FALSE\nsubjectAltName=DNS:db.test,IP:10.0.0.1\n";

/// A server with TLS, whose pg_hba tells roles apart by how they come.
fn server() -> Cluster {
    let cluster = Cluster::configure()
        .tcp()
        .hba("hostssl all covered 127.0.0.1/32 scram-sha-256")
        .hba("hostnossl all covered 127.0.0.1/32 reject")
        .hba("hostnossl all naked 127.0.0.1/32 scram-sha-256")
        .hba("hostssl all naked 127.0.0.1/32 reject")
        .hba("hostssl all known 127.0.0.1/32 cert")
        .hba("hostssl all shown 127.0.0.1/32 trust clientcert=verify-ca")
        .hba("host all trusty 127.0.0.1/32 trust")
        .start();
    let mut client = cluster.connect("postgres");
    for role in ["covered", "naked", "known", "shown", "trusty", "app"] {
        client.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'")).expect("make a role");
    }
    cluster
}

fn files(cluster: &Cluster, plain: &Cluster) -> ConninfoFiles {
    let mut files = ConninfoFiles::new(env!("CARGO_BIN_EXE_dial"));
    files.word("tls", cluster.server().port);
    files.word("plain", plain.server().port);
    files.word("at", format!("hostaddr=127.0.0.1 port={} dbname=postgres", cluster.server().port));
    let folder = files.folder();
    authority(folder, "root", "root");
    authority(folder, "stranger", "stranger");
    authority(folder, "self", "localhost");
    signed(folder, "named", "someone", "root", NAMES);
    signed(folder, "other", "localhost", "root", OTHER_NAMES);
    signed(folder, "bare", "localhost", "root", "");
    signed(folder, "known", "known", "root", "basicConstraints=CA:FALSE\n");
    signed(folder, "alien", "known", "stranger", "basicConstraints=CA:FALSE\n");
    let key = std::fs::read_to_string(folder.join("known.key")).expect("a key");
    files.file_with_mode("open.key", &key, 0o644);
    files.file("garbage.crt", "no certificate\n");
    files
}

/// With a certificate that has alternative names, signed by `root`.
fn modes() -> Vec<Case> {
    let as_trusty = |host: &str, rest: &str| format!("{{at}} host={host} user=trusty {rest}");
    let root = "sslrootcert={dir}/root.crt";
    let wrong = "sslrootcert={dir}/stranger.crt";
    let full = |host: &str| as_trusty(host, &format!("sslmode=verify-full {root}"));
    let mut cases = vec![
        leads(&as_trusty("x", "sslmode=disable")),
        leads(&as_trusty("x", "sslmode=allow")),
        leads(&as_trusty("x", "sslmode=prefer")),
        leads(&as_trusty("x", "sslmode=require")),
        leads(&as_trusty("x", "")),
        leads(&as_trusty("x", &format!("sslmode=verify-ca {root}"))),
        fails(&as_trusty("x", "sslmode=verify-ca")),
        fails(&as_trusty("x", "sslmode=verify-full")),
        fails(&as_trusty("x", &format!("sslmode=verify-ca {wrong}"))),
        fails(&as_trusty("localhost", &format!("sslmode=verify-full {wrong}"))),
        // a root file that is there is used, whatever the mode
        leads(&as_trusty("x", &format!("sslmode=require {root}"))),
        fails(&as_trusty("x", &format!("sslmode=require {wrong}"))),
        leads(&as_trusty("x", &format!("sslmode=prefer {wrong}"))),
        leads(&as_trusty("x", "sslmode=require sslrootcert={dir}/missing.crt")),
        fails(&as_trusty("x", "sslmode=require sslrootcert={dir}/garbage.crt")),
        leads(&as_trusty("x", "sslmode=prefer sslrootcert={dir}/garbage.crt")),
        leads(&full("localhost")),
        leads(&full("LOCALHOST")),
        leads(&full("127.0.0.1")),
        leads(&full("db.wild.test")),
        fails(&full("a.b.wild.test")),
        fails(&full("wild.test")),
        fails(&full("someone")),
        fails(&full("x")),
        fails(&format!("{{at}} user=trusty sslmode=verify-full {root}")),
        leads(&as_trusty("x", "sslmode=require ssl_min_protocol_version=TLSv1.3")),
        leads(&as_trusty("x", "sslmode=require ssl_max_protocol_version=TLSv1.2")),
        leads(&as_trusty("localhost", "sslmode=require sslsni=0")),
        leads(
            "host=localhost,127.0.0.1 port=1,{tls} user=trusty dbname=postgres sslmode=verify-full sslrootcert={dir}/root.crt",
        ),
        leads(
            "postgresql://trusty@localhost:{tls}/postgres?sslmode=verify-full&sslrootcert={dir}/root.crt&hostaddr=127.0.0.1",
        ),
        leads("host=localhost hostaddr=127.0.0.1 port={tls} user=trusty dbname=postgres")
            .env("PGSSLMODE", "verify-full")
            .env("PGSSLROOTCERT", "{dir}/root.crt"),
        // who may come how
        leads(&as_trusty("x", "sslmode=prefer").replace("trusty", "covered password=pw")),
        leads(&as_trusty("x", "sslmode=allow").replace("trusty", "covered password=pw")),
        fails(&as_trusty("x", "sslmode=disable").replace("trusty", "covered password=pw")),
        leads(&as_trusty("x", "sslmode=prefer").replace("trusty", "naked password=pw")),
        leads(&as_trusty("x", "sslmode=allow").replace("trusty", "naked password=pw")),
        fails(&as_trusty("x", "sslmode=require").replace("trusty", "naked password=pw")),
        fails(&as_trusty("x", "sslmode=prefer").replace("trusty", "covered password=wrong")),
    ];
    // a server without TLS
    for (mode, fine) in [("disable", true), ("allow", true), ("prefer", true), ("require", false), ("verify-ca", false)]
    {
        let text = format!("host=127.0.0.1 port={{plain}} user=postgres dbname=postgres sslmode={mode} {root}");
        cases.push(if fine { leads(&text) } else { fails(&text) });
    }
    cases
}

fn clients_and_bindings() -> Vec<Case> {
    let known = |rest: &str| format!("{{at}} host=x user=known sslmode=require {rest}");
    let bound = |user: &str, rest: &str| format!("{{at}} host=x user={user} password=pw {rest}");
    vec![
        leads(&known("sslcert={dir}/known.crt sslkey={dir}/known.key")),
        fails(&known("")),
        fails(&known("sslcert={dir}/missing.crt sslkey={dir}/known.key")),
        fails(&known("sslcert={dir}/known.crt sslkey={dir}/missing.key")),
        fails(&known("sslcert={dir}/known.crt sslkey={dir}/open.key")),
        fails(&known("sslcert={dir}/known.crt sslkey={dir}/alien.key")),
        fails(&known("sslcert={dir}/alien.crt sslkey={dir}/alien.key")),
        leads(&known("")).env("PGSSLCERT", "{dir}/known.crt").env("PGSSLKEY", "{dir}/known.key"),
        leads("{at} host=x user=shown sslmode=require sslcert={dir}/known.crt sslkey={dir}/known.key"),
        fails("{at} host=x user=shown sslmode=require"),
        leads(&bound("app", "sslmode=require channel_binding=require")),
        leads(&bound("app", "sslmode=require channel_binding=prefer")),
        leads(&bound("app", "sslmode=require channel_binding=disable")),
        leads(&bound("covered", "channel_binding=require")),
        fails(&bound("app", "sslmode=disable channel_binding=require")),
        fails(&bound("trusty", "sslmode=require channel_binding=require")),
    ]
}

fn full(host: &str, root: &str, fine: bool) -> Case {
    let text = format!("{{at}} host={host} user=trusty sslmode=verify-full sslrootcert={{dir}}/{root}.crt");
    if fine { leads(&text) } else { fails(&text) }
}

#[test]
fn every_sslmode_believes_whom_libpq_believes() {
    let (cluster, plain) = (server(), Cluster::configure().tcp().hba("host all all 127.0.0.1/32 trust").start());
    let files = files(&cluster, &plain);
    serve(&cluster, files.folder(), "named", "root");
    files.compare(&[modes(), clients_and_bindings()].concat());

    // a self-signed certificate, given as its own root; it has a common name only
    serve(&cluster, files.folder(), "self", "root");
    files.compare(&[
        full("localhost", "self", true),
        full("x", "self", false),
        full("localhost", "root", false),
        leads("{at} host=x user=trusty sslmode=verify-ca sslrootcert={dir}/self.crt"),
        leads("{at} host=x user=app password=pw sslmode=require channel_binding=require"),
    ]);

    // without extensions, as the server's manual makes it
    serve(&cluster, files.folder(), "bare", "root");
    files.compare(&[
        full("localhost", "root", true),
        full("x", "root", false),
        full("localhost", "stranger", false),
        leads("{at} host=x user=trusty sslmode=require"),
        leads("{at} host=x user=trusty sslmode=require ssl_max_protocol_version=TLSv1.2"),
        leads("{at} host=x user=app password=pw sslmode=require channel_binding=require"),
    ]);

    // alternative names silence the common name, each for its own kind
    serve(&cluster, files.folder(), "other", "root");
    files.compare(&[full("localhost", "root", false), full("db.test", "root", true), full("127.0.0.1", "root", false)]);
}

#[test]
fn the_systems_roots_are_for_verify_full_and_do_not_know_our_authority() {
    let cluster = server();
    let plain = Cluster::shared();
    let files = files(&cluster, plain);
    serve(&cluster, files.folder(), "named", "root");
    for answer in files.ours(&fails("{at} host=localhost user=trusty sslrootcert=system")) {
        assert!(answer.starts_with("- ") && !answer.contains("unknown"), "{answer}");
    }
    for answer in files.ours(&fails("{at} host=localhost user=trusty sslrootcert=system sslmode=require")) {
        assert!(answer.contains("verify-full"), "{answer}");
    }
    files.file(".postgresql/root.crt", "-----BEGIN CERTIFICATE-----\n");
    files.file(".postgresql/root.crl", "");
    for answer in files.ours(&fails("{at} host=localhost user=trusty sslmode=require")) {
        assert!(answer.contains("root.crl"), "a list that libpq would use is not passed over: {answer}");
    }
}

#[test]
fn a_launcher_works_over_verified_tls_and_says_what_is_wrong_with_a_wrong_root() {
    let cluster = server();
    let database = cluster.database();
    let plain = Cluster::shared();
    let files = files(&cluster, plain);
    serve(&cluster, files.folder(), "named", "root");
    database.set_password("s3cret word");
    let connect = |root: &str| {
        format!(
            "host=localhost port={} user={} password='s3cret word' sslmode=verify-full \
             channel_binding=require sslrootcert={}/{root}.crt",
            cluster.server().port,
            database.login(),
            files.folder().display()
        )
    };
    for pooled in [true, false] {
        let mill = Supervisor::of(&database).key("connect", json!(connect("root"))).queue_key("pool", pooled).start();
        works_covered(&database, &mill);
    }

    let supervisor = Supervisor::of(&database).key("connect", json!(connect("stranger"))).launch();
    supervisor.eventually("it says what is wrong", || supervisor.log_contains("UnknownIssuer"));
    assert!(!supervisor.log().lines().join("\n").contains("s3cret"));
}

fn works_covered(database: &Database, supervisor: &Supervisor<'_>) {
    let id = database.insert("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    let row = supervisor.finished(database, id);
    assert_eq!(row["output"], "t", "{row}");
    let covered = "SELECT bool_and(s.ssl) AND count(*) >= 2 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
         WHERE a.application_name LIKE 'pg\\_%' AND a.client_addr IS NOT NULL";
    let covered = database.query(covered, &[]).expect("the server is there");
    assert!(covered[0].get::<_, bool>(0), "every session is encrypted");
    for pid in supervisor.schedulers().iter().map(|child| child.pid).chain([supervisor.pid()]) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        assert!(status.contains("Threads:\t1\n"), "who forks has one thread, also with TLS and names:\n{status}");
    }
    // a cancel goes the same way, whoever asks for it
    let id = database.insert_with("SELECT pg_sleep(60)", "timeout = '300 ms'");
    assert_eq!(supervisor.finished(database, id)["state"], "FAIL");
    let id = database.insert("SELECT pg_sleep(600)");
    supervisor.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    database.run(&format!("UPDATE public.task SET state = 'STOP' WHERE id = {id}"));
    supervisor.eventually("its worker is gone", || supervisor.workers().is_empty());
}
