//! Messages of users, from the moment their lock is seen until it is gone. PURE.
//!
//! A message is the lock of an open transaction, so the last read of pg_locks says which messages exist. This table
//! keeps the stage of each: its sender is checked, then it is acted upon, then answered. The answer stays until the
//! message is gone. A message outlives the launcher's own session: the new session only answers again. After PREPARE
//! TRANSACTION a message has no process any more; it exists until the transaction is over.

use crate::limits::{MESSAGE_TIMEOUT, MESSAGES_MAX, MESSAGES_PER_SESSION_MAX};
use crate::queue::request::QueueRequest;
use shared::db::lock_key;
use shared::process::order::WaitFor;
use std::time::Instant;

/// The lock of a message: in which database it is held, its first key, and the database that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKey {
    pub database: u32,
    pub key: i32,
    pub target: u32,
}

impl MessageKey {
    pub fn request(self) -> Option<QueueRequest> {
        match self.key & lock_key::KIND_MASK {
            lock_key::MESSAGE_START => Some(QueueRequest::Start),
            lock_key::MESSAGE_STOP => Some(QueueRequest::Stop),
            lock_key::MESSAGE_RESTART => Some(QueueRequest::Restart),
            _ => None,
        }
    }

    /// Sent from another database than the one it is about: nobody in there can wait for its lock.
    pub fn elsewhere(self) -> bool {
        self.database != self.target
    }
}

/// A message in pg_locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenMessage {
    pub key: MessageKey,
    pub backend: Option<i32>,
    pub role: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageResult {
    True,
    False,
    Refused,
}

/// The lock of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerKey {
    pub key: i32,
    pub backend: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageStage {
    Seen,
    Checking,
    Allowed,
    Acting { since: Instant },
    Answered(MessageResult),
}

#[derive(Clone, Copy, Debug)]
struct Message {
    key: MessageKey,
    backend: i32,
    role: u32,
    stage: MessageStage,
}

impl Message {
    fn answer(&self) -> Option<AnswerKey> {
        let kind = match self.stage {
            MessageStage::Answered(MessageResult::True) => lock_key::ANSWER_TRUE,
            MessageStage::Answered(MessageResult::False) => lock_key::ANSWER_FALSE,
            MessageStage::Answered(MessageResult::Refused) => lock_key::ANSWER_REFUSED,
            MessageStage::Seen | MessageStage::Checking | MessageStage::Allowed | MessageStage::Acting { .. } => {
                return None;
            }
        };
        Some(AnswerKey { key: lock_key::numbered(kind, lock_key::number_of(self.key.key)), backend: self.backend })
    }

    fn was_allowed(&self) -> bool {
        !matches!(
            self.stage,
            MessageStage::Seen | MessageStage::Checking | MessageStage::Answered(MessageResult::Refused)
        )
    }
}

#[derive(Debug, Default)]
pub struct MessageTable {
    messages: Vec<Message>,
}

impl MessageTable {
    /// What is there now. Gives the answers that are to be taken back.
    #[must_use]
    pub fn see(&mut self, seen: &[SeenMessage]) -> Vec<AnswerKey> {
        let still = |message: &Message| {
            seen.iter().any(|one| one.key == message.key && one.backend.is_none_or(|pid| pid == message.backend))
        };
        let (kept, gone): (Vec<Message>, Vec<Message>) = self.messages.drain(..).partition(still);
        self.messages = kept;
        for one in seen {
            let known = self.messages.iter().any(|message| message.key == one.key);
            // Without a process there is nobody to check and nobody to answer.
            let theirs = self.messages.iter().filter(|message| Some(message.backend) == one.backend);
            if let (false, Some(backend), Some(role), Some(_)) = (known, one.backend, one.role, one.key.request())
                && self.messages.len() < MESSAGES_MAX
                && theirs.count() < MESSAGES_PER_SESSION_MAX
            {
                self.messages.push(Message { key: one.key, backend, role, stage: MessageStage::Seen });
            }
        }
        gone.iter().filter_map(Message::answer).collect()
    }

    /// Messages that are for us and whose senders are to be checked now.
    #[must_use]
    pub fn claim_unchecked(&mut self, ours: impl Fn(u32) -> bool) -> Vec<(MessageKey, u32)> {
        let fresh = |message: &&mut Message| message.stage == MessageStage::Seen && ours(message.key.target);
        let fresh = self.messages.iter_mut().filter(fresh);
        fresh
            .map(|message| {
                message.stage = MessageStage::Checking;
                (message.key, message.role)
            })
            .collect()
    }

