//! A TCP proxy before a server: it keeps what clients say first, and it can play dead:
//! accept, and never answer. Threads of the test process; gone with its drop, and with
//! it all its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// More than any login says.
const KEPT_BYTES: usize = 4096;

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    inside: Arc<Inside>,
}

#[derive(Debug)]
struct Inside {
    server: SocketAddr,
    dead: AtomicBool,
    closed: AtomicBool,
    /// Both ends of every connection, to close them, and those that nobody answers.
    streams: Mutex<Vec<TcpStream>>,
    said: Mutex<Vec<Vec<u8>>>,
}

impl Proxy {
    /// Before the server that listens on this port.
    pub fn before(port: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port for the proxy");
        let address = listener.local_addr().expect("its address");
        let inside = Arc::new(Inside {
            server: ([127, 0, 0, 1], port).into(),
            dead: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            streams: Mutex::default(),
            said: Mutex::default(),
        });
        let inner = inside.clone();
        thread::spawn(move || inner.listen(&listener));
        Proxy { address, inside }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on new connections are accepted and never answered, or are answered again.
    pub fn play_dead(&self, dead: bool) {
        self.inside.dead.store(dead, Ordering::SeqCst);
    }

    /// Closes all connections that there are, towards both sides; new ones are as before.
    pub fn cut(&self) {
        for stream in lock(&self.inside.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// What each client has said first, connection by connection.
    pub fn said(&self) -> Vec<Vec<u8>> {
        lock(&self.inside.said).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inside.closed.store(true, Ordering::SeqCst);
        // wakes the one who listens
        let _ = TcpStream::connect(self.address);
        for stream in lock(&self.inside.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Inside {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            if self.dead.load(Ordering::SeqCst) {
                lock(&self.streams).push(client);
            } else if let Ok(server) = TcpStream::connect(self.server) {
                self.join(client, server);
            }
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let copies = (client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone());
        let (Ok(from_client), Ok(to_server), Ok(kept_client), Ok(kept_server)) = copies else { return };
        lock(&self.streams).extend([kept_client, kept_server]);
        let place = {
            let mut said = lock(&self.said);
            said.push(Vec::new());
            said.len() - 1
        };
        let inner = self.clone();
        thread::spawn(move || {
            pass_on(from_client, to_server, |bytes| {
                if let Some(kept) = lock(&inner.said).get_mut(place) {
                    let room = KEPT_BYTES.saturating_sub(kept.len());
                    kept.extend(bytes.iter().take(room));
                }
            });
        });
        thread::spawn(move || pass_on(server, client, |_| {}));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut keep: impl FnMut(&[u8])) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        keep(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
