//! One connection of a loop, and the questions in flight on it.
//!
//! tokio-postgres is driven by hand: no runtime, no thread, so its owner may fork. The owner polls `interest`, calls
//! `turn` when the descriptor or a deadline says so, and gets events back: the link is up, an answer came, the link
//! is lost. Questions are futures made from the client; each has a deadline, after which the whole link is dropped,
//! because a server that does not answer one question will not answer the next. Nobody forks inside `turn`.
//!
//! Before it is up a link waits for a seat in the budget of connections and for a permit to connect, walks its route
//! (`route`), sends our settings if they could not go with the login, and finds out, if asked, whether the session is
//! really its own: a pooler that lends a server's session for one transaction at a time cannot hold our locks, and
//! it shows itself by giving a second connection the same backend.

mod coming_up;
mod session;

use super::address::Resolving;
use super::dial::{Dialling, Failed};
use super::route::{Failure, Route};
use super::trouble::Trouble;
use crate::conninfo::{Preferred, Target};
use crate::limits::{BUDGET_PAUSE_FIRST, BUDGET_PAUSE_LAST};
use crate::process::panic_guard;
use crate::region::{Permit, Region, Seat};
use nix::poll::PollFlags;
use session::Session;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// What to do about a server that is not to be reached, and about a name without an address.
const UNREACHABLE: &str = "; start the server, or set the right host and port in the config's connect";
const UNKNOWN: &str = "; set the right host in the config's connect, or repair the name service";

/// What a link reports to its owner.
#[derive(Debug)]
pub enum LinkEvent<A> {
    Up,
    Answered(A),
    /// A NOTIFY on a queue's channel that this session listens to.
    Notified,
    /// One on the catalog's: flows, timers, edges, back-fills or commands have changed.
    CatalogRang,
    /// Connecting failed, the server closed the link, or a deadline passed. Questions in flight are gone.
    Lost(Trouble),
}

type Question<A> = Pin<Box<dyn Future<Output = Result<A, Trouble>>>>;

enum Stage {
    /// No seat in the budget, or too many connects at once.
    Queueing {
        since: Instant,
    },
    Resolving(Resolving),
    Dialling(Box<Dialling>),
    /// Logged in; our settings are sent and the backend asked for.
    Greeting {
        session: Session,
        greeting: Question<i32>,
    },
    /// Another connection finds out whether this one has a backend of its own.
    Probing {
        session: Session,
        probe: Box<Link<()>>,
    },
    Up(Session),
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Known to have a backend of its own, or nobody asks.
    Trusted,
    /// To be tried.
    Doubtful,
    /// The one that tries: it greets, and that is all.
    Probe,
}

struct Asked<A> {
    what: &'static str,
    deadline: Instant,
    question: Question<A>,
}

pub struct Link<A> {
    stage: Stage,
    asked: Vec<Asked<A>>,
    /// Of the present resolution, attempt or greeting.
    deadline: Instant,
    route: Route,
    application_name: String,
    region: Option<Region>,
    seat: Option<Seat>,
    permit: Option<Permit>,
    role: Role,
    /// A number that another session must hold on the same server.
    proof: Option<i64>,
    backend: Option<i32>,
    woken: Arc<Woken>,
    waker: Waker,
}

impl<A> std::fmt::Debug for Link<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("target", self.route.target()).finish_non_exhaustive()
    }
}

impl<A> Link<A> {
    /// Begins to connect. Trouble comes back as `Lost` from the first `turn`, never from here. With a region the link
    /// keeps to its budget; a doubtful one is tried for a backend of its own.
    pub fn dial(target: &Target, application_name: &str, region: Option<&Region>, doubtful: bool) -> Link<A> {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let now = Instant::now();
        Link {
            stage: Stage::Queueing { since: now },
            asked: Vec::new(),
            deadline: now,
            route: Route::new(target),
            application_name: application_name.to_owned(),
            region: region.cloned(),
            seat: None,
            permit: None,
            role: if doubtful { Role::Doubtful } else { Role::Trusted },
            proof: None,
            backend: None,
            waker: Waker::from(woken.clone()),
            woken,
        }
    }