    /// What the check came to. Gives the answer, if there is one already.
    #[must_use]
    pub fn checked(&mut self, key: MessageKey, may: bool) -> Option<AnswerKey> {
        let message = self.find(key).filter(|message| message.stage == MessageStage::Checking)?;
        message.stage = if may { MessageStage::Allowed } else { MessageStage::Answered(MessageResult::Refused) };
        message.answer()
    }

    /// Messages that are to be acted upon now, in the order in which they were seen.
    #[must_use]
    pub fn claim_allowed(&mut self, now: Instant) -> Vec<MessageKey> {
        let allowed = self.messages.iter_mut().filter(|message| message.stage == MessageStage::Allowed);
        allowed
            .map(|message| {
                message.stage = MessageStage::Acting { since: now };
                message.key
            })
            .collect()
    }

    /// Messages that have been acted upon and wait for what becomes of it; true: it has taken too long.
    pub fn acting(&self, now: Instant) -> Vec<(MessageKey, bool)> {
        self.messages
            .iter()
            .filter_map(|message| match message.stage {
                MessageStage::Acting { since } => Some((message.key, now >= since + MESSAGE_TIMEOUT)),
                _ => None,
            })
            .collect()
    }

    /// It is done, or it is not. Gives the answer.
    #[must_use]
    pub fn settle(&mut self, key: MessageKey, done: bool) -> Option<AnswerKey> {
        let message = self.find(key)?;
        message.stage = MessageStage::Answered(if done { MessageResult::True } else { MessageResult::False });
        message.answer()
    }

    /// Our session is a new one: its answers are to be given again, and questions are open again.
    #[must_use]
    pub fn renew(&mut self) -> Vec<AnswerKey> {
        for message in self.messages.iter_mut().filter(|message| message.stage == MessageStage::Checking) {
            message.stage = MessageStage::Seen;
        }
        self.messages.iter().filter_map(Message::answer).collect()
    }

    /// What a scheduler of this database has to wait for: the last restart that was asked for in there.
    pub fn waits_for(&self, database: u32) -> WaitFor {
        let restarts = self.restarts(database).filter(|message| !message.key.elsewhere());
        WaitFor { message: restarts.last().map(|message| (message.key.key, message.key.target)), marker: false }
    }

    /// A restart that was asked for from another database: no scheduler starts before that transaction is over.
    pub fn holds_back(&self, database: u32) -> bool {
        self.restarts(database).any(|message| message.key.elsewhere())
    }

