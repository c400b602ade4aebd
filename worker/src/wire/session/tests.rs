//! The client against a server played by a thread on the other end of a socket pair, good or hostile.
//!
//! What only a real server can show (SCRAM, cancel, long data both ways) is shown by the whole-program tests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::wire::{Column, LinkError, ServerError, Sink, Statement};

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn row(values: &[&[u8]]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(*value);
    }
    message(b'D', &body)
}

fn columns(names: &[&str]) -> Vec<u8> {
    let mut body = (names.len() as u16).to_be_bytes().to_vec();
    for name in names {
        body.extend(name.as_bytes());
        body.extend(b"\0\0\0\0\0\0\0\0\0\0\x19\0\x04\xff\xff\xff\xff\0\0");
    }
    message(b'T', &body)
}

fn greeting() -> Vec<u8> {
    let mut bytes = message(b'R', &[0; 4]);
    bytes.extend(message(b'S', b"server_version\x0015.1\0"));
    bytes.extend(message(b'K', &[0, 0, 0, 42, 0, 0, 0, 7]));
    bytes.extend(message(b'Z', b"I"));
    bytes
}

fn target() -> Target {
    let mut target = Target::at(Place::Unix { path: "/played".into() }, "u", "d");
    target.password = Some("hush".into());
    target.options = Some("-c a=b".into());
    target
}

fn log_in(ours: UnixStream) -> Result<Session, ConnectError> {
    let link = WireLink::new(ours.into(), Some(Instant::now() + Duration::from_secs(20)));
    let target = target();
    let attempt = ConnectAttempt { place: target.places[0].clone(), address: None, cover: Cover::Plain };
    let login = LoginTarget {
        target: &target,
        parameters: &[("application_name", "x"), ("options", "-c c=d")],
        attempt: &attempt,
        peer: Peer::of(&attempt),
        tls: None,
    };
    let mut session = Session::log_in(link, login)?;
    session.link.set_deadline(None);
    Ok(session)
}

/// A session whose server answers the first request with the script, and then closes.
fn session(script: &[Vec<u8>]) -> Session {
    session_in_turns(vec![script.concat()])
}

/// A session whose server has one answer for each request, and then closes.
fn session_in_turns(rounds: Vec<Vec<u8>>) -> Session {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut request = [0; 4096];
        for round in std::iter::once(greeting()).chain(rounds) {
            // A client that gave up makes these fail, as it should.
            let _ = theirs.read(&mut request).and_then(|_| theirs.write_all(&round));
        }
    });
    log_in(ours).unwrap()
}

#[derive(Default)]
struct Received {
    said: Vec<String>,
    room: usize,
}

impl Sink for Received {
    fn columns(&mut self, columns: &[Column<'_>]) {
        self.said.push(format!("columns {}", columns.len()));
    }
    fn row(&mut self, values: &[Option<&[u8]>]) {
        let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
        self.said.push(format!("row {bytes}"));
    }
    fn copy_out(&mut self) {
        self.said.push("copy".into());
    }
    fn copy_data(&mut self, data: &[u8]) {
        self.said.push(format!("data {}", data.len()));
    }
    fn tag(&mut self, tag: &[u8]) {
        self.said.push(String::from_utf8_lossy(tag).into());
    }
    fn error(&mut self, error: ServerError) {
        self.said.push(error.to_string());
    }
    fn notice(&mut self, notice: ServerError) {
        self.said.push(notice.to_string());
    }
    fn room(&self) -> usize {
        self.room
    }
    fn overflow(&mut self) {
        self.said.push("overflow".into());
    }
}

fn refused(script: &[Vec<u8>]) -> LinkError {
    session(script).run(b"SELECT 1", &mut Received { room: 1000, ..Received::default() }).unwrap_err()
}

#[test]
fn the_login_sends_the_targets_words_and_ours() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&greeting()).unwrap();
    let session = log_in(ours).unwrap();
    assert_eq!(session.backend_pid(), 42);
    assert_eq!(session.parameter("server_version"), Some(&b"15.1"[..]));
    assert_eq!(session.status(), TransactionStatus::Idle);
    session.close();
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).unwrap();
    let wanted =
        b"user\0u\0database\0d\0client_encoding\0UTF8\0options\0-c a=b -c c=d\0application_name\0x\0\0X\0\0\0\x04";
    assert_eq!(&sent[8..], wanted);
}

