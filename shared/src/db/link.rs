//! One connection of a loop, and the questions in flight on it.
//!
//! tokio-postgres is driven by hand: no runtime, no thread, so its owner may fork. The owner polls `interest`, calls
//! `turn` when the descriptor or a deadline says so, and gets events back: the link is up, an answer came, the link
//! is lost. Questions are futures made from the client; each has a deadline, after which the whole link is dropped,
//! because a server that does not answer one question will not answer the next. Nobody forks inside `turn`.

use super::address::Resolving;
use super::socket::{Socket, Wire};
use super::trouble::Trouble;
use crate::conninfo::{Place, Target};
use nix::poll::PollFlags;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

/// Settings of every session of launcher and scheduler: what a role's or a database's own settings may say must not
/// change what our statements mean.
const PINNED: &str = "-c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off \
     -c default_transaction_deferrable=off -c statement_timeout=0 -c lock_timeout=0 \
     -c idle_in_transaction_session_timeout=0 -c synchronous_commit=on -c row_security=off \
     -c client_connection_check_interval=300 -c plan_cache_mode=force_generic_plan -c search_path=pg_catalog,pg_temp";

/// What to do about a server that is not to be reached, and about a name without an address.
const UNREACHABLE: &str = "; start the server, or set the right host and port in the config's connect";
const UNKNOWN: &str = "; set the right host in the config's connect, or mend the name service";

/// What a link reports to its owner.
#[derive(Debug)]
pub enum LinkEvent<A> {
    Up,
    Answered(A),
    /// A NOTIFY on a channel that this session listens to.
    Notified,
    /// Connecting failed, the server closed the link, or a deadline passed. Questions in flight are gone.
    Lost(Trouble),
}

type Dialled = Result<(Client, Connection<Socket, NoTlsStream>), tokio_postgres::Error>;
type Question<A> = Pin<Box<dyn Future<Output = Result<A, Trouble>>>>;

enum Stage {
    Resolving(Resolving),
    Dialling {
        dial: Pin<Box<dyn Future<Output = Dialled>>>,
        wire: Rc<Wire>,
        more: VecDeque<SocketAddr>,
    },
    Up {
        client: Rc<Client>,
        connection: Box<Connection<Socket, NoTlsStream>>,
        wire: Rc<Wire>,
    },
    /// Failed before it began; the next `turn` reports it.
    Failed(Trouble),
    Down,
}

struct Asked<A> {
    what: &'static str,
    deadline: Instant,
    question: Question<A>,
}

pub struct Link<A> {
    stage: Stage,
    asked: Vec<Asked<A>>,
    dial_deadline: Instant,
    target: Target,
    application_name: String,
    woken: Arc<Woken>,
    waker: Waker,
}

impl<A> std::fmt::Debug for Link<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("target", &self.target).finish_non_exhaustive()
    }
}

impl<A> Link<A> {
    /// Begins to connect. Trouble comes back as `Lost` from the first `turn`, never from here.
    pub fn dial(target: &Target, application_name: &str, now: Instant) -> Link<A> {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let mut link = Link {
            stage: Stage::Down,
            asked: Vec::new(),
            dial_deadline: now + Duration::from_millis(target.connect_timeout_ms),
            target: target.clone(),
            application_name: application_name.to_owned(),
            waker: Waker::from(woken.clone()),
            woken,
        };
        link.stage = match &link.target.place {
            Place::Unix { .. } => link.dial_one(None, VecDeque::new()),
            Place::Tcp { address: Some(address), port, .. } => {
                link.dial_one(Some((*address, *port).into()), VecDeque::new())
            }
            Place::Tcp { host, port, address: None } => match Resolving::start(host, *port) {
                Ok(resolving) => Stage::Resolving(resolving),
                Err(error) => Stage::Failed(Trouble::passing(format!("cannot resolve \"{host}\": {error}"))),
            },
        };
        link
    }