    /// The link comes up only on the server where another session holds this number.
    #[must_use]
    pub fn beside(mut self, proof: Option<i64>) -> Link<A> {
        self.proof = proof;
        self
    }

    /// Which of the target's places the session is at, with the address of its name, and how it is called.
    pub fn place(&self) -> Option<(Preferred, String)> {
        let attempt = self.route.attempt()?;
        let place = self.target().index_of(&attempt.place);
        let address = attempt.address.map(|address| address.ip());
        Some((Preferred { place, address }, attempt.place.to_string()))
    }

    /// The session is known to be our own.
    pub fn is_proven(&self) -> bool {
        self.role == Role::Trusted
    }

    /// The target, with what was learnt about it.
    pub fn target(&self) -> &Target {
        self.route.target()
    }

    pub fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Puts a question. Ignored when the link is not up: its owner hears `Lost` and starts anew anyway.
    pub fn ask<F, Q>(&mut self, what: &'static str, patience: Duration, question: Q)
    where
        Q: FnOnce(Rc<Client>) -> F,
        F: Future<Output = Result<A, Trouble>> + 'static,
    {
        if let Stage::Up(session) = &self.stage {
            let question = Box::pin(question(session.client.clone()));
            self.asked.push(Asked { what, deadline: Instant::now() + patience, question });
            self.woken.0.store(true, SeqCst);
        }
    }

    /// What to poll for.
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let wire = match &self.stage {
            Stage::Resolving(resolving) => return Some((resolving.as_fd(), PollFlags::POLLIN)),
            Stage::Probing { probe, .. } => return probe.interest(),
            Stage::Dialling(dialling) => &dialling.wire,
            Stage::Greeting { session, .. } | Stage::Up(session) => &session.wire,
            Stage::Queueing { .. } | Stage::Down => return None,
        };
        let write = if wire.wants_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
        Some((wire.as_fd(), PollFlags::POLLIN | write))
    }

