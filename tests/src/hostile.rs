//! A server that speaks the protocol badly: garbage, silence, floods, lies about lengths.
//!
//! It listens on a port of its own and, until a [`Plan`] says otherwise, passes everything on to a real server. The
//! plan names whom it strikes (by application name), at which moment (at the connect, at the login, at the n-th
//! question, at an input that contains a word), and how. So a victim can be led as deep into a healthy
//! conversation as a test wants before the server goes mad.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// When it strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// Before the client has said anything that we heard.
    Connect,
    /// After the startup message, instead of an answer to it.
    Login,
    /// Instead of the answer to the n-th Query or Parse, counted from 1.
    Question(usize),
    /// Instead of the answer to the n-th Bind, counted from 1.
    Bind(usize),
    /// Instead of the answer to a Query that contains this.
    Input(String),
}

/// How it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    Silence,
    Close,
    Garbage,
    HalfMessage,
    ShortLength,
    NegativeLength,
    /// A length of 2 GiB, and then as many bytes as are taken.
    HugeLength,
    UnknownType,
    EndlessRows,
    /// Rows of no columns: nothing but overhead.
    EndlessEmptyRows,
    EndlessColumns,
    EndlessTags,
    EndlessErrors,
    EndlessNotices,
    EndlessNotifications,
    /// Each with another name.
    EndlessParameters,
    /// One ReadyForQuery too many.
    ExtraReady,
    /// Columns of types that nobody knows, however often one asks.
    UnknownColumnTypes,
    /// A row with fewer columns than were announced.
    WrongRow,
    /// A thousand million rounds of SCRAM.
    AbsurdScram,
    ScramOutOfTurn,
    UnknownMethod,
    /// Asks for the password again and again.
    PasswordAgain,
}

use Attack as A;

/// What can be said to somebody who logs in.
pub const AT_LOGIN: [Attack; 17] = [
    A::Silence,
    A::Close,
    A::Garbage,
    A::HalfMessage,
    A::ShortLength,
    A::NegativeLength,
    A::HugeLength,
    A::UnknownType,
    A::EndlessRows,
    A::EndlessErrors,
    A::EndlessNotices,
    A::EndlessParameters,
    A::ExtraReady,
    A::AbsurdScram,
    A::ScramOutOfTurn,
    A::UnknownMethod,
    A::PasswordAgain,
];

/// What can be said to somebody who has asked something.
pub const AT_QUESTION: [Attack; 18] = [
    A::Silence,
    A::Close,
    A::Garbage,
    A::HalfMessage,
    A::ShortLength,
    A::NegativeLength,
    A::HugeLength,
    A::UnknownType,
    A::EndlessRows,
    A::EndlessEmptyRows,
    A::EndlessColumns,
    A::EndlessTags,
    A::EndlessErrors,
    A::EndlessNotices,
    A::EndlessNotifications,
    A::EndlessParameters,
    A::ExtraReady,
    A::WrongRow,
];

#[derive(Debug, Clone)]
pub struct Plan {
    /// The beginning of the victim's application name; empty for everybody.
    pub whom: &'static str,
    pub when: Moment,
    pub how: Attack,
}

#[derive(Debug)]
pub struct Hostile {
    address: SocketAddr,
    inside: Arc<Inside>,
}

