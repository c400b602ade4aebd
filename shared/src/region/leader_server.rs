//! The server on which this launcher leads, for its schedulers.
//!
//! The launcher draws a number each time it gets the leader's lock, holds it as a second lock on the same session, and
//! publishes it here with its place among the hosts and the server's name. A scheduler whose conninfo has the same hosts
//! looks for that lock in `pg_locks` of its own server: if it is not there, the two are on different servers, and the
//! scheduler may not serve.

use super::{Region, layout, text};
use std::sync::atomic::Ordering::{Acquire, Release};

/// Where the launcher leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderServer {
    /// The hosts that it tries, see `server_key`.
    pub hosts: u64,
    /// Which of them it is connected to.
    pub place: usize,
    /// Held as a lock there.
    pub proof: i64,
    /// For messages.
    pub name: String,
}

impl Region {
    /// By the launcher, when it has got the leader's lock. The number is written last.
    pub fn set_leader_server(&self, server: &LeaderServer) {
        self.words.at(layout::HEADER_LEADER_PROOF).store(0, Release);
        text::write(&self.words, layout::HEADER_LEADER_NAME, &server.name);
        self.words.at(layout::HEADER_LEADER_SERVER).store(server.hosts, Release);
        self.words.at(layout::HEADER_LEADER_PLACE).store(server.place as u64, Release);
        self.words.at(layout::HEADER_LEADER_PROOF).store(server.proof as u64, Release);
    }

    /// The number alone; None before the launcher has led for the first time.
    pub fn leader_proof(&self) -> Option<i64> {
        let proof = self.words.at(layout::HEADER_LEADER_PROOF).load(Acquire) as i64;
        (proof != 0).then_some(proof)
    }

    /// The hosts alone.
    pub fn leader_hosts(&self) -> Option<u64> {
        self.leader_proof().map(|_| self.words.at(layout::HEADER_LEADER_SERVER).load(Acquire))
    }

    pub fn leader_server(&self) -> Option<LeaderServer> {
        let proof = self.leader_proof()?;
        let hosts = self.words.at(layout::HEADER_LEADER_SERVER).load(Acquire);
        let place = self.words.at(layout::HEADER_LEADER_PLACE).load(Acquire) as usize;
        let name = text::read(&self.words, layout::HEADER_LEADER_NAME)?;
        (self.leader_proof() == Some(proof)).then_some(LeaderServer { hosts, place, proof, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_server_is_read_whole() {
        let region = Region::create(1).unwrap();
        assert_eq!(region.leader_server(), None);
        for proof in [7, i64::MAX] {
            let server = LeaderServer { hosts: u64::MAX, place: 3, proof, name: format!("b:5432 ({proof})") };
            region.set_leader_server(&server);
            assert_eq!(region.leader_server(), Some(server));
        }
    }
}
