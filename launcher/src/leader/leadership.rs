//! Leading and standing by: carries out what `leader_state` decides, and keeps what must be known of the session that
//! leads, ours or another launcher's.
//!
//! The lock is asked for on the launcher's own session, which from then on must not be silent: the server ends it after
//! a while, so that a host that froze or was cut off does not lead for ever. Each look at the locks (`hearing`) proves
//! that we still lead and prolongs the lease in the region, which all our processes go by.

use crate::event_loop::{Answer, Launcher};
use crate::leader::host::{Host, LeaderSeen, now_ms};
use crate::leader::leader_state::{LeaderEffect, LeaderEvent, LeaderState, Refused};
use crate::limits::{LEASE_DOUBT, WATCH_TIMEOUT};
use crate::server::lock_watch::Locks;
use shared::conninfo::{Preferred, SessionAttributes, Target};
use shared::db::link::Link;
use shared::db::lock_key;
use shared::db::server::{draw_proof, halves, name_server};
use shared::db::statement::{self, bare};
use shared::db::trouble::Trouble;
use shared::limits::SILENCE_MS;
use shared::region::{HostMoment, LeaderServer, server_key};
use std::rc::Rc;
use std::time::Instant;
use tokio_postgres::Client;

/// A session by which a launcher leads, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderSession {
    pub backend: i32,
    /// As the server writes it: pids are used again.
    pub began: String,
}

/// What came of asking for the lock.
#[derive(Clone, Debug)]
pub enum Asked {
    Held {
        seat: LeaderSession,
        asked_at: HostMoment,
        server: LeaderServer,
    },
    /// The server is a stand-by.
    Nobodys,
    Anothers(Option<LeaderSeen>),
    /// Our own former session has it; it has been told to end.
    Formers(i32),
}

#[derive(Debug)]
pub struct Leadership {
    pub host: Host,
    /// The session by which we lead, or led last.
    seat: Option<LeaderSession>,
    since_ms: u64,
    /// Who leads while we stand by.
    pub seen: Option<LeaderSeen>,
    /// The server on which we lead, or led last, and its place among the hosts.
    pub server: Option<String>,
    place: Option<usize>,
}

/// Statements of ours say whose they are.
#[derive(Clone, Debug)]
pub struct Signature {
    host: Host,
    since_ms: u64,
}

impl Signature {
    pub fn sign(&self, text: &str) -> String {
        self.host.signed(&bare(text), self.since_ms)
    }
}

impl Leadership {
    pub fn new() -> Leadership {
        Leadership { host: Host::own(), seat: None, since_ms: 0, seen: None, server: None, place: None }
    }

    /// What is dialled: first the server on which we led last, because a former primary may be back on a host before it. But
    /// only where a stand-by is not taken for it.
    fn target(&self, target: &Target) -> Target {
        let writes = matches!(target.attributes, SessionAttributes::ReadWrite | SessionAttributes::Primary);
        let prefer = self.place.filter(|_| writes).map(|place| Preferred { place, address: None });
        Target { prefer, ..target.clone() }
    }

    /// Ourselves, as the leader.
    pub fn own(&self) -> LeaderSeen {
        LeaderSeen {
            backend: self.seat.as_ref().map_or(0, |seat| seat.backend),
            began: self.seat.as_ref().map(|seat| seat.began.clone()),
            address: None,
            host: Some(self.host.name.clone()),
            pid: i32::try_from(self.host.pid).ok(),
            since_ms: i64::try_from(self.since_ms).ok(),
        }
    }

    /// What was known of the same session is not forgotten because it just says something else.
    fn see(&mut self, seen: Option<LeaderSeen>) {
        let same = |old: &LeaderSeen, new: &LeaderSeen| (old.backend, &old.began) == (new.backend, &new.began);
        self.seen = match (self.seen.take(), seen) {
            (Some(old), Some(new)) if new.host.is_none() && same(&old, &new) => Some(old),
            (_, new) => new,
        };
    }
}

impl Launcher {
    pub(crate) fn leading(&self) -> bool {
        self.leader.state == LeaderState::Leading
    }

    pub(crate) fn signature(&self) -> Signature {
        Signature { host: self.leadership.host.clone(), since_ms: self.leadership.since_ms }
    }

    /// A look at the locks, asked for at that moment: is ours among them? If not, the session is not what we think.
    pub(crate) fn prove(&mut self, locks: &Locks, asked_at: HostMoment, now: Instant) -> bool {
        let ours = self.leadership.seat.as_ref().is_some_and(|seat| locks.leaders.contains(&seat.backend));
        if ours {
            let lapsed = !self.parts.region.leads();
            self.parts.region.prolong_lease(asked_at);
            if lapsed && self.parts.region.leads() {
                // A slow answer: those that have stood still meanwhile may go on.
                self.rows.ring_all();
            }
        } else {
            self.session_lost(Trouble::passing("the leader lock is gone from our session"), now);
        }
        ours
    }

    pub(crate) fn session_lost(&mut self, trouble: Trouble, now: Instant) {
        self.hang_up();
        self.leader_event(LeaderEvent::Lost { trouble, now });
    }