#[derive(Debug)]
struct Inside {
    /// The real server; without one there is nobody to pass on to.
    server: Option<SocketAddr>,
    plans: Mutex<Vec<Plan>>,
    blows: AtomicUsize,
    closed: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Hostile {
    /// In front of a real server on this port of 127.0.0.1, and well-behaved as yet.
    pub fn before(port: u16) -> Hostile {
        Hostile::start(Some(([127, 0, 0, 1], port).into()), Vec::new())
    }

    /// With nobody behind it.
    pub fn alone(when: Moment, how: Attack) -> Hostile {
        Hostile::start(None, vec![Plan { whom: "", when, how }])
    }

    fn start(server: Option<SocketAddr>, plans: Vec<Plan>) -> Hostile {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port for the hostile server");
        let address = listener.local_addr().expect("its address");
        let inside = Arc::new(Inside {
            server,
            plans: Mutex::new(plans),
            blows: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let inner = inside.clone();
        thread::spawn(move || inner.listen(&listener));
        Hostile { address, inside }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Other plans, for connections to come; none: behave.
    pub fn set(&self, plans: Vec<Plan>) {
        *lock(&self.inside.plans) = plans;
        self.inside.blows.store(0, Ordering::SeqCst);
    }

    /// How often it has struck since the plan was set.
    pub fn blows(&self) -> usize {
        self.inside.blows.load(Ordering::SeqCst)
    }
}

impl Drop for Hostile {
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
            if let Ok(kept) = client.try_clone() {
                let mut streams = lock(&self.streams);
                streams.retain(|stream| stream.peer_addr().is_ok());
                streams.push(kept);
            }
            let inner = self.clone();
            // An error is the end of that conversation, on either side.
            thread::spawn(move || inner.receive(client).is_ok());
        }
    }

    /// One conversation, from the startup message on.
    fn receive(&self, mut client: TcpStream) -> io::Result<()> {
        let mut plans = lock(&self.plans).clone();
        if let Some(plan) = plans.iter().find(|plan| plan.when == Moment::Connect) {
            return self.strike(client, plan.how);
        }
        let startup = loop {
            let startup = read_startup(&mut client)?;
            match startup.get(4..8) {
                // SSLRequest, GSSENCRequest: neither is to be had.
                Some([4, 210, 22, 47 | 48]) => client.write_all(b"N")?,
                _ => break startup,
            }
        };
        let name = application_name(&startup).unwrap_or_default();
        plans.retain(|plan| name.starts_with(plan.whom.as_bytes()));
        if let Some(plan) = plans.iter().find(|plan| plan.when == Moment::Login) {
            return self.strike(client, plan.how);
        }
        match self.server {
            Some(server) => self.pass_on(client, server, &startup, &plans),
            None => self.play(client, &plans),
        }
    }

    /// A login that is granted to anybody, and then what the plan says at the first question.
    fn play(&self, mut client: TcpStream, plans: &[Plan]) -> io::Result<()> {
        client.write_all(&greeting())?;
        let how = plans.first().map_or(Attack::Silence, |plan| plan.how);
        let mut one = [0; 1];
        client.read_exact(&mut one)?;
        self.strike(client, how)
    }

    /// Passes on until the plan's moment has come.
    fn pass_on(&self, mut client: TcpStream, server: SocketAddr, startup: &[u8], plans: &[Plan]) -> io::Result<()> {
        let mut upstream = TcpStream::connect(server)?;
        upstream.write_all(startup)?;
        let (mut from, mut to) = (upstream.try_clone()?, client.try_clone()?);
        let mad = Arc::new(AtomicBool::new(false));
        let seen = mad.clone();
        let answers = thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if seen.load(Ordering::SeqCst) || to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            if !seen.load(Ordering::SeqCst) {
                let _ = to.shutdown(Shutdown::Both);
            }
        });
        let (mut questions, mut binds) = (0, 0);
        loop {
            let message = match read_message(&mut client) {
                Ok(message) => message,
                Err(error) => {
                    let _ = upstream.shutdown(Shutdown::Both);
                    return Err(error);
                }
            };
            match message.first() {
                Some(b'Q' | b'P') => questions += 1,
                Some(b'B') => binds += 1,
                _ => {}
            }
            let due = plans.iter().find(|plan| match (&plan.when, message.first()) {
                (Moment::Question(number), Some(b'Q' | b'P')) => questions == *number,
                (Moment::Bind(number), Some(b'B')) => binds == *number,
                (Moment::Input(word), Some(b'Q')) => message.windows(word.len()).any(|part| part == word.as_bytes()),
                _ => false,
            });
            if let Some(plan) = due {
                mad.store(true, Ordering::SeqCst);
                let _ = upstream.shutdown(Shutdown::Both);
                let _ = answers.join();
                return self.strike(client, plan.how);
            }
            upstream.write_all(&message)?;
        }
    }