    fn restarts(&self, database: u32) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| {
            message.key.target == database
                && message.key.request() == Some(QueueRequest::Restart)
                && message.was_allowed()
        })
    }

    fn find(&mut self, key: MessageKey) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: i32, number: i32, database: u32, target: u32, backend: i32) -> SeenMessage {
        let key = MessageKey { database, key: lock_key::numbered(kind, number), target };
        SeenMessage { key, backend: Some(backend), role: Some(10) }
    }

    /// Seen, checked, acted upon.
    fn acted(table: &mut MessageTable, message: SeenMessage, now: Instant) {
        assert_eq!(table.see(&[message]), []);
        assert_eq!(table.claim_unchecked(|_| true), [(message.key, 10)]);
        assert_eq!(table.checked(message.key, true), None);
        assert_eq!(table.claim_allowed(now), [message.key]);
    }

    #[test]
    fn a_message_is_acted_upon_once_and_answered_until_it_is_gone() {
        let (mut table, now) = (MessageTable::default(), Instant::now());
        let message = seen(lock_key::MESSAGE_STOP, 7, 5, 5, 100);
        acted(&mut table, message, now);
        assert_eq!(table.acting(now), [(message.key, false)]);
        let answer = AnswerKey { key: lock_key::numbered(lock_key::ANSWER_TRUE, 7), backend: 100 };
        assert_eq!(table.settle(message.key, true), Some(answer));
        assert_eq!(table.see(&[message]), []);
        assert!(
            table.claim_unchecked(|_| true).is_empty()
                && table.claim_allowed(now).is_empty()
                && table.acting(now).is_empty()
        );
        assert_eq!(table.renew(), [answer], "a new session of ours answers anew");
        assert_eq!(table.see(&[]), [answer]);
        assert_eq!(table.see(&[]), []);
    }

    #[test]
    fn a_message_to_a_database_of_another_launcher_is_left_to_that_one() {
        let mut table = MessageTable::default();
        let message = seen(lock_key::MESSAGE_STOP, 7, 5, 5, 100);
        assert_eq!(table.see(&[message]), []);
        assert_eq!(table.claim_unchecked(|database| database != 5), []);
        assert_eq!(table.see(&[]), []);
    }

    #[test]
    fn a_sender_without_the_right_is_refused_and_nothing_is_done() {
        let (mut table, now) = (MessageTable::default(), Instant::now());
        let message = seen(lock_key::MESSAGE_RESTART, 255, 5, 5, 100);
        assert_eq!(table.see(&[message]), []);
        assert_eq!(table.claim_unchecked(|_| true).len(), 1);
        let refused = AnswerKey { key: lock_key::numbered(lock_key::ANSWER_REFUSED, 255), backend: 100 };
        assert_eq!(table.checked(message.key, false), Some(refused));
        assert!(table.claim_allowed(now).is_empty());
        assert_eq!(table.waits_for(5), WaitFor::default());
    }

    #[test]
    fn a_scheduler_waits_for_the_last_restart_of_its_database_and_for_none_of_another() {
        let (mut table, now) = (MessageTable::default(), Instant::now());
        let first = seen(lock_key::MESSAGE_RESTART, 1, 5, 5, 100);
        let second = seen(lock_key::MESSAGE_RESTART, 2, 5, 5, 101);
        acted(&mut table, first, now);
        assert_eq!(table.see(&[first, second]), []);
        assert_eq!(table.waits_for(5).message, Some((first.key.key, 5)), "the second is not checked yet");
        let _ = table.claim_unchecked(|_| true);
        let _ = table.checked(second.key, true);
        assert_eq!(table.waits_for(5).message, Some((second.key.key, 5)));
        assert_eq!((table.waits_for(6), table.holds_back(5)), (WaitFor::default(), false));
    }

    #[test]
    fn a_restart_from_another_database_holds_back_until_its_transaction_is_over_prepared_or_not() {
        let (mut table, now) = (MessageTable::default(), Instant::now());
        let message = seen(lock_key::MESSAGE_RESTART, 1, 6, 5, 100);
        acted(&mut table, message, now);
        assert!(table.holds_back(5) && !table.holds_back(6));
        let prepared = SeenMessage { backend: None, role: None, ..message };
        assert_eq!(table.see(&[prepared]), []);
        assert!(table.holds_back(5));
        assert_eq!(table.see(&[]), []);
        assert!(!table.holds_back(5));
    }

    #[test]
    fn the_same_key_of_another_sender_is_another_message() {
        let (mut table, now) = (MessageTable::default(), Instant::now());
        let message = seen(lock_key::MESSAGE_START, 1, 5, 5, 100);
        acted(&mut table, message, now);
        let answer = table.settle(message.key, true);
        let other = SeenMessage { backend: Some(200), ..message };
        assert_eq!(table.see(&[other]), answer.into_iter().collect::<Vec<_>>());
        assert_eq!(table.claim_unchecked(|_| true), [(message.key, 10)]);
    }

    #[test]
    fn one_session_with_thousands_of_locks_leaves_room_for_the_messages_of_others() {
        let mut table = MessageTable::default();
        let mut all: Vec<SeenMessage> =
            (0..3000).map(|target| seen(lock_key::MESSAGE_STOP, 0, 5, target, 100)).collect();
        assert_eq!(table.see(&all), []);
        all.push(seen(lock_key::MESSAGE_RESTART, 3, 9, 9, 200));
        assert_eq!(table.see(&all), []);
        assert_eq!(table.claim_unchecked(|database| database == 9).len(), 2, "one of the flood, and the other's");
        assert_eq!(table.claim_unchecked(|_| true).len(), MESSAGES_PER_SESSION_MAX - 1);
    }

    #[test]
    fn what_takes_too_long_is_not_done() {
        let (mut table, now) = (MessageTable::default(), Instant::now());
        let message = seen(lock_key::MESSAGE_START, 0, 5, 5, 100);
        acted(&mut table, message, now);
        assert_eq!(table.acting(now + MESSAGE_TIMEOUT), [(message.key, true)]);
    }
}
