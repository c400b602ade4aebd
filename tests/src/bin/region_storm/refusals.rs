//! What a fork must not do: touch the parent's things when the child panics, or happen at all beside threads.

use crate::top::Top;
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::Start;
use shared::region::ProcessKind;
use shared::sys::fork::{self, ForkError};
use shared::sys::wait::ProcessEnd;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// As a database client says good-bye on its connection when it is dropped.
struct Client(UnixStream);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.write_all(b"X");
    }
}

/// The child panics while the parent's client stands in a frame below it. The connection must not notice.
pub fn panicking_child() -> Value {
    let top = Top::open(3);
    let (connection, mut server) = UnixStream::pair().expect("a socket pair");
    server.set_nonblocking(true).expect("a socket that does not block");
    let client = Client(connection);
    for entry in [panics as fn(Start) -> ExitCode, panics_with_a_client] {
        let (child, _) = top.spawn(ProcessKind::Worker, entry);
        assert_eq!(top.await_end(child.pid()), ProcessEnd::Exited(ExitCode::Panic.status()));
        top.expect_nothing_left();
        let silence = server.read(&mut [0u8; 8]);
        assert!(
            matches!(&silence, Err(error) if error.kind() == ErrorKind::WouldBlock),
            "the connection noticed the child's panic: {silence:?}"
        );
    }
    (&client.0).write_all(b"Q").expect("the connection still stands");
    drop(client);
    let mut said = Vec::new();
    server.read_to_end(&mut said).expect("the good-bye");
    assert_eq!(said, b"QX", "the parent's own good-bye comes from the parent");
    top.close();
    json!({ "said": "QX" })
}

fn panics(_: Start) -> ExitCode {
    panic!("as wanted by the scenario")
}

/// The same with a panic that carries no text, after the child has opened things of its own.
fn panics_with_a_client(start: Start) -> ExitCode {
    let (own, _peer) = UnixStream::pair().expect("a socket pair");
    let _client = Client(own);
    let _ = start.region.accept(start.ticket);
    std::panic::panic_any(7)
}

/// A process with a second thread is refused, and forks again once the thread is gone.
pub fn thread() -> Value {
    let top = Top::open(2);
    let thread = std::thread::spawn(std::thread::park);
    let refused = fork::start(|(): ()| ExitCode::Asked, (), &[]);
    assert!(matches!(refused, Err(ForkError::Threads(2))), "{refused:?}");
    let slot = top.reserve();
    let refused = top.spawner.spawn(slot, ProcessKind::Worker, "", &"order", panics);
    assert!(refused.is_err(), "{refused:?}");
    top.expect_nothing_left();

    thread.thread().unpark();
    thread.join().expect("the thread ends");
    // A joined thread may still be counted for a moment.
    let child =
        tests::eventually("the fork is no longer refused", || match fork::start(|(): ()| ExitCode::Asked, (), &[]) {
            Ok(child) => Some(child),
            Err(ForkError::Threads(_)) => None,
            Err(error) => panic!("{error}"),
        });
    assert_eq!(top.await_end(child.pid()), ProcessEnd::Exited(0));
    top.close();
    json!({ "refused": 2 })
}