    pub(crate) fn lock_answered(&mut self, asked: Asked, now: Instant) {
        let name = &self.parts.name;
        let refused = match asked {
            Asked::Held { seat, asked_at, server } => {
                shared::info!("launcher leads", server = server.name, backend = seat.backend);
                self.parts.region.set_term(seat.backend);
                self.parts.region.set_leader_server(&server);
                self.leadership.place = Some(server.place);
                self.leadership.server = Some(server.name);
                self.parts.region.prolong_lease(asked_at);
                self.leadership.seat = Some(seat);
                self.leadership.since_ms = now_ms();
                self.leadership.seen = None;
                return self.leader_event(LeaderEvent::Held);
            }
            Asked::Nobodys => {
                self.leadership.seen = None;
                (Refused::Others, "the server is a stand-by; waiting for its promotion".to_owned())
            }
            Asked::Anothers(seen) => {
                self.leadership.see(seen);
                let whom = self.leadership.seen.as_ref().map(|seen| format!(" {}", seen.whereabouts()));
                let whom = whom.unwrap_or_default();
                (Refused::Others, format!("another launcher named \"{name}\" is active{whom}; standing by"))
            }
            Asked::Formers(backend) => {
                let why = format!(
                    "the session by which this launcher led (backend {backend}) still holds the leader lock; ending it"
                );
                (Refused::Formers, why)
            }
        };
        let (by, why) = refused;
        self.leader_event(LeaderEvent::Refused { by, why, now });
    }

    pub(crate) fn leader_event(&mut self, event: LeaderEvent) {
        for effect in self.leader.handle(event) {
            match effect {
                LeaderEffect::Dial => {
                    let (region, target) = (Some(&self.parts.region), self.leadership.target(&self.parts.target));
                    self.link = Some(Link::dial(&target, "pg_conf", region, !self.proven));
                }
                LeaderEffect::AskLock => {
                    let (name, seat) = (self.parts.name.clone(), self.leadership.seat.clone());
                    let signature = Signature { since_ms: now_ms(), ..self.signature() };
                    let hosts = server_key(&self.parts.target);
                    if let Some(link) = &mut self.link
                        && let Some((preferred, place)) = link.place()
                    {
                        let at = LeaderServer { hosts, place: preferred.place, proof: draw_proof(), name: place };
                        link.ask("asking for the leader lock", WATCH_TIMEOUT, |client| {
                            ask_lock(client, name, seat, signature, at)
                        });
                    }
                }
                LeaderEffect::Say(trouble) => {
                    let reason = trouble.text.clone();
                    if self.said.begin(trouble) {
                        shared::warning!("launcher waits", reason = reason);
                    }
                }
                LeaderEffect::Lead => self.lead(),
                LeaderEffect::Doubt => self.parts.region.shorten_lease(LEASE_DOUBT),
                LeaderEffect::LetGo => {
                    self.parts.region.end_lease();
                    let told = self.rows.suspend(false, Instant::now());
                    if told > 0 {
                        shared::warning!("the leader lock is not to be had back; schedulers end", schedulers = told);
                    }
                }
                LeaderEffect::Resign => {
                    self.parts.region.end_lease();
                    let told = self.rows.suspend(true, Instant::now());
                    if told > 0 {
                        shared::warning!("this launcher does not lead any more; schedulers end", schedulers = told);
                    }
                }
            }
        }
    }

    fn lead(&mut self) {
        self.next_making = Instant::now();
        self.begin_hearing();
        if self.said.end() {
            shared::info!("launcher works again");
        }
        // Those that are left in place may go on.
        self.rows.ring_all();
    }
}

async fn ask_lock(
    client: Rc<Client>,
    name: String,
    former: Option<LeaderSession>,
    signature: Signature,
    at: LeaderServer,
) -> Result<Answer, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let server = name_server(&client, at.name.clone()).await?;
    let (asked_at, silence) = (HostMoment::now(), SILENCE_MS.to_string());
    let (high, low) = halves(at.proof);
    let hold = signature.sign(statement::HOLD_LEADER);
    let row = client.query_one(&hold, &[&lock_key::LEADER, &name, &silence, &high, &low]).await.map_err(trouble)?;
    if row.get("standby") {
        return Ok(Answer::Lock(Asked::Nobodys));
    }
    if row.get("held") {
        let began: Option<String> = row.get("began");
        let seat = LeaderSession { backend: row.get("backend"), began: began.unwrap_or_default() };
        let server = LeaderServer { name: server.to_string(), ..at };
        return Ok(Answer::Lock(Asked::Held { seat, asked_at, server }));
    }
    let look = signature.sign(statement::LOOK_LEADER);
    let seen = client.query_opt(&look, &[&lock_key::LEADER, &name]).await.map_err(trouble)?;
    let seen = seen.map(|row| LeaderSeen {
        backend: row.get("backend"),
        began: row.get("began"),
        address: row.get("address"),
        host: row.get("host"),
        pid: row.get("process"),
        since_ms: row.get("since_ms"),
    });
    if let (Some(LeaderSession { backend, began }), Some(seen)) = (former, &seen)
        && seen.backend == backend
        // Another login may not see when it began, and may not end it either; it goes by itself.
        && seen.began.as_ref().is_none_or(|seen| *seen == began)
    {
        let end = signature.sign(statement::END_FORMER);
        client.query_opt(&end, &[&backend, &began]).await.map_err(trouble)?;
        return Ok(Answer::Lock(Asked::Formers(backend)));
    }
    Ok(Answer::Lock(Asked::Anothers(seen)))
}
