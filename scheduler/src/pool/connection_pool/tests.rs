//! Ends of workers, as the wire shows them, against a server that is played here: what is not exactly in order is
//! closed, and nothing is ever written to such a connection.

use super::*;
use crate::limits::{POOL_LIFETIME, POOL_USES, RESET_SOON, RESET_TIMEOUT};
use crate::pool::connection::TERMINATE;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const BACKEND: i32 = 4711;

/// A connection that the worker in `slot` has, and the server's end of it.
fn checked_out() -> (ConnectionPool, UnixStream, SlotHandle) {
    let region = Region::create(1).unwrap();
    let slot = region.slots().reserve().unwrap();
    let (ours, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let parameters = Vec::new();
    let facts =
        PooledConnection { backend: BACKEND, began: "1".into(), key: (0, 0), place: 0, address: None, parameters };
    let facts = Rc::new(facts);
    let (made, state) = (Instant::now(), ConnectionState::CheckedOut(slot));
    let mut pool = ConnectionPool::open().unwrap();
    let (socket, outdated) = (ours.into(), false);
    pool.connections.push(Connection { socket, facts, _permit: None, made, uses: 1, outdated, state });
    (pool, server, slot)
}

fn turn(pool: &mut ConnectionPool, now: Instant) {
    pool.turn(&Region::create(1).unwrap(), |_, _| None, now);
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

/// The right answers to a reset.
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

fn is_closing(pool: &mut ConnectionPool) -> bool {
    let due = pool.due_for_termination(Instant::now() + RESET_TIMEOUT * 2);
    due == [ToTerminate { backend: BACKEND, began: "1".into() }]
}

#[test]
fn one_that_was_left_in_order_is_used_again_and_blocks_as_a_socket_should() {
    let (mut pool, mut server, slot) = checked_out();
    // The worker's copy shares its flags with ours.
    fcntl(&pool.connections[0].socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let late = Instant::now() + RESET_SOON;
    pool.ended(slot, true, Instant::now());
    assert_eq!(pool.reserve(late + RESET_SOON), None, "one that takes long is reserved when it is as new");
    let request = sent(&mut server);
    // Chat in between, and an answer in two pieces.
    let answers = [message(b'N', b"SNOTICE\0\0"), message(b'S', b"a\0b\0"), answers(&request)].concat();
    server.write_all(&answers[..40]).unwrap();
    turn(&mut pool, Instant::now());
    assert_eq!(pool.idle(), 0);
    server.write_all(&answers[40..]).unwrap();
    turn(&mut pool, Instant::now());
    assert_eq!(pool.idle(), 1);
    let flags = fcntl(&pool.connections[0].socket, FcntlArg::F_GETFL).unwrap();
    assert!(!OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK));
    assert_eq!(pool.reserve(Instant::now()), Some(BACKEND));
    assert_eq!(pool.reserve(Instant::now()), None, "to one at a time");
    pool.unreserve(BACKEND);
    assert_eq!(pool.reserve(Instant::now()), Some(BACKEND));
}

#[test]
fn one_that_is_reset_in_a_moment_is_reserved_and_checked_out_when_it_is() {
    let (mut pool, mut server, slot) = checked_out();
    pool.ended(slot, true, Instant::now());
    let request = sent(&mut server);
    assert_eq!((pool.idle(), pool.available(Instant::now())), (0, 1));
    assert_eq!(pool.reserve(Instant::now()), Some(BACKEND));
    assert_eq!((pool.available(Instant::now()), pool.reserve(Instant::now())), (0, None), "to one at a time");
    assert!(matches!(pool.checkout(BACKEND), Checkout::Resetting));
    server.write_all(&answers(&request)).unwrap();
    turn(&mut pool, Instant::now());
    assert!(matches!(pool.checkout(BACKEND), Checkout::Here(..)));
    pool.unreserve(BACKEND);
    assert_eq!(pool.idle(), 1);
}

#[test]
fn one_whose_reset_fails_is_not_checked_out() {
    let (mut pool, mut server, slot) = checked_out();
    pool.ended(slot, true, Instant::now());
    assert_eq!(pool.reserve(Instant::now()), Some(BACKEND));
    server.write_all(&message(b'E', b"SERROR\0\0")).unwrap();
    turn(&mut pool, Instant::now());
    assert!(matches!(pool.checkout(BACKEND), Checkout::Gone));
    pool.unreserve(BACKEND);
    assert!(is_closing(&mut pool));
}

#[test]
fn a_worn_one_is_not_reserved_while_it_is_reset() {
    let (mut pool, _server, slot) = checked_out();
    pool.connections[0].uses = POOL_USES;
    pool.ended(slot, true, Instant::now());
    assert_eq!((pool.available(Instant::now()), pool.reserve(Instant::now())), (0, None));
}

#[test]
fn a_worker_that_did_not_leave_in_order_closes_it_and_nothing_is_written_to_it() {
    // Exit other than 0, a kill, no last word, one of another generation, an open transaction: all come as not clean.
    let (mut pool, mut server, slot) = checked_out();
    pool.ended(slot, false, Instant::now());
    assert!(is_closing(&mut pool) && sent(&mut server).is_empty());
}

#[test]
fn whatever_is_unread_when_the_worker_ends_closes_it_unwritten() {
    let unread = [
        message(b'Z', b"I"),
        message(b'C', b"SELECT 1\0"),
        message(b'A', b"\0\0\0\x01x\0y\0"),
        message(b'G', &[0, 0, 0]),
        b"Z".to_vec(),
    ];
    for unread in unread {
        let (mut pool, mut server, slot) = checked_out();
        server.write_all(&unread).unwrap();
        pool.ended(slot, true, Instant::now());
        assert!(is_closing(&mut pool) && sent(&mut server).is_empty(), "{unread:?}");
    }
}

#[test]
fn an_answer_that_is_not_exactly_ours_closes_it() {
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
        let (mut pool, mut server, slot) = checked_out();
        pool.ended(slot, true, Instant::now());
        let request = sent(&mut server);
        server.write_all(&[before.clone(), answers(&request)].concat()).unwrap();
        turn(&mut pool, Instant::now());
        assert!(pool.idle() == 0 && is_closing(&mut pool), "{before:?}");
    }
    // And something behind the last answer.
    let (mut pool, mut server, slot) = checked_out();
    pool.ended(slot, true, Instant::now());
    let request = sent(&mut server);
    server.write_all(&[answers(&request), message(b'Z', b"I")].concat()).unwrap();
    turn(&mut pool, Instant::now());
    assert!(pool.idle() == 0 && is_closing(&mut pool));
}

#[test]
fn a_server_that_hangs_up_or_never_answers_closes_it() {
    let (mut pool, server, slot) = checked_out();
    drop(server);
    pool.ended(slot, true, Instant::now());
    assert!(is_closing(&mut pool), "hung up before");

    let (mut pool, server, slot) = checked_out();
    pool.ended(slot, true, Instant::now());
    drop(server);
    turn(&mut pool, Instant::now());
    assert!(is_closing(&mut pool), "hung up meanwhile");

    let (mut pool, _server, slot) = checked_out();
    pool.ended(slot, true, Instant::now());
    turn(&mut pool, Instant::now() + RESET_TIMEOUT);
    assert!(is_closing(&mut pool), "no answer in time");
}

#[test]
fn one_to_close_is_closed_only_when_its_backend_is_gone() {
    let (mut pool, mut server, slot) = checked_out();
    pool.ended(slot, false, Instant::now());
    assert!(is_closing(&mut pool));
    pool.terminated(BACKEND, false, Instant::now());
    assert_eq!(pool.connections.len(), 1);
    assert!(server.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "still open");
    pool.terminated(BACKEND, true, Instant::now());
    assert!(pool.connections.is_empty());
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "closed");
}

