//! Leading and standing by: carries out what `leader_state` decides, and keeps what must be known of the leading
//! session, ours or another launcher's.
//!
//! The launcher asks for the lock on its own session. From then on that session must not be silent: the server ends it
//! after a while, so that a host that froze or was cut off does not lead for ever. Each read of pg_locks
//! (`server_watch`) proves that this launcher still leads, and prolongs the lease in the region, which all its
//! processes go by.

use crate::base::LauncherBase;
use crate::host::{Host, LeaderSeen, Signature, now_ms};
use crate::leader::leader_state::{Leader, LeaderEffect, LeaderEvent, LeaderState, RefusedBy};
use crate::limits::{LEASE_DOUBT, WATCH_TIMEOUT};
use crate::loop_command::{LoopCommand, query_within};
use shared::conninfo::{Preferred, SessionAttributes, Target};
use shared::db::db_error::DbError;
use shared::db::lock_key;
use shared::db::reported_once::ReportedOnce;
use shared::db::server::{draw_proof, halves, name_server};
use shared::db::statement;
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

/// What came of the request for the lock.
#[derive(Clone, Debug)]
pub enum LockAnswer {
    Held {
        session: LeaderSession,
        asked_at: HostMoment,
        server: LeaderServer,
    },
    /// The server is a stand-by.
    Nobodys,
    Anothers(Option<LeaderSeen>),
    /// Our own former session has it; it has been told to end.
    Formers(i32),
}

/// What a read of pg_locks proves about the leader lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadProof {
    /// The lock is ours. `resumed`: the lease had run out, and our processes may go on now.
    Held { resumed: bool },
    /// It is not: the session is not what we think.
    Missing,
}

/// The place of the server that the launcher's session is on, if it has one.
pub type PlaceOfSession<'a> = &'a dyn Fn() -> Option<(Preferred, String)>;

#[derive(Debug)]
pub struct Leadership {
    leader: Leader,
    pub host: Host,
    /// The session by which we lead, or led last.
    session: Option<LeaderSession>,
    since_ms: u64,
    /// Who leads while we stand by.
    pub seen: Option<LeaderSeen>,
    /// The place among the hosts of the server on which we lead, or led last.
    place: Option<usize>,
    /// Why this launcher does not lead.
    waits: ReportedOnce,
}

impl Leadership {
    pub fn new(now: Instant) -> Leadership {
        Leadership {
            leader: Leader::new(now),
            host: Host::own(),
            session: None,
            since_ms: 0,
            seen: None,
            place: None,
            waits: ReportedOnce::default(),
        }
    }

    pub fn leads(&self) -> bool {
        self.leader.state == LeaderState::Leading
    }

    /// Another launcher leads, and is seen.
    pub fn stands_by(&self) -> bool {
        let refused = matches!(self.leader.state, LeaderState::StandingBy { .. } | LeaderState::Locking { .. });
        refused && self.seen.is_some()
    }

    /// Why this launcher does not lead.
    pub fn why(&self) -> Option<&str> {
        self.waits.current()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.leader.deadline()
    }

    pub fn signature(&self) -> Signature {
        Signature { host: self.host.clone(), since_ms: self.since_ms }
    }

    /// Ourselves, as the leader.
    pub fn own(&self) -> LeaderSeen {
        LeaderSeen {
            backend: self.session.as_ref().map_or(0, |session| session.backend),
            began: self.session.as_ref().map(|session| session.began.clone()),
            address: None,
            host: Some(self.host.name.clone()),
            pid: i32::try_from(self.host.pid).ok(),
            since_ms: i64::try_from(self.since_ms).ok(),
        }
    }

    /// A read of pg_locks, asked for at that moment: are we among the leaders?
    pub fn prove(&self, leaders: &[i32], asked_at: HostMoment, base: &LauncherBase) -> LeadProof {
        if !self.session.as_ref().is_some_and(|session| leaders.contains(&session.backend)) {
            return LeadProof::Missing;
        }
        let lapsed = !base.region.leads();
        base.region.prolong_lease(asked_at);
        LeadProof::Held { resumed: lapsed && base.region.leads() }
    }

    /// This launcher leads now.
    pub fn begin(&mut self) {
        if self.waits.end() {
            shared::info!("launcher serves again");
        }
    }

