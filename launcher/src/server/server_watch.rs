//! What the launcher hears from its server, and what it does about it: locks, the list of databases, messages.
//!
//! Two questions are asked again and again on the launcher's own session: every 200 ms which locks say something to us,
//! and at every poll which databases there are. What was missed is in the next answer. Messages go through
//! `message_table`, work on databases and catalogs through `lock_watch`, the list through `discovery`.

use crate::event_loop::{Answer, Launcher};
use crate::limits::{ANSWER_TIMEOUT, WATCH_PERIOD, WATCH_TIMEOUT};
use crate::message::message_table::{AnswerKey, Command, MessageKey, MessageTable, SeenMessage};
use crate::queue::database_list::FoundDatabase;
use crate::queue::queue_table::Surroundings;
use crate::server::lock_watch::{LockWatch, Locks, MarkerLock};
use shared::db::lock_key;
use shared::db::statement;
use shared::db::trouble::Trouble;
use shared::process::fault;
use shared::process::order::WaitFor;
use shared::region::HostMoment;
use std::rc::Rc;
use std::time::Instant;
use tokio_postgres::{Client, Statement};

/// The statements that are asked again and again.
#[derive(Clone, Debug)]
pub struct WatchStatements {
    watch: Statement,
    list: Statement,
}

/// How far the questions have come.
#[derive(Debug)]
pub struct ServerWatch {
    hearing: Option<Rc<WatchStatements>>,
    watching: bool,
    next_watch: Instant,
    listing: bool,
    next_list: Instant,
    /// The databases have been listed since this launcher leads.
    pub knows_databases: bool,
    pub messages: MessageTable,
    pub locks: LockWatch,
}

impl ServerWatch {
    pub fn new(now: Instant) -> ServerWatch {
        ServerWatch {
            hearing: None,
            watching: false,
            next_watch: now,
            listing: false,
            next_list: now,
            knows_databases: false,
            messages: MessageTable::default(),
            locks: LockWatch::default(),
        }
    }

    /// The session is gone, and with it the questions in flight.
    pub fn lose(&mut self) {
        self.hearing = None;
        (self.watching, self.listing, self.knows_databases) = (false, false, false);
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.hearing.as_ref()?;
        let watch = (!self.watching).then_some(self.next_watch);
        let list = (!self.listing).then_some(self.next_list);
        watch.into_iter().chain(list).min()
    }
}

impl Surroundings for ServerWatch {
    fn held(&self, database: u32) -> bool {
        self.locks.holds(database)
    }

    fn held_back(&self, database: u32) -> bool {
        self.messages.holds_back(database)
    }

    fn waits_for(&self, database: u32, marker: Option<u32>) -> WaitFor {
        let marker = self.locks.marker_is_locked(database, marker);
        self.messages.waits_for(database).then(WaitFor { message: None, marker })
    }
}

impl Launcher {
    /// This launcher leads: its session begins to listen, and says again what it had answered.
    pub(crate) fn begin_hearing(&mut self) {
        let answers = self.ear.messages.renew();
        answers.into_iter().for_each(|answer| self.give(answer));
        let signature = self.signature();
        if let Some(link) = &mut self.link {
            link.ask("preparing to listen", WATCH_TIMEOUT, |client| async move {
                let text =
                    async |text: &str| client.prepare(&signature.sign(text)).await.map_err(|error| Trouble::of(&error));
                let watch = text(statement::WATCH_LOCKS).await?;
                Ok(Answer::Listening(Rc::new(WatchStatements { watch, list: text(statement::LIST_DATABASES).await? })))
            });
        }
    }

    pub(crate) fn listening(&mut self, hearing: Rc<WatchStatements>, now: Instant) {
        self.ear.hearing = Some(hearing);
        (self.ear.next_watch, self.ear.next_list) = (now, now);
    }

    /// Asks what is due.
    pub(crate) fn hear(&mut self, now: Instant) {
        let (Some(link), Some(hearing)) = (&mut self.link, self.ear.hearing.clone()) else { return };
        if self.ear.locks.wants_list() {
            self.ear.next_list = now;
        }
        if !self.ear.watching && now >= self.ear.next_watch {
            self.ear.watching = true;
            self.ear.next_watch = now + WATCH_PERIOD;
            let (markers, own) = self.rows.watched();
            let hearing = hearing.clone();
            let asked_at = HostMoment::now();
            link.ask("looking at locks", WATCH_TIMEOUT, move |client| async move {
                Ok(Answer::Locks { locks: look_at_locks(&client, &hearing, markers, own).await?, asked_at })
            });
        }
        if !self.ear.listing && now >= self.ear.next_list {
            self.ear.listing = true;
            self.ear.next_list = now + self.parts.poll;
            link.ask("listing databases", ANSWER_TIMEOUT, move |client| async move {
                let rows = client.query(&hearing.list, &[]).await.map_err(|error| Trouble::of(&error))?;
                let found = rows.iter().map(|row| FoundDatabase {
                    oid: row.get("oid"),
                    name: row.get("name"),
                    servable: row.get("servable"),
                });
                Ok(Answer::Databases { found: found.collect(), asked_at: now })
            });
        }
    }

    pub(crate) fn databases_listed(&mut self, found: Vec<FoundDatabase>, asked_at: Instant, now: Instant) {
        self.ear.listing = false;
        self.rows.databases_listed(found, now);
        self.ear.locks.listed(asked_at);
        self.ear.knows_databases = true;
    }