#[test]
fn one_that_is_idle_is_given_up_at_the_first_word_that_is_no_chat_and_when_it_is_worn() {
    let idle = || {
        let (mut pool, server, _) = checked_out();
        pool.connections[0].state = ConnectionState::Idle;
        (pool, server)
    };
    let (mut pool, mut server) = idle();
    server.write_all(&message(b'N', b"SNOTICE\0\0")).unwrap();
    turn(&mut pool, Instant::now());
    assert_eq!(pool.idle(), 1);
    server.write_all(&message(b'E', b"SFATAL\0\0")).unwrap();
    turn(&mut pool, Instant::now());
    assert!(pool.idle() == 0 && is_closing(&mut pool));

    let (mut pool, mut server) = idle();
    pool.connections[0].uses = POOL_USES;
    turn(&mut pool, Instant::now());
    assert!(pool.idle() == 0 && pool.connections.len() == 1, "its permit is kept until the server has closed it");
    assert_eq!(sent(&mut server), TERMINATE);
    drop(server);
    turn(&mut pool, Instant::now());
    assert!(pool.connections.is_empty());

    let (mut pool, mut server) = idle();
    turn(&mut pool, Instant::now() + POOL_LIFETIME);
    assert_eq!(sent(&mut server), TERMINATE);
    turn(&mut pool, Instant::now() + POOL_LIFETIME + CLOSE_TIMEOUT);
    assert!(pool.connections.is_empty(), "a server that does not hang up is not waited for");

    let (mut pool, mut server) = idle();
    pool.set_session_defaults(1);
    assert_eq!((pool.idle(), sent(&mut server).as_slice()), (0, TERMINATE), "sessions begin with something else now");
}

#[test]
fn a_backend_is_a_stranger_to_every_task_but_the_one_that_runs_on_it() {
    let (mut pool, _server, slot) = checked_out();
    assert!(pool.strangers_to(1, |_| Some(1)).is_empty());
    assert!(pool.strangers_to(1, |_| None).is_empty());
    assert_eq!(pool.strangers_to(2, |held| (held == slot).then_some(1)), [BACKEND]);
    pool.connections[0].state = ConnectionState::Idle;
    assert_eq!(pool.strangers_to(1, |_| Some(1)), [BACKEND]);
    pool.connections[0].state = ConnectionState::Terminating { due: None };
    assert!(pool.strangers_to(2, |_| Some(1)).is_empty());
}
