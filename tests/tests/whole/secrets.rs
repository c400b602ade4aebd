//! Passwords, the control socket, and files and environment of our host stay secret. A connection that asks for TLS sends nothing
//! in the clear.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tests::hostile::{Attack, Hostile, Moment};
use tests::{Cluster, Proxy, Supervisor, steadily};

use crate::queries::{all, running};
use crate::security::literal;

#[test]
fn secrets_are_in_no_log_title_status_error_or_environment_whatever_goes_wrong() {
    let secret = "hush-4711-hush";
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password(secret);
    let good = cluster.server().conninfo_tcp(database.login(), secret);
    let wrong = Hostile::alone(Moment::Login, Attack::Garbage);
    let at = |port: u16| format!("host=127.0.0.1 port={port} password={secret}x");
    let mill = Supervisor::of(&database)
        .key("connect", json!(good))
        .queue(json!({"data": "away", "user": "nobody", "connect": at(1)}))
        .queue(json!({"data": "refused", "user": "nobody", "connect": at(cluster.server().port)}))
        .queue(json!({"data": "garbled", "user": "nobody", "connect": at(wrong.port())}))
        .queue(
            json!({"data": "uri", "user": "nobody", "connect": format!("postgresql://nobody:{secret}y@127.0.0.1:1")}),
        )
        .env("PGPASSWORD", &format!("{secret}z"))
        .arg("--log-level")
        .arg("debug")
        .launch();
    mill.eventually("the table is served", || database.query("SELECT FROM public.task", &[]).is_some());
    let remote = format!("host=127.0.0.1 port=1 user=x password={secret}r");
    let failed = database.insert_with("SELECT 1", &format!("remote = '{remote}', group = 'r'"));
    let broken = database.insert_with("SELECT 1", &format!("remote = 'pasword={secret}r', group = 'b'"));
    let mistyped = database.insert_with("SELECT 1", &format!("remote = 'ostgresql://x:{secret}r@h/d', group = 'm'"));
    let busy = database.insert_with("SELECT pg_sleep(5)", "group = 'busy'");
    running(&mill, &database, busy);
    let mut said = String::new();
    for id in [failed, broken, mistyped] {
        let row = mill.finished(&database, id);
        said += &format!("{}\n{}\n", row["error"], row["output"]);
    }
    mill.wait("every row has its reason").within(Duration::from_secs(30)).until(|| {
        let status = mill.status()?;
        let rows = status["databases"].as_array()?.clone();
        rows.iter().filter(|row| row["why"].is_string()).count().ge(&4).then_some(())
    });
    said += &String::from_utf8_lossy(&mill.command(&["status"]).stdout);
    said += &mill.status().unwrap_or_default().to_string();
    said += &mill.log().lines().join("\n");
    let ps = Command::new("ps").args(["axeww", "-o", "args"]).output().expect("ps");
    let ours: Vec<i32> = mill.children().iter().map(|child| child.pid).collect();
    let mut shown = String::new();
    for pid in &ours {
        for file in ["cmdline", "comm"] {
            shown += &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        }
    }
    assert!(ps.status.success() && !ours.is_empty());
    said += &shown;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(secret)).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
    // what pg_stat_activity shows to others
    let told: Vec<String> = all(&database, "SELECT concat_ws(' ', application_name, query) FROM pg_stat_activity");
    assert!(!told.join("\n").contains(secret));
}

#[test]
fn the_control_socket_is_its_owners_alone_and_turns_other_users_away() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let socket = mill.home().join("mill.sock");
    assert_eq!(fs::metadata(&socket).expect("the socket").permissions().mode() & 0o777, 0o600);
    if !nix::unistd::geteuid().is_root() {
        tests::skip("a caller of another user", "only root can play one");
        return;
    }
    // opened to everybody by mistake: the peer's credentials are looked at, too
    for path in [&socket, &mill.home().to_owned()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("open it");
    }
    let script = format!(
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(5)\ns.connect('{}')\n\
         s.sendall(b'{{\"command\":\"status\"}}\\n')\nsys.stdout.write(s.recv(100).decode())\n",
        socket.display()
    );
    let asked = Command::new("runuser").args(["-u", "nobody", "--", "python3", "-c", &script]).output();
    let asked = asked.expect("somebody else asks");
    let said = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(said, "", "{}", String::from_utf8_lossy(&asked.stderr));
    mill.eventually("it is said", || mill.log_contains("refused a connection of another user"));
    assert!(mill.status().is_some());
}

