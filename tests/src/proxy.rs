//! A TCP proxy before a server: it keeps what clients say first, it can play dead (accept,
//! and never answer), and it can lose a connection in the very moment of a certain word. Threads of the test process; gone with its drop, and with
//! it all its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// More than any login says.
const KEPT_BYTES: usize = 4096;

/// After this time without a sign of life either end of a connection gives it up.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// When a connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The word does not reach the server.
    Before,
    /// The server hears it and answers; the answer does not reach the client.
    After,
    /// Nothing is closed, and nothing more is said on either side.
    Silence,
}

/// A write of a client that holds `word` and not `without`.
#[derive(Debug, Clone, Copy)]
struct Trap {
    word: &'static [u8],
    without: &'static [u8],
    loss: Loss,
}

/// In the next write of a client that holds `word` and not `without`, the server reads `other`.
#[derive(Debug, Clone, Copy)]
struct Swap {
    word: &'static [u8],
    without: &'static [u8],
    other: &'static [u8],
}

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
    trap: Mutex<Option<Trap>>,
    swap: Mutex<Option<Swap>>,
    /// Of each connection: nothing is passed on any more.
    hushed: Mutex<Vec<Arc<AtomicBool>>>,
    /// Whoever waits to close silent connections goes on when this goes.
    silences: Mutex<Vec<mpsc::Sender<()>>>,
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
            trap: Mutex::default(),
            swap: Mutex::default(),
            hushed: Mutex::default(),
            silences: Mutex::default(),
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

    /// The next client that writes `word`, in a write without `without`, loses its connection then.
    pub fn lose_at(&self, word: &'static str, without: &'static str, loss: Loss) {
        let trap = Trap { word: word.as_bytes(), without: without.as_bytes(), loss };
        *lock(&self.inside.trap) = Some(trap);
    }

    /// The next client that writes `word`, in a write without `without`, has said `other` instead, which is as long.
    pub fn swap_at(&self, word: &'static str, without: &'static str, other: &'static str) {
        assert_eq!(word.len(), other.len(), "no length in a message may change");
        let swap = Swap { word: word.as_bytes(), without: without.as_bytes(), other: other.as_bytes() };
        *lock(&self.inside.swap) = Some(swap);
    }

    /// Has it?
    pub fn has_swapped(&self) -> bool {
        lock(&self.inside.swap).is_none()
    }

    /// Has the trap shut?
    pub fn has_lost(&self) -> bool {
        lock(&self.inside.trap).is_none()
    }

    /// All connections that there are stay open and fall silent.
    pub fn hush(&self) {
        lock(&self.inside.hushed).iter().for_each(|hushed| hushed.store(true, Ordering::SeqCst));
    }

    /// As if a cable were cut: they fall silent, and are closed when the keep-alives of their ends would tell those that nobody is
    /// there any more. Here they do not, because the proxy is there.
    pub fn cut_cable(&self) {
        self.hush();
        let silent: Vec<TcpStream> = lock(&self.inside.streams).drain(..).collect();
        let (given_up, closed) = mpsc::channel::<()>();
        lock(&self.inside.silences).push(given_up);
        thread::spawn(move || {
            // whichever comes first: the keep-alives' time, or the end of the proxy
            let _ = closed.recv_timeout(KEEP_ALIVE);
            silent.iter().for_each(|stream| {
                let _ = stream.shutdown(Shutdown::Both);
            });
        });
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
        lock(&self.inside.silences).clear();
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
        let muted = Arc::new(AtomicBool::new(false));
        let mute = muted.clone();
        let hushed = Arc::new(AtomicBool::new(false));
        let (hush, questions, answers) = (hushed.clone(), hushed.clone(), hushed);
        lock(&self.hushed).push(hush.clone());
        thread::spawn(move || {
            pass_on(from_client, to_server, &questions, |bytes| {
                if let Some(kept) = lock(&inner.said).get_mut(place) {
                    let room = KEPT_BYTES.saturating_sub(kept.len());
                    kept.extend(bytes.iter().take(room));
                }
                inner.swap(bytes);
                let loss = inner.sprung(bytes);
                if loss == Some(Loss::After) {
                    mute.store(true, Ordering::SeqCst);
                }
                if loss == Some(Loss::Silence) {
                    hush.store(true, Ordering::SeqCst);
                }
                loss != Some(Loss::Before)
            });
        });
        // an answer that must not arrive has been given: that is the moment
        thread::spawn(move || {
            pass_on(server, client, &answers, |_| !muted.load(Ordering::SeqCst));
        });
    }

    /// Puts other words into this write, once.
    fn swap(&self, bytes: &mut [u8]) {
        let mut swap = lock(&self.swap);
        let place =
            swap.and_then(|Swap { word, without, .. }| find(bytes, word).filter(|_| find(bytes, without).is_none()));
        if let (Some(place), Some(Swap { other, .. })) = (place, swap.take_if(|_| place.is_some())) {
            bytes[place..place + other.len()].copy_from_slice(other);
        }
    }

    /// Whether a trap stands for this write; it stands once.
    fn sprung(&self, bytes: &[u8]) -> Option<Loss> {
        let holds = |part: &[u8]| find(bytes, part).is_some();
        let mut trap = lock(&self.trap);
        let loss = trap.filter(|trap| holds(trap.word) && !holds(trap.without)).map(|trap| trap.loss);
        if loss.is_some() {
            *trap = None;
        }
        loss
    }
}

/// Until one end closes, or `hear` says that this was the end.
fn pass_on(mut from: TcpStream, mut to: TcpStream, hushed: &AtomicBool, mut hear: impl FnMut(&mut [u8]) -> bool) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !hear(&mut bytes[..count]) {
            break;
        }
        if hushed.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