    /// When `turn` must be called even if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        if self.woken.0.load(SeqCst) {
            return Some(Instant::now());
        }
        match &self.stage {
            Stage::Queueing { since } => {
                let pause = since.elapsed() / 4;
                Some(Instant::now() + pause.clamp(BUDGET_PAUSE_FIRST, BUDGET_PAUSE_LAST))
            }
            Stage::Resolving(_) | Stage::Dialling(_) | Stage::Greeting { .. } => Some(self.deadline),
            Stage::Probing { probe, .. } => probe.deadline().into_iter().chain([self.deadline]).min(),
            Stage::Up(_) => self.asked.iter().map(|asked| asked.deadline).min(),
            Stage::Down => None,
        }
    }

    /// Drives everything that can go on without waiting.
    pub fn turn(&mut self, now: Instant) -> Vec<LinkEvent<A>> {
        let mut events = Vec::new();
        self.allow();
        // Bounded: a connection that always finds something to do must not hold the loop.
        for _ in 0..64 {
            self.woken.0.store(false, SeqCst);
            let advanced = panic_guard::catch(|| self.advance(now, &mut events));
            let advanced = advanced
                .unwrap_or_else(|said| Err(Trouble::passing(format!("the server's answer cannot be read: {said}"))));
            if let Err(trouble) = advanced {
                self.lose(trouble, &mut events);
                return events;
            }
            if !self.woken.0.load(SeqCst) {
                break;
            }
        }
        if let Err(late) = self.late(now, &mut events) {
            self.lose(late, &mut events);
        }
        events
    }

    /// A turn may read so much and no more.
    fn allow(&self) {
        match &self.stage {
            Stage::Dialling(dialling) => dialling.wire.allow(),
            Stage::Greeting { session, .. } | Stage::Probing { session, .. } | Stage::Up(session) => {
                session.wire.allow()
            }
            Stage::Queueing { .. } | Stage::Resolving(_) | Stage::Down => {}
        }
    }

    fn advance(&mut self, now: Instant, events: &mut Vec<LinkEvent<A>>) -> Result<(), Trouble> {
        let mut context = Context::from_waker(&self.waker);
        match &mut self.stage {
            Stage::Down => Ok(()),
            Stage::Queueing { since } => {
                let since = *since;
                self.queue(since, now)
            }
            Stage::Resolving(resolving) => match resolving.turn() {
                None => Ok(()),
                Some(Err(error)) => {
                    self.go_on(now, Failure::Unreachable, Trouble::passing(format!("{error}{UNKNOWN}")))
                }
                Some(Ok(found)) => {
                    let leg = self.route.resolved(found, nowhere());
                    self.follow(now, leg)
                }
            },
            Stage::Dialling(dialling) => match dialling.turn(&mut context) {
                Poll::Pending => Ok(()),
                Poll::Ready(Err(Failed { failure, trouble })) => {
                    self.go_on(now, failure.clone(), advised(&failure, trouble))
                }
                Poll::Ready(Ok((client, conversation))) => {
                    let wire = dialling.wire.clone();
                    let session = Session { client: Rc::new(client), conversation: Box::new(conversation), wire };
                    self.greet(now, session, events)
                }
            },
            Stage::Greeting { session, greeting } => {
                session.drive(&mut context)?;
                match greeting.as_mut().poll(&mut context) {
                    Poll::Pending => Ok(()),
                    Poll::Ready(Err(trouble)) => Err(trouble),
                    Poll::Ready(Ok(backend)) => {
                        self.backend = Some(backend);
                        self.probe(events);
                        Ok(())
                    }
                }
            }
            Stage::Probing { probe, .. } => {
                let said = probe.turn(now);
                self.probed(&said, events)
            }
            Stage::Up(session) => {
                // Many of them say no more than one.
                let heard = session.drive(&mut context)?;
                if heard.queue {
                    events.push(LinkEvent::Notified);
                }
                if heard.catalog {
                    events.push(LinkEvent::CatalogRang);
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

    /// What is to be done about a deadline that has passed.
    fn late(&mut self, now: Instant, events: &mut Vec<LinkEvent<A>>) -> Result<(), Trouble> {
        let passed = now >= self.deadline;
        match &self.stage {
            Stage::Resolving(_) if passed => self.go_on(
                now,
                Failure::Unreachable,
                Trouble::passing(format!("the name was not resolved in time{UNKNOWN}")),
            ),
            Stage::Dialling(_) if passed => self.go_on(
                now,
                Failure::Unreachable,
                Trouble::passing(format!("the server did not answer in time{UNREACHABLE}")),
            ),
            Stage::Greeting { .. } if passed => Err(Trouble::passing("the server did not answer in time (greeting)")),
            Stage::Probing { .. } if passed => {
                self.end_probe(events);
                Ok(())
            }
            Stage::Up(_) => match self.asked.iter().find(|asked| now >= asked.deadline) {
                Some(late) => Err(Trouble::passing(format!("the server did not answer in time ({})", late.what))),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn lose(&mut self, trouble: Trouble, events: &mut Vec<LinkEvent<A>>) {
        self.asked.clear();
        self.stage = Stage::Down;
        (self.seat, self.permit) = (None, None);
        events.push(LinkEvent::Lost(trouble));
    }

    /// A failed attempt's trouble, with where it was attempted.
    fn located(&self, trouble: Trouble) -> Trouble {
        let target = self.route.target();
        let place = match self.route.attempt() {
            Some(attempt) => attempt.place.to_string(),
            None => target.whereabouts(),
        };
        Trouble { text: format!("cannot connect to {place} as {}: {}", target.user, trouble.text), ..trouble }
    }
}

/// With what to do where the way itself is broken.
fn advised(failure: &Failure, trouble: Trouble) -> Trouble {
    match failure {
        Failure::Unreachable => Trouble { text: format!("{}{UNREACHABLE}", trouble.text), ..trouble },
        Failure::Tls | Failure::Refused { .. } | Failure::SettingsRefused | Failure::Unsuitable | Failure::Broken => {
            trouble
        }
    }
}

fn nowhere() -> Trouble {
    Trouble::standing("the conninfo names no server")
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}
