//! What a stranger's conninfo may and may not do, and what an operator's entry may.

use super::*;
use crate::conninfo::Place;

const GOOD: &str = "host=db.example user=app password=s3cret";

fn stranger(text: &str) -> Result<Remote, RemoteError> {
    Remote::find(text.as_bytes(), &Entries::default())
}

#[test]
fn a_string_with_host_user_and_password_stands_for_itself() {
    let remote = stranger("postgresql://app:s3cret@db.example:6000/sales?application_name=x&options=-cwork_mem%3D1MB");
    let Remote { target, password_must_count } = remote.unwrap();
    assert!(password_must_count);
    assert_eq!(target.places, [Place::Tcp { host: "db.example".into(), address: None, port: 6000 }]);
    assert_eq!((target.user.as_str(), target.database.as_str()), ("app", "sales"));
    assert_eq!(target.options.as_deref(), Some("-cwork_mem=1MB"));
    assert_eq!(target.passfile, None);
    let tls = target.tls.unwrap();
    assert_eq!((tls.root, tls.certificate, tls.key, tls.revoked), (Root::Nobody, None, None, None));
}

#[test]
fn nothing_of_our_host_is_given_to_a_stranger() {
    for (more, why) in [
        ("passfile=/root/.pgpass", "passfile"),
        ("service=ours", "service"),
        ("servicefile=/etc/x", "servicefile"),
        ("sslcert=/etc/ssl/ours.crt", "sslcert"),
        ("sslkey=/etc/ssl/ours.key", "sslkey"),
        ("sslrootcert=/etc/passwd", "sslrootcert"),
        ("sslmode=verify-full", "sslrootcert"),
        ("sslmode=verify-ca", "sslrootcert"),
        ("host=/var/run/postgresql", "Unix socket"),
        ("host=@abstract", "Unix socket"),
        ("host=db,/tmp", "Unix socket"),
        ("host=db,,x", "Unix socket"),
        ("host=''", "host"),
        ("user=''", "user"),
        ("password=''", "password"),
        ("sslpassword=x", "sslpassword"),
        ("sslcrl=/x", "sslcrl"),
        ("krbsrvname=x gssencmode=require", "gssencmode"),
    ] {
        let error = stranger(&format!("{GOOD} {more}")).expect_err(more).to_string();
        assert!(error.contains(why), "{more}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    assert!(stranger(&format!("{GOOD} sslmode=verify-full sslrootcert=system")).is_ok());
    assert!(stranger("hostaddr=127.0.0.1 user=a password=b").is_ok());
    assert!(stranger("host=x,y hostaddr=127.0.0.1,::1 user=a password=b").is_ok());
}

#[test]
fn broken_strings_are_described_without_their_values() {
    for text in [
        "host",
        "",
        "host=x password='s3cret",
        "postgresql://a:s3cret@h:99999/",
        "password=s3cret hots=x",
        "postgresql://a:s3cret@[::1",
        "host=x user=a password=s3cret port=s3cret",
        "host=x user=a password=s3cret connect_timeout=s3cret",
    ] {
        let error = stranger(text).expect_err(text).to_string();
        assert!(!error.contains("s3cret"), "{text}: {error}");
    }
    assert_eq!(Remote::find(&[0xff, b'='], &Entries::default()), Err(RemoteError::NotText));
    assert_eq!(stranger(&"x".repeat(9000)), Err(RemoteError::TooLong(9000)));
    assert_eq!(stranger("reporting"), Err(RemoteError::Unnamed));
}

#[test]
fn waits_are_bounded_whatever_a_stranger_asks_for() {
    let Remote { target, .. } = stranger(&format!(
        "{GOOD} connect_timeout=2000000 keepalives=0 keepalives_idle=9999 tcp_user_timeout=999999999"
    ))
    .unwrap();
    assert_eq!(target.connect_timeout_ms, REMOTE_CONNECT_MS_MAX);
    assert!(target.keepalive.on && target.keepalive.idle_s == 60 && target.keepalive.user_timeout_ms == 60_000);
    let hosts = vec!["h"; 16].join(",");
    let many = stranger(&format!("host={hosts} user=a password=b")).unwrap();
    assert_eq!(many.total_connect_timeout(), REMOTE_CONNECT_TIMEOUT);
}

#[test]
fn an_entry_is_the_operators_word_but_gets_nothing_that_is_not_written() {
    let mut entries = Entries::default();
    entries.add("socket", "host=/tmp user=a password=s3cret");
    entries.add("files", "host=db user=a passfile=/p sslmode=verify-full sslrootcert=/r sslcert=/c sslkey=/k");
    entries.add("plain", "host=db user=a");
    entries.add("service", "service=x host=db user=a");
    let find = |name: &str| Remote::find(name.as_bytes(), &entries);
    assert!(matches!(find("socket").unwrap().target.places[0], Place::Unix { .. }));
    let files = find("files").unwrap();
    assert!(!files.password_must_count);
    assert_eq!(files.target.passfile.as_deref(), Some(std::path::Path::new("/p")));
    let plain = find("plain").unwrap().target;
    assert_eq!((plain.passfile, plain.password), (None, None));
    assert!(find("service").unwrap_err().to_string().contains("service"));
    assert_eq!(find("Plain"), Err(RemoteError::Unnamed));
    assert!(entries.has_password() && !format!("{entries:?}").contains("s3cret"));
}

#[test]
fn a_name_is_told_from_a_conninfo_by_its_looks() {
    assert_eq!(check_name("reporting"), Ok(()));
    for bad in ["", "a=b", "postgresql://x", &"n".repeat(64)] {
        assert!(check_name(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_remote_can_be_narrowed_to_one_of_its_places() {
    let remote = stranger("host=a,b port=1,2 user=u password=p").unwrap();
    assert_eq!(remote.clone().at(1).unwrap().target.places, [Place::Tcp { host: "b".into(), address: None, port: 2 }]);
    assert_eq!(remote.at(2), None);
}
