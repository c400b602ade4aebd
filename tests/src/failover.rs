//! Two servers of which one follows the other, and what befalls them: the primary is killed, the stand-by is promoted, the
//! old primary is rebuilt as a stand-by or comes back as a primary of its own (split brain).
//!
//! Both keep their ports and socket folders, so that [`Pair::conninfo`], a `connect` with both hosts, stays right in every
//! round. The order of the hosts never changes either: after an odd number of promotions the primary is the second one.

use std::time::Duration;

use crate::cluster::{Cluster, Options, conninfo_quote};
use crate::database::Database;
use crate::eventually::wait;

/// A stand-by that lost its primary asks for the next one soon.
const SETTINGS: [(&str, &str); 3] =
    [("wal_level", "replica"), ("wal_retrieve_retry_interval", "100ms"), ("wal_keep_size", "256MB")];

/// A primary and its stand-by.
#[derive(Debug)]
pub struct Pair {
    clusters: [Cluster; 2],
    /// Which of them was started or promoted last.
    primary: usize,
    synchronous: bool,
}

impl Pair {
    /// Starts a primary and a stand-by that streams from it. With `synchronous` a commit waits for the stand-by's disk.
    pub fn start(synchronous: bool) -> Pair {
        Pair::configure(Cluster::configure(), synchronous)
    }

    /// The same with settings of the test's choice for both servers.
    pub fn configure(options: Options, synchronous: bool) -> Pair {
        let options = SETTINGS.iter().fold(options, |options, (name, value)| options.setting(name, value));
        let first = options.clone().start();
        let second = Cluster::standby_of(&first, options.listens());
        let pair = Pair { clusters: [first, second], primary: 0, synchronous };
        pair.wait_for_standby();
        pair
    }

    /// The server that accepts writes; after [`Pair::kill_primary`] the one that did.
    pub fn primary(&self) -> &Cluster {
        &self.clusters[self.primary]
    }

    /// The other one: the stand-by, or the old primary after [`Pair::promote`].
    pub fn standby(&self) -> &Cluster {
        &self.clusters[1 - self.primary]
    }

    /// Does a commit wait for the stand-by?
    pub fn is_synchronous(&self) -> bool {
        self.synchronous
    }

    /// Both hosts over their sockets, always in the same order, for a session that may write.
    pub fn conninfo(&self, user: &str) -> String {
        let [one, two] = self.clusters.each_ref().map(Cluster::server);
        format!(
            "host={},{} port={},{} user={} target_session_attrs=read-write",
            one.socket_folder.display(),
            two.socket_folder.display(),
            one.port,
            two.port,
            conninfo_quote(user)
        )
    }

    /// A database of the test, seen on the server that is the primary now.
    pub fn on_primary(&self, database: &Database) -> Database {
        database.on(self.primary().server())
    }

    /// Waits until the stand-by shows all that has been committed so far. What comes later may be lost if the pair is not synchronous.
    pub fn catch_up(&self) {
        let mut primary = self.primary().connect("postgres");
        let position: String = primary.query_one("SELECT pg_current_wal_lsn()::text", &[]).expect("a position").get(0);
        let mut standby = self.standby().connect("postgres");
        let sql = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn";
        wait("the stand-by has caught up")
            .until(|| standby.query_one(sql, &[&position]).expect("a position").get::<_, bool>(0));
    }

    /// Kills all processes of the primary at once, as the loss of its machine would.
    pub fn kill_primary(&self) {
        self.primary().kill9();
    }

    /// Makes the stand-by the primary. It waits for no stand-by of its own until there is one
    /// ([`Pair::rebuild_old_as_standby`]), as the usual fail-over managers do it.
    pub fn promote(&mut self) {
        let standby = self.standby();
        standby.append_settings("synchronous_standby_names = ''\n");
        standby.promote();
        self.primary = 1 - self.primary;
    }

    /// Makes the old primary, dead or alive, a stand-by of the new one by a base backup, and waits until it streams.
    pub fn rebuild_old_as_standby(&self) {
        let old = self.standby();
        if old.postmaster().is_some() {
            old.kill9();
        }
        old.remove_data();
        old.follow(self.primary(), &Options::default().tcp_if(self.primary().listens()));
        self.wait_for_standby();
    }

    /// Starts the old primary after its death as if nothing had happened: a second primary, which accepts writes.
    pub fn start_old_as_primary(&self) {
        let old = self.standby();
        old.append_settings("synchronous_standby_names = ''\n");
        old.start_again();
    }

    /// Until the stand-by streams and, if the pair is synchronous, commits wait for it.
    fn wait_for_standby(&self) {
        let mut client = self.primary().connect("postgres");
        let mut is = |state: &str| {
            let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND $1 IN ('', sync_state)";
            client.query_one(sql, &[&state]).expect("read the stand-by").get::<_, i64>(0) > 0
        };
        wait("the stand-by streams").within(Duration::from_secs(60)).until(|| is(""));
        if self.synchronous {
            self.primary().append_settings("synchronous_standby_names = '*'\n");
            self.primary().reload();
            wait("commits wait for the stand-by").until(|| is("sync"));
        }
    }
}
