//! The server on which the queue is served, and what must be there too: the launcher that leads, and every worker.
//!
//! After a failover two servers may accept connections. So the scheduler looks for the launcher's lock on its own server before
//! it serves, and again when the launcher has got its lock anew; and its own session holds a number that every other session
//! of the queue has to find (`shared::db::server`). What tasks have done on another server than the present one need not be
//! known here: their results are dropped, and their rows are settled like those of dead workers.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempts::UnfinishedQuestion;
use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use crate::table::make as queue;
use shared::conninfo::{Preferred, Target};
use shared::db::server::{self, HomeServer, ServerName};
use shared::db::statement::{self, bare};
use shared::db::trouble::Trouble;
use shared::region::{LeaderServer, server_key};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Instant;
use tokio_postgres::Client;

#[derive(Debug, Default)]
pub struct Home {
    /// The number that this session holds, or will.
    proof: i64,
    /// The session's place among the hosts, and its name.
    place: Option<(Preferred, String)>,
    /// Once the queue is ours.
    current: Option<HomeServer>,
    /// Where the queue was served last.
    last: Option<Rc<ServerName>>,
    /// The hosts that it may be at.
    hosts: u64,
    /// The launcher's number that was found on this server.
    leader: Option<i64>,
    /// It is being looked for.
    asking: bool,
    /// Runs that have begun on another server.
    strays: BTreeSet<AttemptId>,
    /// The first run of this session.
    first_run: AttemptId,
}

/// What preparing the queue has to know and to find out.
#[derive(Clone, Debug)]
pub struct Standing {
    pub place: String,
    pub proof: i64,
    /// Of a launcher with the same hosts.
    pub leader: Option<LeaderServer>,
}

impl Home {
    /// A session is dialled: on the leader's server, if that is among its hosts.
    pub fn dial(&mut self, target: &Target, leader: Option<&LeaderServer>) -> Target {
        let (last, strays, hosts) = (self.last.take(), std::mem::take(&mut self.strays), server_key(target));
        *self = Home { proof: server::draw_proof(), last, strays, hosts, ..Home::default() };
        let leader = leader.filter(|leader| leader.hosts == hosts);
        let prefer = leader.map(|leader| Preferred { place: leader.place, address: None });
        Target { prefer, ..target.clone() }
    }

    pub fn connected(&mut self, place: Option<(Preferred, String)>) {
        self.place = place;
    }

    pub fn standing(&self, target: &Target, leader: Option<LeaderServer>) -> Standing {
        let place = self.place.as_ref().map_or_else(|| target.whereabouts(), |(_, name)| name.clone());
        Standing { place, proof: self.proof, leader: leader.filter(|leader| leader.hosts == self.hosts) }
    }

    /// The number that other sessions of the queue have to find, while there is a session.
    pub fn proof(&self) -> Option<i64> {
        self.current.as_ref().map(|home| home.proof)
    }

    pub fn server(&self) -> Option<&HomeServer> {
        self.current.as_ref()
    }

    /// Where tasks begin now.
    pub fn name(&self) -> Option<Rc<ServerName>> {
        self.last.clone()
    }

    /// What workers connect by: the scheduler's own place first.
    pub fn target(&self, target: &Target) -> Target {
        Target { prefer: self.place.as_ref().map(|(preferred, _)| *preferred), ..target.clone() }
    }

    pub fn lost(&mut self) {
        self.current = None;
        self.leader = None;
        self.asking = false;
    }
}

/// The name of the session's server; an error if the launcher leads on another one.
pub async fn stand(client: &Client, standing: &Standing) -> Result<HomeServer, Trouble> {
    let name = server::name_server(client, standing.place.clone()).await?;
    if let Some(leader) = &standing.leader
        && !finds(client, leader.proof).await?
    {
        let there = format!("its launcher leads on server {}", leader.name);
        return Err(Trouble::between(server::apart("the scheduler", &name, &there)));
    }
    Ok(HomeServer { proof: standing.proof, name })
}

async fn finds(client: &Client, proof: i64) -> Result<bool, Trouble> {
    let (high, low) = server::halves(proof);
    let row =
        client.query_one(&bare(statement::FIND_PROOF), &[&high, &low]).await.map_err(|error| Trouble::of(&error))?;
    Ok(row.get("found"))
}

