//! The server on which the queue is served, and what must be there too: the launcher that leads, and every worker.
//!
//! After a failover two servers may accept connections. So the scheduler looks for the launcher's lock on its own server before
//! it serves, and again when the launcher has got its lock anew; and its own session holds a number that every other session
//! of the queue has to find (`shared::db::server`). What tasks have done on another server than the present one need not be
//! known here: their results are dropped, and their rows are settled like those of dead workers.

use shared::conninfo::{Preferred, Target};
use shared::db::db_error::DbError;
use shared::db::server::{self, HomeServer, ServerName};
use shared::db::statement::{self, bare};
use shared::region::{LeaderServer, Region, server_key};
use std::rc::Rc;
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
    queries: bool,
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
        let (last, hosts) = (self.last.take(), server_key(target));
        *self = Home { proof: server::draw_proof(), last, hosts, ..Home::default() };
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

    /// The queue is ours, on this server. Some: where it was served before, if those data are not here.
    pub fn settle_in(&mut self, home: HomeServer, leader: Option<i64>) -> Option<Rc<ServerName>> {
        let name = Rc::new(home.name.clone());
        let former = self.last.replace(name.clone()).filter(|last| !name.has_the_data_of(last));
        self.current = Some(home);
        self.leader = leader;
        former
    }

    /// False: the leader has another number than the one that was found here.
    pub fn has_leader(&self, region: &Region) -> bool {
        region.leader_proof() == self.leader || region.leader_hosts() != Some(self.hosts)
    }

    /// The leader's number is to be looked for. None: that is in flight.
    pub fn search(&mut self, target: &Target, leader: LeaderServer) -> Option<Standing> {
        let standing = self.standing(target, Some(leader));
        (!std::mem::replace(&mut self.queries, true)).then_some(standing)
    }

    pub fn leader_found(&mut self, proof: i64) {
        self.queries = false;
        self.leader = Some(proof);
    }

    pub fn lost(&mut self) {
        self.current = None;
        self.leader = None;
        self.queries = false;
    }
}

/// The name of the session's server; an error if the launcher leads on another one.
pub async fn stand(client: &Client, standing: &Standing) -> Result<HomeServer, DbError> {
    let name = server::name_server(client, standing.place.clone()).await?;
    if let Some(leader) = &standing.leader
        && !finds(client, leader.proof).await?
    {
        let there = format!("its launcher leads on server {}", leader.name);
        return Err(DbError::between(server::apart("the scheduler", &name, &there)));
    }
    Ok(HomeServer { proof: standing.proof, name })
}

async fn finds(client: &Client, proof: i64) -> Result<bool, DbError> {
    let (high, low) = server::halves(proof);
    let row =
        client.query_one(&bare(statement::FIND_PROOF), &[&high, &low]).await.map_err(|error| DbError::of(&error))?;
    Ok(row.get("found"))
}
