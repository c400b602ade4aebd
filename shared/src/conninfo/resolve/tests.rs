//! What a conninfo comes to, with the environment below it.

use super::super::{Conninfo, ConninfoError, Keepalive, Place, Root, Target, TlsMode};
use super::system_user;
use crate::limits::SOCKET_PATH_BYTES_MAX;
use proptest::prelude::{any, proptest};

fn resolve_in(text: &str, environment: &[(&str, &str)]) -> Result<Target, ConninfoError> {
    let lookup =
        |name: &str| environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.to_string());
    Conninfo::parse(text).expect(text).resolve(&lookup)
}

fn resolve(text: &str) -> Result<Target, ConninfoError> {
    resolve_in(text, &[])
}

fn refusal(text: &str) -> String {
    resolve(text).expect_err(text).to_string()
}

fn unix(path: &str) -> Place {
    Place::Unix { path: path.into() }
}

fn tcp(host: &str, address: Option<&str>, port: u16) -> Place {
    Place::Tcp { host: host.into(), address: address.map(|text| text.parse().unwrap()), port }
}

#[test]
fn nothing_given_means_the_local_socket_and_the_systems_user() {
    let target = resolve("").unwrap();
    assert_eq!(target.places[0], unix("/var/run/postgresql/.s.PGSQL.5432"));
    assert_eq!(target.user, system_user().unwrap());
    assert_eq!(target.database, target.user);
    assert_eq!((target.password, target.options, target.connect_timeout_ms), (None, None, 10_000));
}

#[test]
fn the_environment_stands_below_what_is_written() {
    let environment = [
        ("PGHOST", "env.example"),
        ("PGPORT", "6000"),
        ("PGUSER", "env"),
        ("PGPASSWORD", "secret"),
        ("PGDATABASE", "envdb"),
        ("PGOPTIONS", "-cx=1"),
        ("PGCONNECT_TIMEOUT", "7"),
        ("PGSSLMODE", "prefer"),
    ];
    let target = resolve_in("", &environment).unwrap();
    assert_eq!(target.places[0], tcp("env.example", None, 6000));
    assert_eq!((target.user.as_str(), target.database.as_str()), ("env", "envdb"));
    assert_eq!((target.password.as_deref(), target.options.as_deref()), (Some("secret"), Some("-cx=1")));
    assert_eq!(target.connect_timeout_ms, 7_000);
    let target = resolve_in("host=/tmp port=1 user=me password=p dbname=d", &environment).unwrap();
    assert_eq!(target.places[0], unix("/tmp/.s.PGSQL.1"));
    assert_eq!((target.user.as_str(), target.database.as_str()), ("me", "d"));
    assert_eq!(target.password.as_deref(), Some("p"));
}

#[test]
fn an_empty_value_hides_the_environment_and_means_the_default() {
    let target = resolve_in("host='' user=me dbname=''", &[("PGHOST", "x"), ("PGDATABASE", "y")]).unwrap();
    assert_eq!(target.places[0], unix("/var/run/postgresql/.s.PGSQL.5432"));
    assert_eq!(target.database, "me");
}

#[test]
fn a_host_is_a_name_an_address_or_a_folder() {
    let table = [
        ("host=db", tcp("db", None, 5432)),
        ("host=10.0.0.1", tcp("10.0.0.1", Some("10.0.0.1"), 5432)),
        ("host=::1 port=1", tcp("::1", Some("::1"), 1)),
        ("host=db hostaddr=10.0.0.1", tcp("db", Some("10.0.0.1"), 5432)),
        ("hostaddr=10.0.0.1", tcp("10.0.0.1", Some("10.0.0.1"), 5432)),
        ("host=/tmp hostaddr=10.0.0.1", tcp("10.0.0.1", Some("10.0.0.1"), 5432)),
        ("host=/tmp/ port=5", unix("/tmp/.s.PGSQL.5")),
        ("host=@mill", unix("@mill/.s.PGSQL.5432")),
        ("postgres://[::1]/x", tcp("::1", Some("::1"), 5432)),
        ("postgres://%2Ftmp/x", unix("/tmp/.s.PGSQL.5432")),
    ];
    for (text, place) in table {
        assert_eq!(resolve(text).expect(text).places, [place], "{text}");
    }
}

#[test]
fn a_connect_timeout_of_one_second_counts_as_two() {
    for (text, ms) in [("1", 2_000), ("2", 2_000), ("30", 30_000), ("0", 10_000), ("-1", 10_000)] {
        assert_eq!(resolve(&format!("connect_timeout={text}")).unwrap().connect_timeout_ms, ms);
    }
}