#[test]
fn a_login_that_fails_names_the_place_and_never_the_password() {
    let cases: [(Vec<u8>, &str); 8] = [
        (message(b'E', b"SFATAL\0C3D000\0Mno such database\0\0"), "server refused the connection: FATAL: no such"),
        (b"Ecould not fork new process for connection: no memory\n\0".to_vec(), "could not fork new process"),
        (message(b'R', &[0, 0, 0, 9]), "requires SSPI authentication, which is not supported"),
        (message(b'R', b"\0\0\0\x0aSCRAM-SHA-1\0\0"), "requires SCRAM-SHA-1 authentication"),
        (message(b'R', b"\0\0\0\x0b"), "out of turn"),
        (message(b'v', b"\0\0\0\0"), "unexpected type v"),
        (message(b'R', &[0; 4]), "could not log in to /played: server closed the connection"),
        (Vec::new(), "could not log in to /played: server closed the connection"),
    ];
    for (bytes, wanted) in cases {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&bytes).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let text = log_in(ours).unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
        assert!(!text.contains("hush"));
    }
}

#[test]
fn a_server_that_skips_its_proof_is_not_believed() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")).unwrap();
    theirs.write_all(&greeting()).unwrap();
    let text = log_in(ours).unwrap_err().to_string();
    assert!(text.ends_with("server did not prove that it knows the password"), "{text}");
}

#[test]
fn answers_reach_the_sink_in_order_and_what_is_too_long_does_not() {
    let ready = message(b'Z', b"T");
    let notice = message(b'N', b"SNOTICE\0Mhello\0\0");
    let mut session = session(&[
        columns(&["a", "b"]),
        row(&[&[b'x'; 60], &[b'y'; 40]]),
        row(&[&[b'x'; 61], &[b'y'; 40]]),
        row(&[&vec![b'x'; 5 << 20]]),
        message(b'C', b"SELECT 3\0"),
        notice,
        message(b'A', b"\0\0\0\x01channel\0payload\0"),
        message(b'S', b"server_version\x0016\0"),
        message(b'I', b""),
        message(b'H', b"\0\0\0"),
        message(b'd', &[b'z'; 100]),
        message(b'd', &[b'z'; 101]),
        message(b'c', b""),
        message(b'C', b"COPY 2\0"),
        message(b'E', b"SERROR\0VERROR\0C22012\0Mdivision by zero\0\0"),
        ready,
    ]);
    let mut heard = Received { room: 100, ..Received::default() };
    session.run(b"..", &mut heard).unwrap();
    let wanted = [
        "columns 2",
        "row 100",
        "overflow",
        "overflow",
        "SELECT 3",
        "NOTICE: hello",
        "copy",
        "data 100",
        "overflow",
        "COPY 2",
        "ERROR: division by zero",
    ];
    assert_eq!(heard.said, wanted);
    assert_eq!(session.status(), TransactionStatus::InBlock);
    assert_eq!(session.parameter("server_version"), Some(&b"16"[..]));
}

#[test]
fn the_last_word_of_a_server_that_leaves_is_in_the_error() {
    let fatal = message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mgo away\0\0");
    let error = refused(std::slice::from_ref(&fatal));
    assert_eq!(error.fatal.unwrap().code(), Some(&b"57P01"[..]));
    let crash = message(b'N', b"SWARNING\0VWARNING\0C57P02\0Mcrash\0\0");
    assert_eq!(refused(std::slice::from_ref(&crash)).fatal.unwrap().code(), Some(&b"57P02"[..]));
    // Said in passing it is no farewell.
    assert!(refused(&[crash, message(b'C', b"DO\0")]).fatal.is_none());
    assert!(refused(&[]).fatal.is_none());
    assert!(refused(&[fatal, message(b'Z', b"I")]).fatal.is_some());
}

#[test]
fn hostile_messages_end_the_link() {
    let huge_columns = [&[b'T'][..], &(1u32 << 29).to_be_bytes()].concat();
    for script in [
        message(b'?', b""),
        message(b'K', &[0; 8]),
        message(b'R', &[0; 4]),
        message(b'D', b"\0"),
        message(b'D', b"\0\x02\0\0\0\x09a"),
        message(b'T', b"\0\x01a\0"),
        message(b'Z', b"?"),
        message(b'C', b"no end"),
        huge_columns,
        b"D\0\0\0\x03".to_vec(),
        b"D\xff\xff\xff\xff".to_vec(),
    ] {
        let error = refused(std::slice::from_ref(&script));
        assert!(error.what.contains("server sent"), "{script:?}: {error}");
    }
}

#[test]
fn answers_without_an_end_to_our_own_statements_end_the_link() {
    for flood in [message(b'C', b"DO\0"), message(b'N', b"SNOTICE\0Mn\0\0"), message(b'E', b"SERROR\0Mn\0\0")] {
        let error = session(&[flood.repeat(200_000)]).execute("SELECT 1", &[]).unwrap_err();
        assert!(matches!(error, QueryError::Link(_)), "{error}");
    }
    // nothing but overhead: a GiB of it is enough
    let rows = vec![row(&[]).repeat(1 << 16); 70];
    let error = session(&rows).execute("SELECT 1", &[]).unwrap_err();
    assert!(error.to_string().contains("longer than 1 GiB"), "{error}");
}

