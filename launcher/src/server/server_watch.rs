//! The repeated queries on the launcher's session: every 200 ms which locks concern us, and at every poll which
//! databases there are. What one read misses, the next one shows.

use crate::limits::{WATCH_PERIOD, WATCH_TIMEOUT};
use crate::loop_command::{LoopCommand, query, query_within};
use crate::message::message_table::{MessageKey, SeenMessage};
use crate::queue::database_list::FoundDatabase;
use crate::queue::queue_table::QueueTable;
use crate::server::lock_watch::{LockWatch, Locks, MarkerLock};
use shared::db::db_error::DbError;
use shared::db::lock_key;
use shared::db::statement;
use shared::region::HostMoment;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Statement};

/// The statements, prepared on the present session.
#[derive(Clone, Debug)]
pub struct WatchStatements {
    watch: Statement,
    list: Statement,
}

/// What the server answers.
#[derive(Debug)]
pub enum WatchAnswer {
    Prepared(Rc<WatchStatements>),
    Locks { locks: Locks, asked_at: HostMoment },
    Databases { found: Vec<FoundDatabase>, asked_at: Instant },
}

#[derive(Debug)]
pub struct ServerWatch {
    statements: Option<Rc<WatchStatements>>,
    watching: bool,
    next_watch: Instant,
    listing: bool,
    next_list: Instant,
    /// The databases have been listed since this launcher leads.
    pub knows_databases: bool,
    pub locks: LockWatch,
}

impl ServerWatch {
    pub fn new(now: Instant) -> ServerWatch {
        ServerWatch {
            statements: None,
            watching: false,
            next_watch: now,
            listing: false,
            next_list: now,
            knows_databases: false,
            locks: LockWatch::default(),
        }
    }

    /// This launcher leads: the statements are prepared.
    pub fn begin(&self) -> LoopCommand<WatchAnswer> {
        query_within("preparing statements", WATCH_TIMEOUT, |client, signature| async move {
            let text =
                async |text: &str| client.prepare(&signature.sign(text)).await.map_err(|error| DbError::of(&error));
            let watch = text(statement::WATCH_LOCKS).await?;
            Ok(WatchAnswer::Prepared(Rc::new(WatchStatements { watch, list: text(statement::LIST_DATABASES).await? })))
        })
    }

    pub fn prepared(&mut self, statements: Rc<WatchStatements>, now: Instant) {
        self.statements = Some(statements);
        (self.next_watch, self.next_list) = (now, now);
    }

    /// The session is gone, and with it the queries in flight.
    pub fn session_lost(&mut self) {
        self.statements = None;
        (self.watching, self.listing, self.knows_databases) = (false, false, false);
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.statements.as_ref()?;
        let watch = (!self.watching).then_some(self.next_watch);
        let list = (!self.listing).then_some(self.next_list);
        watch.into_iter().chain(list).min()
    }

    /// Sends the queries that are due.
    pub fn pass(&mut self, queues: &QueueTable, poll: Duration, now: Instant) -> Vec<LoopCommand<WatchAnswer>> {
        let Some(statements) = self.statements.clone() else { return Vec::new() };
        let mut commands = Vec::new();
        if self.locks.wants_list() {
            self.next_list = now;
        }
        if !self.watching && now >= self.next_watch {
            self.watching = true;
            self.next_watch = now + WATCH_PERIOD;
            let (markers, own) = queues.watched();
            let statements = statements.clone();
            let asked_at = HostMoment::now();
            commands.push(query_within("reading locks", WATCH_TIMEOUT, move |client, _| async move {
                Ok(WatchAnswer::Locks { locks: read_locks(&client, &statements, markers, own).await?, asked_at })
            }));
        }
        if !self.listing && now >= self.next_list {
            self.listing = true;
            self.next_list = now + poll;
            commands.push(query("listing databases", move |client, _| async move {
                let rows = client.query(&statements.list, &[]).await.map_err(|error| DbError::of(&error))?;
                let found = rows.iter().map(|row| FoundDatabase {
                    oid: row.get("oid"),
                    name: row.get("name"),
                    servable: row.get("servable"),
                });
                Ok(WatchAnswer::Databases { found: found.collect(), asked_at: now })
            }));
        }
        commands
    }

    /// Returns the locks on marker tables that are new.
    #[must_use]
    pub fn locks_read(&mut self, locks: &Locks, now: Instant) -> Vec<MarkerLock> {
        self.watching = false;
        self.locks.see(locks, now)
    }

    pub fn databases_listed(&mut self, asked_at: Instant) {
        self.listing = false;
        self.locks.listed(asked_at);
        self.knows_databases = true;
    }

    /// Somebody knows a database that our list does not have.
    pub fn list_again(&mut self, now: Instant) {
        self.next_list = now;
    }
}

async fn read_locks(
    client: &Client,
    statements: &WatchStatements,
    markers: Vec<u32>,
    own: Vec<i32>,
) -> Result<Locks, DbError> {
    let kinds = [lock_key::MESSAGE_START, lock_key::MESSAGE_STOP, lock_key::MESSAGE_RESTART].map(i64::from).to_vec();
    let leader = lock_key::LEADER as u32;
    let rows = client.query(&statements.watch, &[&leader, &kinds, &markers, &own]).await;
    let mut locks = Locks::default();
    for row in rows.map_err(|error| DbError::of(&error))? {
        let (database, classid, objid): (u32, u32, u32) = (row.get("database"), row.get("classid"), row.get("objid"));
        match row.get::<_, &str>("locktype") {
            "advisory" if classid == leader => locks.leaders.extend(row.get::<_, Option<i32>>("pid")),
            "advisory" => {
                let key = MessageKey { database, key: classid as i32, target: objid };
                locks.messages.push(SeenMessage { key, backend: row.get("pid"), role: row.get("role") });
            }
            "object" => locks.worked_on.push(objid),
            _ => locks.markers.push(MarkerLock { database, relation: row.get("relation"), holder: row.get("holder") }),
        }
    }
    Ok(locks)
}