    pub(crate) fn locks_seen(&mut self, locks: &Locks, now: Instant) {
        self.ear.watching = false;
        for MarkerLock { database, relation, .. } in self.ear.locks.see(locks, now) {
            self.rows.marker_locked(database, relation, now);
        }
        for answer in self.ear.messages.see(&locks.messages) {
            self.take_back(answer);
        }
        // A database that we do not serve may be another launcher's, who will answer.
        let (rows, alone) = (&self.rows, locks.leaders.len() <= 1);
        for (key, role) in self.ear.messages.claim_unchecked(|database| alone || rows.serves(database)) {
            let mut roles = self.rows.users_of(key.target);
            roles.extend(self.parts.operators.clone());
            let text = self.signature().sign(statement::CHECK_SENDER);
            if let Some(link) = &mut self.link {
                link.ask("checking a sender", ANSWER_TIMEOUT, move |client| async move {
                    let row = client.query_one(&text, &[&role, &key.target, &roles]).await;
                    let may = row.map_err(|error| Trouble::of(&error))?.get("may");
                    Ok(Answer::Checked { key, may })
                });
            }
        }
    }

    pub(crate) fn sender_checked(&mut self, key: MessageKey, may: bool) {
        if !may {
            shared::warning!(
                "a message was refused; its sender has no right to it",
                message = key.command().map_or("?", |command| command.name()),
                database = self.named(key.target),
            );
        }
        if let Some(answer) = self.ear.messages.checked(key, may) {
            self.give(answer);
        }
    }

    /// Acts upon messages whose senders may send them.
    pub(crate) fn act(&mut self, now: Instant) {
        if !self.ear.knows_databases {
            return;
        }
        for key in self.ear.messages.claim_allowed(now) {
            let Some(command) = key.command() else { continue };
            let message = (!key.elsewhere()).then_some((key.key, key.target));
            let name = self.named(key.target);
            if command != Command::Stop {
                self.rows.look_again(key.target);
            }
            if self.rows.command(key.target, command, WaitFor { message, marker: false }, now) {
                shared::info!("message", message = command.name(), database = name);
            } else if self.rows.database_name(key.target).is_none() {
                // Younger than our list: asked again until the sender has lost his patience.
                self.ear.next_list = now;
            }
        }
    }

    /// Answers what has come to its end.
    pub(crate) fn answer_messages(&mut self, now: Instant) {
        for (key, late) in self.ear.messages.acting(now) {
            let Some(command) = key.command() else { continue };
            let arrived = match command {
                Command::Start if self.rows.to_look.contains(&key.target) => None,
                // What its transaction makes is looked for at its end.
                Command::Restart if !self.rows.has_queue(key.target) => Some(self.rows.covers(key.target)),
                _ => self.rows.arrived(key.target, command, Some(&self.ear)),
            };
            let done = match arrived {
                Some(done) => done,
                None if late => false,
                None => continue,
            };
            shared::debug!(
                "message answered",
                message = command.name(),
                database = self.named(key.target),
                done = done
            );
            if let Some(answer) = self.ear.messages.settle(key, done) {
                self.give(answer);
            }
        }
    }

    /// Sessions that do not end by themselves.
    pub(crate) fn end_sessions(&mut self) {
        for (backends, user) in self.rows.take_to_end() {
            let text = self.signature().sign(statement::END_BACKENDS);
            if let Some(link) = &mut self.link {
                shared::info!("ending sessions through the server", user = user, backends = backends.len());
                link.ask("ending sessions", ANSWER_TIMEOUT, move |client| async move {
                    client.query_one(&text, &[&backends, &user]).await.map_err(|error| Trouble::of(&error))?;
                    Ok(Answer::Done)
                });
            }
        }
    }

    fn give(&mut self, answer: AnswerKey) {
        fault::point("launcher.before_answer");
        self.tell("answering a message", statement::GIVE_ANSWER, answer);
    }

    fn take_back(&mut self, answer: AnswerKey) {
        self.tell("taking an answer back", statement::TAKE_ANSWER_BACK, answer);
    }

    fn tell(&mut self, what: &'static str, text: &'static str, AnswerKey { key, backend }: AnswerKey) {
        let text = self.signature().sign(text);
        if let Some(link) = &mut self.link {
            link.ask(what, ANSWER_TIMEOUT, move |client| async move {
                client.query_one(&text, &[&key, &backend]).await.map_err(|error| Trouble::of(&error))?;
                Ok(Answer::Done)
            });
        }
    }

    fn named(&self, database: u32) -> String {
        self.rows.database_name(database).map_or_else(|| database.to_string(), str::to_owned)
    }
}

async fn look_at_locks(
    client: &Client,
    hearing: &WatchStatements,
    markers: Vec<u32>,
    own: Vec<i32>,
) -> Result<Locks, Trouble> {
    let kinds = [lock_key::MESSAGE_START, lock_key::MESSAGE_STOP, lock_key::MESSAGE_RESTART].map(i64::from).to_vec();
    let leader = lock_key::LEADER as u32;
    let rows =
        client.query(&hearing.watch, &[&leader, &kinds, &markers, &own]).await.map_err(|error| Trouble::of(&error))?;
    let mut locks = Locks::default();
    for row in rows {
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