impl Scheduler {
    /// The queue is ours, on this server. What was begun on another one is looked at again.
    pub(crate) fn settle_in(&mut self, home: HomeServer, leader: Option<i64>, now: Instant) {
        let name = Rc::new(home.name.clone());
        let moved = self.session.home.last.as_ref().is_some_and(|last| !name.has_the_data_of(last));
        if moved {
            let before = self.session.home.last.as_ref().map(|last| last.to_string()).unwrap_or_default();
            shared::warning!(
                "the queue has moved to another server",
                queue = self.base.label,
                from = before,
                to = name
            );
            self.session.home.strays.extend(self.attempts.table.ids());
            // Connections that workers have left are on the other server.
            self.pool.outdate(now);
        }
        let (begun, dropped) = self.attempts.records.drop_others_than(&name);
        for begun in begun {
            self.give_slot_back(begun.slot);
            self.never_started(begun.row.task, begun.row.attempt, Some(begun.backend), now);
        }
        for (task, attempt) in dropped {
            shared::info!("a result of another server is dropped", queue = self.base.label, task = task);
            self.attempts.table.orphaned(task, attempt, now);
        }
        self.attempts.records.renew_book(&self.base.queue, !self.base.settings.synchronous_commit, home.proof);
        self.session.home.first_run = self.attempts.table.next_id();
        self.claims.stumbling.succeeded();
        self.claims.timer.hold_off(now);
        self.base.notes().set_proof(home.proof);
        self.session.home.last = Some(name);
        self.session.home.current = Some(home);
        self.session.home.leader = leader;
    }

    /// The leader has another number than the one that was found here: nothing is claimed before the new one is found.
    pub(crate) fn leader_is_here(&self) -> bool {
        let region = &self.base.start.region;
        region.leader_proof() == self.session.home.leader || region.leader_hosts() != Some(self.session.home.hosts)
    }

    pub(crate) fn prove_leader(&mut self) {
        if self.session.home.asking || !self.session.state.working() || self.leader_is_here() {
            return;
        }
        let Some(leader) = self.base.start.region.leader_server() else { return };
        let standing = self.session.home.standing(&self.base.order.target, Some(leader.clone()));
        let (queue, relid) =
            (self.base.queue.clone(), self.session.statements.as_ref().map(|statements| statements.relid));
        if let Some(link) = &mut self.links.queue {
            self.session.home.asking = true;
            link.ask("looking for the launcher's lock", ANSWER_TIMEOUT, move |client| async move {
                match stand(&client, &standing).await {
                    Ok(_) => Ok(Answer::LeaderFound(leader.proof)),
                    Err(trouble) => {
                        queue::leave_note(&client, &queue, relid, Some(&trouble.text)).await;
                        Err(trouble)
                    }
                }
            });
        }
    }

    pub(crate) fn leader_found(&mut self, proof: i64) {
        self.session.home.asking = false;
        self.session.home.leader = Some(proof);
    }

    /// Tells `mill.why` what keeps workers from beginning, or that nothing does any more.
    pub(crate) fn note_trouble(&mut self, trouble: Option<String>) {
        let (queue, relid) =
            (self.base.queue.clone(), self.session.statements.as_ref().map(|statements| statements.relid));
        if let (Some(link), true) = (&mut self.links.queue, self.jobs.has_catalog()) {
            link.ask("noting a trouble", ANSWER_TIMEOUT, move |client| async move {
                queue::leave_note(&client, &queue, relid, trouble.as_deref()).await;
                Ok(Answer::Named)
            });
        }
    }

    /// A worker that was started before knows an old number: that it cannot begin says nothing about this session.
    pub(crate) fn is_of_this_session(&self, run: AttemptId) -> bool {
        self.session.state.working() && run >= self.session.home.first_run
    }

    /// A worker is gone whose task began on another server: what the row says here is not known.
    pub(crate) fn stray_ended(&mut self, run: AttemptId) {
        if self.session.home.strays.remove(&run) {
            self.attempts.unfinished = UnfinishedQuestion::Wanted;
            self.attempts.purpose.adopt = true;
        }
    }
}