#[test]
fn a_server_that_never_answers_our_own_statement_is_left() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&greeting()).unwrap();
    let mut session = log_in(ours).unwrap();
    session.set_answer_timeout(Duration::from_millis(30));
    let error = session.execute("SELECT 1", &[]).unwrap_err();
    assert!(error.to_string().contains("timeout"), "{error}");
}

#[test]
fn a_server_that_asks_for_the_password_again_and_again_is_left() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&message(b'R', b"\0\0\0\x03").repeat(100)).unwrap();
    assert!(log_in(ours).unwrap_err().to_string().contains("too many authentication messages"));
}

#[test]
fn an_endless_error_is_kept_in_part_and_the_session_goes_on() {
    let mut body = b"SERROR\0VERROR\0CP0001\0M".to_vec();
    body.extend("€".repeat(1 << 20).as_bytes());
    let mut session = session(&[message(b'E', &body), message(b'Z', b"I")]);
    let mut heard = Received::default();
    session.run(b"..", &mut heard).unwrap();
    assert!(heard.said[0].len() <= 1 << 20 && heard.said[0].ends_with('€'));
}

#[test]
fn statements_that_cannot_be_sent_touch_nothing() {
    let mut session = session(&[]);
    let mut heard = Received::default();
    session.run(b"SELECT '\0'", &mut heard).unwrap();
    assert!(heard.said[0].starts_with("ERROR: invalid byte sequence"));
    assert!(matches!(session.execute("\0", &[]), Err(QueryError::Server(_))));
}

#[test]
fn a_transaction_answers_statement_by_statement_or_not_at_all() {
    let step = [message(b'1', b""), message(b'2', b"")].concat();
    let begin = [step.clone(), message(b'C', b"BEGIN\0")].concat();
    let update = [step, row(&[b"7"]), message(b'C', b"UPDATE 1\0")].concat();
    let statement = Statement::once("s", &[]);
    let answers = session(&[begin.clone(), update, message(b'Z', b"I")]).transaction(&[statement, statement]).unwrap();
    assert_eq!(answers, [vec![], vec![vec![Some(b"7".to_vec())]]]);

    let failed = message(b'E', b"SERROR\0VERROR\0C40P01\0Mdeadlock\0\0");
    let failed = [begin.clone(), failed, message(b'Z', b"E")].concat();
    let rolled = [message(b'C', b"ROLLBACK\0"), message(b'Z', b"I")].concat();
    let mut played = session_in_turns(vec![failed, rolled]);
    let error = played.transaction(&[statement, statement]).unwrap_err();
    assert_eq!(error.server().unwrap().code(), Some(&b"40P01"[..]));
    assert_eq!(played.status(), TransactionStatus::Idle);

    let error = session(&[begin, message(b'Z', b"I")]).transaction(&[statement, statement]).unwrap_err();
    assert!(matches!(error, QueryError::Link(_)));
}

/// Messages as a server may send them, then bent: what is whole gets deep into the readers.
fn speech() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::sample::select(b"DTdENASCZIHGWRK123nstcv?".to_vec());
    let body = prop_oneof![
        Just(row(&[b"1", b"x"])[5..].to_vec()),
        Just(columns(&["a", "b"])[5..].to_vec()),
        Just(b"SERROR\0VFATAL\0C57P01\0Mgone\0\0".to_vec()),
        Just(b"I".to_vec()),
        Just(b"\0\0\0\x0aSCRAM-SHA-256\0\0".to_vec()),
        Just(b"\0\0\0\x0br=x,s=c2FsdA==,i=4096".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let whole = (tags, body).prop_map(|(tag, body)| message(tag, &body));
    let raw = prop::collection::vec(any::<u8>(), 0..12);
    let part = prop_oneof![8 => whole, 1 => raw, 2 => Just(message(b'Z', b"I")), 1 => Just(greeting())];
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

/// A large run is asked for by the same variable as everywhere.
fn cases() -> ProptestConfig {
    let full = std::env::var_os("PGMILL_FULL").is_some_and(|value| !value.is_empty() && value != "0");
    let cases = if full { 100_000 } else { 256 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_a_server_says_every_request_comes_to_an_end(login in speech(), first in speech(), second in speech()) {
        let say = |bytes: &[u8]| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(bytes).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            (log_in(ours), theirs)
        };
        if let (Ok(mut session), _theirs) = say(&login) {
            let _ = session.run(b"SELECT 1", &mut Received { room: 50, ..Received::default() });
        }
        let (session, _theirs) = say(&[greeting(), first, second].concat());
        let mut session = session.unwrap();
        let mut heard = Received { room: 50, ..Received::default() };
        let _ = session.run(b"SELECT 1", &mut heard);
        let statement = Statement { sql: "s", params: &[None, Some(b"x")], prepared: false };
        let _ = session.transaction(&[statement, statement]);
        let _ = session.execute("SELECT 1", &[]);
    }
}