    fn strike(&self, mut client: TcpStream, how: Attack) -> io::Result<()> {
        self.blows.fetch_add(1, Ordering::SeqCst);
        let (first, again): (Vec<u8>, Option<Vec<u8>>) = match how {
            A::Silence => (Vec::new(), None),
            A::Close => return client.shutdown(Shutdown::Both),
            A::Garbage => ((0..65536u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect(), None),
            A::HalfMessage => (b"T\0\0\0\x64\0\x01a".to_vec(), None),
            A::ShortLength => (b"D\0\0\0\x03\0\0\0\0".to_vec(), None),
            A::NegativeLength => (b"D\xff\xff\xff\xf0\0\0\0\0".to_vec(), None),
            A::HugeLength => (b"D\x7f\xff\xff\xff\0\x01".to_vec(), Some(vec![b'x'; 65536])),
            A::UnknownType => (message(b'?', b"what"), None),
            A::EndlessRows => {
                let first = [message(b'2', b""), columns(1, 25)].concat();
                (first, Some(message(b'D', &[b"\0\x01\0\0\x0f\xa0", &[b'x'; 4000][..]].concat()).repeat(16)))
            }
            A::EndlessEmptyRows => (message(b'2', b""), Some(message(b'D', b"\0\0").repeat(8192))),
            A::EndlessColumns => (Vec::new(), Some(columns(1000, 25))),
            A::EndlessTags => (message(b'2', b""), Some(message(b'C', b"DO\0").repeat(8192))),
            A::EndlessErrors => (Vec::new(), Some(message(b'E', b"SERROR\0VERROR\0C22012\0Mno\0\0").repeat(2048))),
            A::EndlessNotices => {
                let text = [b"SNOTICE\0VNOTICE\0C00000\0M", &[b'n'; 4000][..], b"\0\0"].concat();
                (Vec::new(), Some(message(b'N', &text).repeat(16)))
            }
            A::EndlessNotifications => (Vec::new(), Some(message(b'A', b"\0\0\0\x01mill\0\0").repeat(4096))),
            A::EndlessParameters => return self.flood_parameters(client),
            A::ExtraReady => ([greeting(), message(b'Z', b"I"), message(b'Z', b"I")].concat(), None),
            A::UnknownColumnTypes => return self.puzzle(client),
            A::WrongRow => {
                let row = [message(b'D', b"\0\0"), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat();
                client.write_all(&[message(b'2', b""), row].concat())?;
                // Whoever believes it asks on.
                read_message(&mut client)?;
                return client.shutdown(Shutdown::Both);
            }
            A::AbsurdScram => {
                client.write_all(&message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"))?;
                let hello = read_message(&mut client)?;
                let nonce =
                    hello.windows(2).position(|two| two == b"r=").map(|at| &hello[at + 2..]).unwrap_or_default();
                let word = [b"\0\0\0\x0br=", nonce, b"xyz,s=c2FsdA==,i=1000000000"].concat();
                (message(b'R', &word), None)
            }
            A::ScramOutOfTurn => (message(b'R', b"\0\0\0\x0cv=AAAA"), None),
            A::UnknownMethod => (message(b'R', b"\0\0\0\x63"), None),
            A::PasswordAgain => (Vec::new(), Some(message(b'R', b"\0\0\0\x03").repeat(512))),
        };
        client.write_all(&first)?;
        if let Some(again) = again {
            loop {
                client.write_all(&again)?;
                // Fast enough to fill any memory, slow enough to leave the others some of the machine.
                thread::sleep(Duration::from_millis(1));
            }
        }
        // What the client still says is heard, and it may hang up when it likes.
        io::copy(&mut client, &mut io::sink()).map(|_| ())
    }

    fn flood_parameters(&self, mut client: TcpStream) -> io::Result<()> {
        client.write_all(&message(b'R', &[0; 4]))?;
        for number in 0u64.. {
            let bytes: Vec<u8> = (0..512)
                .flat_map(|i| message(b'S', format!("mill.{number}_{i}\0{}\0", "v".repeat(100)).as_bytes()))
                .collect();
            client.write_all(&bytes)?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whatever is prepared has a column of a type that has to be asked for, by a statement that has one, too.
    fn puzzle(&self, mut client: TcpStream) -> io::Result<()> {
        let answer = [message(b'1', b""), message(b't', b"\0\0"), columns(1, 999_999), message(b'Z', b"I")].concat();
        client.write_all(&answer)?;
        loop {
            if read_message(&mut client)?.first() == Some(&b'P') {
                client.write_all(&answer)?;
            }
        }
    }
}

fn read_startup(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let count = (u32::from_be_bytes(length) as usize).clamp(8, 65536);
    let mut bytes = vec![0; count];
    bytes[..4].copy_from_slice(&length);
    client.read_exact(&mut bytes[4..])?;
    Ok(bytes)
}

fn read_message(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 5];
    client.read_exact(&mut head)?;
    let count = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut bytes = head.to_vec();
    bytes.resize(count + 1, 0);
    client.read_exact(&mut bytes[5..])?;
    Ok(bytes)
}

fn application_name(startup: &[u8]) -> Option<&[u8]> {
    let mut parts = startup.get(8..)?.split(|&byte| byte == 0);
    parts.find(|part| *part == b"application_name")?;
    parts.next()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn columns(count: u16, oid: u32) -> Vec<u8> {
    let mut body = count.to_be_bytes().to_vec();
    for _ in 0..count {
        body.extend(b"a\0\0\0\0\0\0\0");
        body.extend(oid.to_be_bytes());
        body.extend(b"\0\x04\xff\xff\xff\xff\0\0");
    }
    message(b'T', &body)
}

/// A login is granted.
fn greeting() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015.1\0"),
        message(b'S', b"in_hot_standby\0off\0"),
        message(b'K', &[0, 0, 0, 42, 0, 0, 0, 7]),
        message(b'Z', b"I"),
    ]
    .concat()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