#[test]
fn harmless_keywords_are_accepted() {
    for text in [
        "application_name=x fallback_application_name=y client_encoding=utf8 keepalives=0 keepalives_idle=1",
        "sslmode=disable",
        "sslmode=allow gssencmode=disable channel_binding=prefer",
        "sslmode=prefer target_session_attrs=any load_balance_hosts=disable tcp_user_timeout=5",
        "passfile=/x password=p",
        "sslmode=require sslrootcert=/x sslcert=/x sslkey=/y sslsni=0 ssl_min_protocol_version=TLSv1.1",
        "channel_binding=require load_balance_hosts=random",
        "sslrootcert=''",
    ] {
        resolve(text).expect(text);
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name_with_what_to_do() {
    assert_eq!(
        refusal("gssencmode=require"),
        "gssencmode=require is not supported by this version: encrypt by TLS (sslmode)"
    );
    for (text, name) in [
        ("sslcrl=/x", "sslcrl"),
        ("sslcrldir=/x", "sslcrldir"),
        ("sslpassword=s3cret", "sslpassword"),
        ("sslnegotiation=direct", "sslnegotiation=direct"),
        ("sslcertmode=require", "sslcertmode=require"),
        ("host=x sslkey=pkcs11:s3cret", "engine"),
        ("requirepeer=x", "requirepeer"),
        ("require_auth=scram-sha-256", "require_auth"),
        ("gssdelegation=1", "gssdelegation=1"),
        ("oauth_issuer=x", "oauth_issuer"),
    ] {
        let error = refusal(text);
        assert!(error.contains(name) && error.contains("not supported by this version: "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn the_environment_is_named_where_it_is_to_blame() {
    for (variable, value) in [("PGSSLMODE", "maybe"), ("PGSSLCRL", "x"), ("PGPORT", "x"), ("PGHOSTADDR", "a,b")] {
        let error = resolve_in("", &[(variable, value)]).expect_err(variable).to_string();
        assert!(error.contains(variable), "{error}");
    }
}

#[test]
fn several_servers_are_parallel_lists() {
    let table = [
        ("host=a,b port=1,2", vec![tcp("a", None, 1), tcp("b", None, 2)]),
        ("host=a,b port=7", vec![tcp("a", None, 7), tcp("b", None, 7)]),
        ("host=a,/tmp port=,2", vec![tcp("a", None, 5432), unix("/tmp/.s.PGSQL.2")]),
        ("host=a,b hostaddr=,::1", vec![tcp("a", None, 5432), tcp("b", Some("::1"), 5432)]),
        ("postgres://a:1,[::1]:2/x", vec![tcp("a", None, 1), tcp("::1", Some("::1"), 2)]),
    ];
    for (text, places) in table {
        assert_eq!(resolve(text).expect(text).places, places, "{text}");
    }
    for text in ["host=a,b port=1,2,3", "host=a,b hostaddr=::1", "host=a port=1,2"] {
        assert!(refusal(text).contains("hosts and"), "{text}");
    }
    assert!(refusal(&format!("host=a{}", ",a".repeat(16))).contains("at most 16"));
}

#[test]
fn tls_is_prefer_unless_told_and_the_systems_roots_ask_for_all() {
    let tls = |text: &str| resolve_in(text, &[("HOME", "/h")]).expect(text).tls;
    let usual = tls("host=a").unwrap();
    assert_eq!((usual.mode, usual.root), (TlsMode::Prefer, Root::File("/h/.postgresql/root.crt".into())));
    assert_eq!(usual.certificate, Some("/h/.postgresql/postgresql.crt".into()));
    assert_eq!(tls("host=/tmp sslmode=verify-full"), None);
    assert_eq!(tls("host=a sslmode=disable"), None);
    assert_eq!(tls("host=a sslcertmode=disable").unwrap().certificate, None);
    let system = tls("host=a sslrootcert=system").unwrap();
    assert_eq!((system.mode, system.root, system.revoked), (TlsMode::VerifyFull, Root::System, None));
    assert!(refusal("host=a sslrootcert=system sslmode=require").contains("verify-full"));
    assert!(refusal("hostaddr=::1 sslmode=verify-full").contains("name of the host"));
    assert!(refusal("host=a ssl_max_protocol_version=TLSv1.1").contains("ssl_max_protocol_version"));
}

#[test]
fn what_the_kernel_is_told_can_be_changed_and_zero_means_ours() {
    let usual = Keepalive::default();
    assert_eq!(resolve("").unwrap().keepalive, usual);
    let text = "keepalives=0 keepalives_idle=60 keepalives_interval=0 tcp_user_timeout=500";
    let wanted = Keepalive { on: false, idle_s: 60, user_timeout_ms: 500, ..usual };
    assert_eq!(resolve(text).unwrap().keepalive, wanted);
    assert!(usual.idle_s + usual.interval_s * usual.count <= 10 && usual.user_timeout_ms <= 10_000);
    assert!(refusal("keepalives_idle=s3cret").contains("keepalives_idle"));
}

#[test]
fn a_password_file_is_named_only_where_no_password_is_given() {
    let file = |text: &str| resolve_in(text, &[("HOME", "/h")]).unwrap().passfile;
    assert_eq!(file(""), Some("/h/.pgpass".into()));
    assert_eq!(file("passfile=/x"), Some("/x".into()));
    assert_eq!(file("password=p"), None);
}

#[test]
fn bad_values_are_refused_without_showing_them() {
    for text in ["port=s3cret", "port=0", "port=70000", "hostaddr=s3cret", "connect_timeout=s3cret", "sslmode=s3cret"] {
        let error = refusal(text);
        assert!(error.contains(text.split('=').next().unwrap()) && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn a_keyword_set_by_hand_is_judged_too() {
    let error = Conninfo::default().with("usr", "x").resolve(&|_| None).expect_err("unknown");
    assert!(error.to_string().contains("did you mean \"user\"?"), "{error}");
    assert_eq!(Conninfo::default().with("user", "a\0").resolve(&|_| None), Err(ConninfoError::Nul));
}

#[test]
fn a_socket_path_may_have_107_bytes_and_no_more() {
    let folder = |length: usize| format!("host=/{}", "x".repeat(length - 1 - "/.s.PGSQL.5432".len()));
    assert!(resolve(&folder(SOCKET_PATH_BYTES_MAX)).is_ok());
    let error = refusal(&folder(SOCKET_PATH_BYTES_MAX + 1));
    assert!(error.contains("108 bytes") && error.contains("107"), "{error}");
}

proptest! {
    #[test]
    fn any_value_is_survived(value in any::<String>(), key in "host|port|hostaddr|sslmode|connect_timeout|user") {
        let _ = Conninfo::default().with(&key, &value).with("dbname", &value).resolve(&|_| None);
        let _ = Conninfo::default().resolve(&|_| Some(value.clone()));
    }
}