    pub fn answered(
        &mut self,
        answer: LockAnswer,
        base: &LauncherBase,
        place: PlaceOfSession<'_>,
        now: Instant,
    ) -> Vec<LoopCommand<LockAnswer>> {
        let name = &base.name;
        let (by, why) = match answer {
            LockAnswer::Held { session, asked_at, server } => {
                shared::info!("launcher leads", server = server.name, backend = session.backend);
                base.region.set_term(session.backend);
                base.region.set_leader_server(&server);
                self.place = Some(server.place);
                base.region.prolong_lease(asked_at);
                self.session = Some(session);
                self.since_ms = now_ms();
                self.seen = None;
                return self.handle(LeaderEvent::Held, base, place);
            }
            LockAnswer::Nobodys => {
                self.seen = None;
                (RefusedBy::Others, "the server is a standby; waiting for its promotion".to_owned())
            }
            LockAnswer::Anothers(seen) => {
                self.see(seen);
                let whom = self.seen.as_ref().map(|seen| format!(" {}", seen.whereabouts())).unwrap_or_default();
                (RefusedBy::Others, format!("another launcher named \"{name}\" is active{whom}; standing by"))
            }
            LockAnswer::Formers(backend) => {
                let why = format!(
                    "the former session of this launcher (backend {backend}) still holds the leader lock; ending it"
                );
                (RefusedBy::Formers, why)
            }
        };
        self.handle(LeaderEvent::Refused { by, why, now }, base, place)
    }

    pub fn handle(
        &mut self,
        event: LeaderEvent,
        base: &LauncherBase,
        place: PlaceOfSession<'_>,
    ) -> Vec<LoopCommand<LockAnswer>> {
        let mut commands = Vec::new();
        for effect in self.leader.handle(event) {
            match effect {
                LeaderEffect::Dial => commands.push(LoopCommand::Open(Box::new(self.target(&base.target)))),
                LeaderEffect::AskLock => commands.extend(self.ask_lock(base, place)),
                LeaderEffect::Report(db_error) => {
                    let reason = db_error.text.clone();
                    if self.waits.begin(db_error) {
                        shared::warning!("launcher waits", reason = reason);
                    }
                }
                LeaderEffect::Lead => commands.push(LoopCommand::Lead),
                LeaderEffect::Doubt => base.region.shorten_lease(LEASE_DOUBT),
                LeaderEffect::LetGo => {
                    base.region.end_lease();
                    commands.push(LoopCommand::EndSchedulers { all: false });
                }
                LeaderEffect::Resign => {
                    base.region.end_lease();
                    commands.push(LoopCommand::EndSchedulers { all: true });
                }
            }
        }
        commands
    }

    /// The hosts that are tried: first the server on which we led last, because a former primary may be back on a host
    /// before it. But only where a stand-by is not taken for it.
    fn target(&self, target: &Target) -> Target {
        let writes = matches!(target.attributes, SessionAttributes::ReadWrite | SessionAttributes::Primary);
        let prefer = self.place.filter(|_| writes).map(|place| Preferred { place, address: None });
        Target { prefer, ..target.clone() }
    }

    fn ask_lock(&self, base: &LauncherBase, place: PlaceOfSession<'_>) -> Option<LoopCommand<LockAnswer>> {
        let (name, former, hosts) = (base.name.clone(), self.session.clone(), server_key(&base.target));
        let (preferred, place) = place()?;
        let at = LeaderServer { hosts, place: preferred.place, proof: draw_proof(), name: place };
        Some(query_within("requesting the leader lock", WATCH_TIMEOUT, |client, signature| {
            let signature = Signature { since_ms: now_ms(), ..signature };
            ask_lock(client, name, former, signature, at)
        }))
    }

    /// What was known of the same session is not forgotten because its present statement bears no signature.
    fn see(&mut self, seen: Option<LeaderSeen>) {
        let same = |old: &LeaderSeen, new: &LeaderSeen| (old.backend, &old.began) == (new.backend, &new.began);
        self.seen = match (self.seen.take(), seen) {
            (Some(old), Some(new)) if new.host.is_none() && same(&old, &new) => Some(old),
            (_, new) => new,
        };
    }
}

async fn ask_lock(
    client: Rc<Client>,
    name: String,
    former: Option<LeaderSession>,
    signature: Signature,
    at: LeaderServer,
) -> Result<LockAnswer, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let server = name_server(&client, at.name.clone()).await?;
    let (asked_at, silence) = (HostMoment::now(), SILENCE_MS.to_string());
    let (high, low) = halves(at.proof);
    let hold = signature.sign(statement::HOLD_LEADER);
    let row = client.query_one(&hold, &[&lock_key::LEADER, &name, &silence, &high, &low]).await.map_err(db_error)?;
    if row.get("standby") {
        return Ok(LockAnswer::Nobodys);
    }
    if row.get("held") {
        let began: Option<String> = row.get("began");
        let session = LeaderSession { backend: row.get("backend"), began: began.unwrap_or_default() };
        let server = LeaderServer { name: server.to_string(), ..at };
        return Ok(LockAnswer::Held { session, asked_at, server });
    }
    let text = signature.sign(statement::READ_LEADER);
    let seen = client.query_opt(&text, &[&lock_key::LEADER, &name]).await.map_err(db_error)?;
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
        client.query_opt(&end, &[&backend, &began]).await.map_err(db_error)?;
        return Ok(LockAnswer::Formers(backend));
    }
    Ok(LockAnswer::Anothers(seen))
}
