//! Ends of workers, as the wire shows them, against a server that is played here: what is not exactly in order is
//! retired, and nothing is ever written to what is retired.

use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const BACKEND: i32 = 4711;

/// A connection in the hands of the worker in `slot`, and the server's end of it.
fn lent() -> (Lending, UnixStream, SlotHandle) {
    let region = Region::create(1).unwrap();
    let slot = region.slots().reserve().unwrap();
    let (ours, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let parameters = Vec::new();
    let facts = Lent { backend: BACKEND, began: "1".into(), key: (0, 0), place: 0, address: None, parameters };
    let facts = Rc::new(facts);
    let (made, state) = (Instant::now(), State::Lent(slot));
    let mut lending = Lending::open().unwrap();
    let (socket, outdated) = (ours.into(), false);
    lending.connections.push(Connection { socket, facts, _seat: None, made, uses: 1, outdated, state });
    (lending, server, slot)
}

fn turn(lending: &mut Lending, now: Instant) {
    lending.turn(&Region::create(1).unwrap(), |_, _| None, now);
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut whole = vec![tag];
    whole.extend((body.len() as u32 + 4).to_be_bytes());
    whole.extend(body);
    whole
}

/// What the server was sent.
fn sent(server: &mut UnixStream) -> Vec<u8> {
    let mut all = vec![0; 4096];
    let count = server.read(&mut all).unwrap_or(0);
    all.truncate(count);
    all
}

/// The right answers to a renewal.
fn answers(request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let number = text.split('\'').nth(1).expect("a number is asked for").to_owned();
    let mut row = vec![0, 1, 0, 0, 0, number.len() as u8];
    row.extend(number.as_bytes());
    [
        message(b'C', b"DISCARD ALL\0"),
        message(b'Z', b"I"),
        message(b'T', &[0, 1]),
        message(b'D', &row),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

fn is_retired(lending: &mut Lending) -> bool {
    let due = lending.due_for_retirement(Instant::now() + RESET_TIMEOUT * 2);
    due == [ToRetire { backend: BACKEND, began: "1".into() }]
}

#[test]
fn one_that_was_left_in_order_is_lent_again_and_blocks_as_a_socket_should() {
    let (mut lending, mut server, slot) = lent();
    // The worker's copy shares its flags with ours.
    fcntl(&lending.connections[0].socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let late = Instant::now() + RESET_SOON;
    lending.ended(slot, true, Instant::now());
    assert_eq!(lending.promise(late + RESET_SOON), None, "one that takes long is promised when it is as new");
    let request = sent(&mut server);
    // Chat in between, and an answer in two pieces.
    let answers = [message(b'N', b"SNOTICE\0\0"), message(b'S', b"a\0b\0"), answers(&request)].concat();
    server.write_all(&answers[..40]).unwrap();
    turn(&mut lending, Instant::now());
    assert_eq!(lending.idle(), 0);
    server.write_all(&answers[40..]).unwrap();
    turn(&mut lending, Instant::now());
    assert_eq!(lending.idle(), 1);
    let flags = fcntl(&lending.connections[0].socket, FcntlArg::F_GETFL).unwrap();
    assert!(!OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK));
    assert_eq!(lending.promise(Instant::now()), Some(BACKEND));
    assert_eq!(lending.promise(Instant::now()), None, "to one at a time");
    lending.unpromise(BACKEND);
    assert_eq!(lending.promise(Instant::now()), Some(BACKEND));
}

#[test]
fn one_that_will_be_as_new_in_a_moment_is_promised_and_given_when_it_is() {
    let (mut lending, mut server, slot) = lent();
    lending.ended(slot, true, Instant::now());
    let request = sent(&mut server);
    assert_eq!((lending.idle(), lending.to_be_had(Instant::now())), (0, 1));
    assert_eq!(lending.promise(Instant::now()), Some(BACKEND));
    assert_eq!((lending.to_be_had(Instant::now()), lending.promise(Instant::now())), (0, None), "to one at a time");
    assert!(matches!(lending.gift(BACKEND), Gift::Coming));
    server.write_all(&answers(&request)).unwrap();
    turn(&mut lending, Instant::now());
    assert!(matches!(lending.gift(BACKEND), Gift::Here(..)));
    lending.unpromise(BACKEND);
    assert_eq!(lending.idle(), 1);
}

#[test]
fn one_that_turns_out_not_to_be_as_new_is_given_to_nobody() {
    let (mut lending, mut server, slot) = lent();
    lending.ended(slot, true, Instant::now());
    assert_eq!(lending.promise(Instant::now()), Some(BACKEND));
    server.write_all(&message(b'E', b"SERROR\0\0")).unwrap();
    turn(&mut lending, Instant::now());
    assert!(matches!(lending.gift(BACKEND), Gift::Gone));
    lending.unpromise(BACKEND);
    assert!(is_retired(&mut lending));
}

#[test]
fn a_worn_one_is_not_promised_while_it_is_made_as_new() {
    let (mut lending, _server, slot) = lent();
    lending.connections[0].uses = POOL_USES;
    lending.ended(slot, true, Instant::now());
    assert_eq!((lending.to_be_had(Instant::now()), lending.promise(Instant::now())), (0, None));
}

#[test]
fn a_worker_that_did_not_leave_in_order_retires_it_and_nothing_is_written_to_it() {
    // Exit other than 0, a kill, no last word, one of another generation, an open transaction: all come as not clean.
    let (mut lending, mut server, slot) = lent();
    lending.ended(slot, false, Instant::now());
    assert!(is_retired(&mut lending) && sent(&mut server).is_empty());
}

#[test]
fn whatever_is_unread_when_the_worker_ends_retires_it_unwritten() {
    let unread = [
        message(b'Z', b"I"),
        message(b'C', b"SELECT 1\0"),
        message(b'A', b"\0\0\0\x01x\0y\0"),
        message(b'G', &[0, 0, 0]),
        b"Z".to_vec(),
    ];
    for unread in unread {
        let (mut lending, mut server, slot) = lent();
        server.write_all(&unread).unwrap();
        lending.ended(slot, true, Instant::now());
        assert!(is_retired(&mut lending) && sent(&mut server).is_empty(), "{unread:?}");
    }
}

#[test]
fn an_answer_that_is_not_exactly_ours_retires_it() {
    let discarded = [message(b'C', b"DISCARD ALL\0"), message(b'Z', b"I")].concat();
    // A Sync too many, a DISCARD ALL of the worker's own that was not answered yet, a COPY, an error, a transaction.
    let before = [
        message(b'Z', b"I"),
        discarded,
        message(b'G', &[0, 0, 0]),
        message(b'E', b"SERROR\0\0"),
        [message(b'C', b"DISCARD ALL\0"), message(b'Z', b"T")].concat(),
        [message(b'C', b"DISCARD\0"), message(b'Z', b"I")].concat(),
        vec![b'Z', 255, 255, 255, 255],
    ];
    for before in before {
        let (mut lending, mut server, slot) = lent();
        lending.ended(slot, true, Instant::now());
        let request = sent(&mut server);
        server.write_all(&[before.clone(), answers(&request)].concat()).unwrap();
        turn(&mut lending, Instant::now());
        assert!(lending.idle() == 0 && is_retired(&mut lending), "{before:?}");
    }
    // And something behind the last answer.
    let (mut lending, mut server, slot) = lent();
    lending.ended(slot, true, Instant::now());
    let request = sent(&mut server);
    server.write_all(&[answers(&request), message(b'Z', b"I")].concat()).unwrap();
    turn(&mut lending, Instant::now());
    assert!(lending.idle() == 0 && is_retired(&mut lending));
}

#[test]
fn a_server_that_hangs_up_or_never_answers_retires_it() {
    let (mut lending, server, slot) = lent();
    drop(server);
    lending.ended(slot, true, Instant::now());
    assert!(is_retired(&mut lending), "hung up before");

    let (mut lending, server, slot) = lent();
    lending.ended(slot, true, Instant::now());
    drop(server);
    turn(&mut lending, Instant::now());
    assert!(is_retired(&mut lending), "hung up meanwhile");

    let (mut lending, _server, slot) = lent();
    lending.ended(slot, true, Instant::now());
    turn(&mut lending, Instant::now() + RESET_TIMEOUT);
    assert!(is_retired(&mut lending), "no answer in time");
}

#[test]
fn a_retired_one_is_closed_only_when_its_backend_is_gone() {
    let (mut lending, mut server, slot) = lent();
    lending.ended(slot, false, Instant::now());
    assert!(is_retired(&mut lending));
    lending.retired(BACKEND, false, Instant::now());
    assert_eq!(lending.connections.len(), 1);
    assert!(server.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "still open");
    lending.retired(BACKEND, true, Instant::now());
    assert!(lending.connections.is_empty());
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "closed");
}

#[test]
fn one_that_is_idle_is_given_up_at_the_first_word_that_is_no_chat_and_when_it_is_worn() {
    let idle = || {
        let (mut lending, server, _) = lent();
        lending.connections[0].state = State::Idle;
        (lending, server)
    };
    let (mut lending, mut server) = idle();
    server.write_all(&message(b'N', b"SNOTICE\0\0")).unwrap();
    turn(&mut lending, Instant::now());
    assert_eq!(lending.idle(), 1);
    server.write_all(&message(b'E', b"SFATAL\0\0")).unwrap();
    turn(&mut lending, Instant::now());
    assert!(lending.idle() == 0 && is_retired(&mut lending));

    let (mut lending, mut server) = idle();
    lending.connections[0].uses = POOL_USES;
    turn(&mut lending, Instant::now());
    assert!(lending.idle() == 0 && lending.connections.len() == 1, "its seat is kept until the server has hung up");
    assert_eq!(sent(&mut server), FAREWELL);
    drop(server);
    turn(&mut lending, Instant::now());
    assert!(lending.connections.is_empty());

    let (mut lending, mut server) = idle();
    turn(&mut lending, Instant::now() + POOL_LIFETIME);
    assert_eq!(sent(&mut server), FAREWELL);
    turn(&mut lending, Instant::now() + POOL_LIFETIME + CLOSE_TIMEOUT);
    assert!(lending.connections.is_empty(), "a server that does not hang up is not waited for");

    let (mut lending, mut server) = idle();
    lending.begin_with(1);
    assert_eq!((lending.idle(), sent(&mut server).as_slice()), (0, FAREWELL), "sessions begin with something else now");
}

#[test]
fn a_backend_is_a_stranger_to_every_task_but_the_one_that_runs_on_it() {
    let (mut lending, _server, slot) = lent();
    assert!(lending.strangers_to(1, |_| Some(1)).is_empty());
    assert!(lending.strangers_to(1, |_| None).is_empty());
    assert_eq!(lending.strangers_to(2, |held| (held == slot).then_some(1)), [BACKEND]);
    lending.connections[0].state = State::Idle;
    assert_eq!(lending.strangers_to(1, |_| Some(1)), [BACKEND]);
    lending.connections[0].state = State::Retiring { due: None };
    assert!(lending.strangers_to(2, |_| Some(1)).is_empty());
}