    pub fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up { .. })
    }

    /// Puts a question. Ignored when the link is not up: its owner hears `Lost` and starts anew anyway.
    pub fn ask<F, Q>(&mut self, what: &'static str, patience: Duration, question: Q)
    where
        Q: FnOnce(Rc<Client>) -> F,
        F: Future<Output = Result<A, Trouble>> + 'static,
    {
        if let Stage::Up { client, .. } = &self.stage {
            let question = Box::pin(question(client.clone()));
            self.asked.push(Asked { what, deadline: Instant::now() + patience, question });
            self.woken.0.store(true, SeqCst);
        }
    }

    /// What to poll for.
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.stage {
            Stage::Resolving(resolving) => Some((resolving.as_fd(), PollFlags::POLLIN)),
            Stage::Dialling { wire, .. } | Stage::Up { wire, .. } => {
                let write = if wire.wants_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
                Some((wire.as_fd(), PollFlags::POLLIN | write))
            }
            Stage::Failed(_) | Stage::Down => None,
        }
    }

    /// When `turn` must be called even if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        if self.woken.0.load(SeqCst) {
            return Some(Instant::now());
        }
        match self.stage {
            Stage::Resolving(_) | Stage::Dialling { .. } => Some(self.dial_deadline),
            Stage::Up { .. } => self.asked.iter().map(|asked| asked.deadline).min(),
            Stage::Failed(_) => Some(Instant::now()),
            Stage::Down => None,
        }
    }

    /// Drives everything that can go on without waiting.
    pub fn turn(&mut self, now: Instant) -> Vec<LinkEvent<A>> {
        let mut events = Vec::new();
        // Bounded: a connection that always finds something to do must not hold the loop.
        for _ in 0..64 {
            self.woken.0.store(false, SeqCst);
            if let Err(trouble) = self.advance(&mut events) {
                self.lose(trouble, &mut events);
                return events;
            }
            if !self.woken.0.load(SeqCst) {
                break;
            }
        }
        if let Some(late) = self.late(now) {
            self.lose(late, &mut events);
        }
        events
    }

    fn advance(&mut self, events: &mut Vec<LinkEvent<A>>) -> Result<(), Trouble> {
        let mut context = Context::from_waker(&self.waker);
        match &mut self.stage {
            Stage::Down => Ok(()),
            Stage::Failed(trouble) => Err(trouble.clone()),
            Stage::Resolving(resolving) => match resolving.turn() {
                None => Ok(()),
                Some(Err(error)) => Err(Trouble::passing(format!("{}: {error}{UNKNOWN}", self.whereabouts()))),
                Some(Ok(found)) => {
                    let mut addresses = VecDeque::from(found);
                    let first = addresses.pop_front();
                    self.stage = self.dial_one(first, addresses);
                    self.woken.0.store(true, SeqCst);
                    Ok(())
                }
            },
            Stage::Dialling { dial, wire, more } => match dial.as_mut().poll(&mut context) {
                Poll::Pending => Ok(()),
                Poll::Ready(Ok((client, connection))) => {
                    let wire = wire.clone();
                    self.stage = Stage::Up { client: Rc::new(client), connection: Box::new(connection), wire };
                    events.push(LinkEvent::Up);
                    Ok(())
                }
                Poll::Ready(Err(error)) => {
                    let trouble = Trouble::of(&error);
                    match more.pop_front() {
                        // A refusal by a server is an answer; only an unreachable address sends us to the next one.
                        Some(next) if error.as_db_error().is_none() => {
                            let more = std::mem::take(more);
                            self.stage = self.dial_one(Some(next), more);
                            self.woken.0.store(true, SeqCst);
                            Ok(())
                        }
                        _ => {
                            let advice = if is_unreachable(&error) { UNREACHABLE } else { "" };
                            Err(Trouble {
                                text: format!("{}: {}{advice}", self.whereabouts(), trouble.text),
                                ..trouble
                            })
                        }
                    }
                }
            },
            Stage::Up { connection, .. } => {
                loop {
                    match connection.poll_message(&mut context) {
                        Poll::Pending => break,
                        Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                            crate::debug!("notice", text = notice.message());
                        }
                        Poll::Ready(Some(Ok(AsyncMessage::Notification(_)))) => events.push(LinkEvent::Notified),
                        Poll::Ready(Some(Ok(_))) => {}
                        Poll::Ready(Some(Err(error))) => return Err(passing(Trouble::of(&error))),
                        Poll::Ready(None) => return Err(Trouble::passing("the server closed the connection")),
                    }
                }
                self.collect(events)
            }
        }
    }

    /// Polls the questions; an answer may come for any of them.
    fn collect(&mut self, events: &mut Vec<LinkEvent<A>>) -> Result<(), Trouble> {
        let mut context = Context::from_waker(&self.waker);
        let mut i = 0;
        while let Some(asked) = self.asked.get_mut(i) {
            match asked.question.as_mut().poll(&mut context) {
                Poll::Pending => i += 1,
                Poll::Ready(answer) => {
                    self.asked.remove(i);
                    events.push(LinkEvent::Answered(answer?));
                }
            }
        }
        Ok(())
    }

    fn late(&self, now: Instant) -> Option<Trouble> {
        match self.stage {
            Stage::Resolving(_) => (now >= self.dial_deadline).then(|| {
                Trouble::passing(format!("{}: the name was not resolved in time{UNKNOWN}", self.whereabouts()))
            }),
            Stage::Dialling { .. } => (now >= self.dial_deadline).then(|| {
                Trouble::passing(format!("{}: the server did not answer in time{UNREACHABLE}", self.whereabouts()))
            }),
            Stage::Up { .. } => self
                .asked
                .iter()
                .find(|asked| now >= asked.deadline)
                .map(|asked| Trouble::passing(format!("the server did not answer in time ({})", asked.what))),
            Stage::Failed(_) | Stage::Down => None,
        }
    }

    fn lose(&mut self, trouble: Trouble, events: &mut Vec<LinkEvent<A>>) {
        self.asked.clear();
        self.stage = Stage::Down;
        events.push(LinkEvent::Lost(trouble));
    }

    /// Begins with `address`; one that fails at once (no route, no socket file) gives way to the next.
    fn dial_one(&self, mut address: Option<SocketAddr>, mut more: VecDeque<SocketAddr>) -> Stage {
        loop {
            match Socket::dial(&self.target, address) {
                Ok(socket) => {
                    let wire = socket.wire();
                    let config = self.login();
                    let dial = Box::pin(async move { config.connect_raw(socket, NoTls).await });
                    return Stage::Dialling { dial, wire, more };
                }
                Err(error) => match more.pop_front() {
                    Some(next) => address = Some(next),
                    None => {
                        let text = format!("{}: {error}{UNREACHABLE}", self.whereabouts());
                        return Stage::Failed(Trouble::passing(text));
                    }
                },
            }
        }
    }

    fn login(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        let options = match &self.target.options {
            Some(theirs) => format!("{theirs} {PINNED}"),
            None => PINNED.to_owned(),
        };
        config
            .user(&self.target.user)
            .dbname(&self.target.database)
            .application_name(&self.application_name)
            .options(&options)
            .ssl_mode(tokio_postgres::config::SslMode::Disable);
        if let Some(password) = &self.target.password {
            config.password(password);
        }
        config
    }

    fn whereabouts(&self) -> String {
        format!("cannot connect to {} as {}", self.target.place, self.target.user)
    }
}

/// Neither a server's refusal nor a mistake in the login: the way itself is broken.
fn is_unreachable(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>())
}

/// A link that was cut is passing trouble, whatever SQLSTATE the server gave as its last word.
fn passing(trouble: Trouble) -> Trouble {
    Trouble { kind: super::trouble::TroubleKind::Passing, ..trouble }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}
