//! Carries out what users ask by messages: checks their senders, acts upon the queue table, answers.
//!
//! The lock of a message is seen by `server_watch`; what has become of each message is in `message_table`. The answer
//! is another lock, which the launcher's session takes and the sender looks for.

use crate::base::LauncherBase;
use crate::loop_command::{LoopCommand, query};
use crate::message::message_table::{AnswerKey, MessageKey, MessageTable, SeenMessage};
use crate::queue::queue_counts;
use crate::queue::queue_table::QueueTable;
use crate::queue::request::QueueRequest;
use crate::queue::start_conditions::StartConditions;
use shared::db::db_error::DbError;
use shared::db::statement;
use shared::process::fault;
use shared::process::order::WaitFor;
use std::time::Instant;

/// What the server answers.
#[derive(Debug)]
pub enum MessageAnswer {
    /// Whether the sender may send this message.
    Checked { key: MessageKey, may: bool },
    /// An answer is given or taken back.
    Done,
}

type Commands = Vec<LoopCommand<MessageAnswer>>;

#[derive(Debug, Default)]
pub struct Messages {
    pub table: MessageTable,
}

impl Messages {
    /// A new session of ours: it gives the answers again that the former one had given.
    pub fn begin(&mut self) -> Commands {
        self.table.renew().into_iter().map(give).collect()
    }

    /// The messages that pg_locks shows. `alone`: no other launcher is active on this server.
    pub fn seen(&mut self, seen: &[SeenMessage], alone: bool, queues: &QueueTable, base: &LauncherBase) -> Commands {
        let mut commands: Commands = self.table.see(seen).into_iter().map(take_back).collect();
        // A database that we do not serve may be another launcher's, who will answer.
        for (key, role) in self.table.claim_unchecked(|database| alone || queues.serves(database)) {
            let mut roles = queues.users_of(key.target);
            roles.extend(base.operators.clone());
            commands.push(query("checking a sender", move |client, signature| async move {
                let text = signature.sign(statement::CHECK_SENDER);
                let row = client.query_one(&text, &[&role, &key.target, &roles]).await;
                let may = row.map_err(|error| DbError::of(&error))?.get("may");
                Ok(MessageAnswer::Checked { key, may })
            }));
        }
        commands
    }

    pub fn answered(&mut self, answer: MessageAnswer, queues: &QueueTable) -> Commands {
        let MessageAnswer::Checked { key, may } = answer else { return Vec::new() };
        if !may {
            shared::warning!(
                "message refused: its sender lacks the right",
                message = key.request().map_or("?", |request| request.name()),
                database = queues.databases.label(key.target),
            );
        }
        self.table.checked(key, may).map(give).into_iter().collect()
    }

    /// Acts upon messages whose senders may send them. True: one is about a database that is younger than our list,
    /// which is therefore read again until the sender gives up.
    pub fn act(&mut self, queues: &mut QueueTable, now: Instant) -> bool {
        let mut unknown = false;
        for key in self.table.claim_allowed(now) {
            let Some(request) = key.request() else { continue };
            let message = (!key.elsewhere()).then_some((key.key, key.target));
            let name = queues.databases.label(key.target);
            if request != QueueRequest::Stop {
                queues.databases.search_again(key.target);
            }
            if queues.request(key.target, request, WaitFor { message, marker: false }, now) {
                shared::info!("message received", message = request.name(), database = name);
            } else if queues.databases.name_of(key.target).is_none() {
                unknown = true;
            }
        }
        unknown
    }

    /// The messages that are done, or cannot be done.
    pub fn outcomes(&self, queues: &QueueTable, open: &dyn StartConditions, now: Instant) -> Vec<(MessageKey, bool)> {
        let mut outcomes = Vec::new();
        for (key, late) in self.table.acting(now) {
            let Some(request) = key.request() else { continue };
            let arrived = match request {
                QueueRequest::Start if queues.databases.is_to_be_searched(key.target) => None,
                // What its transaction makes is looked for at its end.
                QueueRequest::Restart if !queues.has_queue(key.target) => Some(queues.databases.covers(key.target)),
                QueueRequest::Start | QueueRequest::Stop | QueueRequest::Restart => {
                    queue_counts::arrived(queues, key.target, request, Some(open))
                }
            };
            outcomes.extend(arrived.or(late.then_some(false)).map(|done| (key, done)));
        }
        outcomes
    }

    pub fn settle(&mut self, outcomes: Vec<(MessageKey, bool)>, queues: &QueueTable) -> Commands {
        let mut commands = Vec::new();
        for (key, done) in outcomes {
            let Some(request) = key.request() else { continue };
            shared::debug!(
                "message answered",
                message = request.name(),
                database = queues.databases.label(key.target),
                done = done
            );
            commands.extend(self.table.settle(key, done).map(give));
        }
        commands
    }
}

fn give(answer: AnswerKey) -> LoopCommand<MessageAnswer> {
    fault::point("launcher.before_answer");
    send("answering a message", statement::GIVE_ANSWER, answer)
}

fn take_back(answer: AnswerKey) -> LoopCommand<MessageAnswer> {
    send("withdrawing an answer", statement::TAKE_ANSWER_BACK, answer)
}

fn send(what: &'static str, text: &'static str, AnswerKey { key, backend }: AnswerKey) -> LoopCommand<MessageAnswer> {
    query(what, move |client, signature| async move {
        let text = signature.sign(text);
        client.query_one(&text, &[&key, &backend]).await.map_err(|error| DbError::of(&error))?;
        Ok(MessageAnswer::Done)
    })
}