#[test]
fn where_tls_is_asked_for_nothing_is_said_in_the_clear() {
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password("hush-4711");
    for mode in ["require", "verify-full sslrootcert=system"] {
        let between = Proxy::before(cluster.server().port);
        let login = format!(
            "host=localhost hostaddr=127.0.0.1 port={} user={} password=hush-4711 sslmode={mode}",
            between.port(),
            database.login()
        );
        let row = json!({"data": database.name(), "user": database.owner()});
        let mill = Supervisor::bare().key("connect", json!(login)).queue(row).launch();
        mill.eventually("it waits and says why", || mill.log_contains("TLS"));
        // the request for TLS, and not a byte more
        let request = [0, 0, 0, 8, 4, 210, 22, 47];
        steadily("nothing is said in the clear", Duration::from_millis(1500), || {
            let said = between.said();
            let in_the_clear = said.iter().find(|said| !said.is_empty() && said[..] != request);
            assert_eq!(in_the_clear, None, "{mode}");
            true
        });
        assert!(database.sessions().is_empty(), "{mode}");
    }
}

#[test]
fn conninfo_of_a_row_reaches_neither_files_nor_sockets_nor_the_environment_of_our_host() {
    let secret = "hush-4711-hush";
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password("row's own");
    let remote = Proxy::before(cluster.server().port);
    let private = |name: &str, text: &str| {
        let path = cluster.home().join(name);
        fs::write(&path, text).expect("write a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        path.display().to_string()
    };
    let passfile = private("passfile", &format!("*:*:*:*:{secret}\n"));
    let service = private("service", &format!("[elsewhere]\npassword={secret}\nuser={}\n", database.owner()));
    let mill = Supervisor::of(&database)
        .env("PGPASSWORD", secret)
        .env("PGPASSFILE", &passfile)
        .env("PGSERVICEFILE", &service)
        .env("PGOPTIONS", &format!("-c mill.told={secret}"))
        .env("PGUSER", database.owner())
        .env("PGDATABASE", database.name())
        .start();
    private_home(&mill, secret);
    let tcp = format!("host=127.0.0.1 port={}", remote.port());
    let login = format!("{tcp} user={} dbname={}", quoted(database.owner()), quoted(database.name()));
    let ask = "SELECT coalesce(current_setting('mill.told', true), 'nothing')";
    let good = database.insert_with(ask, &format!("remote = {}", literal(&format!("{login} password='row\\'s own'"))));
    let row = mill.finished(&database, good);
    assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"nothing".into()), "{row:#}");
    let heard = remote.said().len();
    let socket = cluster.server().socket_folder.display().to_string();
    let escaped = socket.replace('/', "%2F");
    for text in [
        login.clone(),
        tcp.clone(),
        format!("{tcp} password=x"),
        format!("{login} passfile={passfile}"),
        format!("{login} password=x service=elsewhere"),
        format!("{login} password=x servicefile={service}"),
        format!("{login} password=x sslcert={passfile} sslkey={passfile}"),
        format!("{login} password=x sslmode=verify-ca sslrootcert={passfile}"),
        format!("{login} password=x sslmode=verify-ca sslrootcert=system sslcrl={passfile}"),
        format!("{login} password=x sslmode=verify-ca"),
        format!("host={socket} port={} user=postgres password=x", cluster.server().port),
        format!("host={socket},127.0.0.1 port={} user=postgres password=x", cluster.server().port),
        "host=@abstract user=postgres password=x".to_owned(),
        format!("postgresql://postgres:x@{escaped}:{}/postgres", cluster.server().port),
        format!("postgresql:///postgres?host={escaped}&port={}&user=postgres&password=x", cluster.server().port),
        "user=postgres password=x".to_owned(),
    ] {
        let id =
            database.insert_with("SELECT 1", &format!("remote = {}", literal(&text).replace(',', "' || chr(44) || '")));
        let row = mill.finished(&database, id);
        let error = row["error"].as_str().unwrap_or_default();
        assert!(row["state"] == "FAIL" && !error.contains("STATEMENT") && !error.contains(secret), "{text}: {row:#}");
        assert_eq!(remote.said().len(), heard, "nobody was called: {text}");
    }
    let told: Vec<u8> = remote.said().concat();
    assert!(!String::from_utf8_lossy(&told).contains(secret), "nothing of ours was said");
    assert!(!mill.log().lines().concat().contains(secret));
}

/// A value of a conninfo.
fn quoted(text: &str) -> String {
    tests::cluster::conninfo_quote(text)
}

/// What libpq would find in the home of our user.
fn private_home(mill: &Supervisor<'_>, secret: &str) {
    for (path, text) in [
        (".pgpass", format!("*:*:*:*:{secret}\n")),
        (".pg_service.conf", format!("[elsewhere]\npassword={secret}\n")),
        (".postgresql/root.crt", secret.to_owned()),
        (".postgresql/postgresql.crt", secret.to_owned()),
    ] {
        let path = mill.home().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("make it");
        fs::write(&path, text).expect("write a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    }
}
