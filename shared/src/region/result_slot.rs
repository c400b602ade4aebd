//! The result of a task, and the place in a slot where a worker leaves a short one to its parent, which records it.
//!
//! The parent clears the mark before the fork. The worker writes the rest and then the mark. The parent reads it when it has
//! seen the worker's end and still holds the slot in its name: there is one writer at a time. The mark carries the
//! generation of the slot. Without it there is no result, whatever the other words hold. A result counts also if the worker
//! died after it: the task has run.

use super::slot::SlotHandle;
use super::{Region, layout};
use std::borrow::Cow;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

const WHOLE: u64 = 1;
const FAILED: u64 = 1;
const HAS_OUTPUT: u64 = 2;
const HAS_ERROR: u64 = 4;

/// One attempt of one task: what every write to its row is fenced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskKey {
    pub task: i64,
    pub attempt: i32,
}

/// The two states in which a task that has run may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndState {
    Done,
    Fail,
}

impl EndState {
    pub fn as_str(self) -> &'static str {
        match self {
            EndState::Done => "DONE",
            EndState::Fail => "FAIL",
        }
    }
}

/// A SQLSTATE.
pub type Code = [u8; 5];

/// When a task that waited in a batch began and ended, since its row was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub began: Duration,
    pub ended: Duration,
}

/// How a task has ended, from the moment its input has run until its row has it. Texts are bytes: a database in SQL_ASCII
/// holds any. They are borrowed where a worker records another form of the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskResult<'a> {
    pub key: TaskKey,
    pub state: EndState,
    pub output: Option<Cow<'a, [u8]>>,
    pub error: Option<Cow<'a, [u8]>>,
    pub reason: Option<&'static str>,
    /// Of the error, for the history of jobs.
    pub code: Option<Code>,
    /// None: it began when the row says so, and ends with the record.
    pub times: Option<Times>,
    /// The encoding of the texts, if the task has changed it.
    pub encoding: Option<Vec<u8>>,
}

impl<'a> TaskResult<'a> {
    pub fn done(key: TaskKey, output: Option<Vec<u8>>) -> TaskResult<'a> {
        let output = output.map(Cow::Owned);
        TaskResult {
            key,
            state: EndState::Done,
            output,
            error: None,
            reason: None,
            code: None,
            times: None,
            encoding: None,
        }
    }

    pub fn failed(
        key: TaskKey,
        output: Vec<u8>,
        error: Vec<u8>,
        reason: Option<&'static str>,
        code: Option<Code>,
    ) -> TaskResult<'a> {
        let (output, error) = (Some(Cow::Owned(output)), Some(Cow::Owned(error)));
        TaskResult { key, state: EndState::Fail, output, error, reason, code, times: None, encoding: None }
    }

    /// What an input has printed, and its errors.
    pub fn of_input(key: TaskKey, output: Option<Vec<u8>>, error: Option<Vec<u8>>) -> TaskResult<'a> {
        let state = if error.is_some() { EndState::Fail } else { EndState::Done };
        TaskResult { state, error: error.map(Cow::Owned), ..TaskResult::done(key, output) }
    }

    /// The same output, without an error.
    pub fn into_done(self) -> TaskResult<'a> {
        TaskResult { state: EndState::Done, error: None, ..self }
    }

    /// The same output with this error. A failure has an output, even if it is empty.
    pub fn into_failed(self, error: Vec<u8>, reason: Option<&'static str>, code: Option<Code>) -> TaskResult<'a> {
        let (output, error) = (Some(self.output.unwrap_or_default()), Some(Cow::Owned(error)));
        TaskResult { state: EndState::Fail, output, error, reason, code, ..self }
    }

    /// The same without a copy of its texts.
    pub fn borrowed(&self) -> TaskResult<'_> {
        TaskResult {
            output: self.output.as_deref().map(Cow::Borrowed),
            error: self.error.as_deref().map(Cow::Borrowed),
            encoding: self.encoding.clone(),
            ..*self
        }
    }

    /// The row may be deleted, if its owner wants that.
    pub fn is_silent(&self) -> bool {
        self.output.is_none() && self.error.is_none()
    }

    pub fn bytes(&self) -> usize {
        self.output.as_ref().map_or(0, |text| text.len()) + self.error.as_ref().map_or(0, |text| text.len())
    }
}

impl Region {
    /// By the parent, before the fork.
    pub fn expect_result(&self, slot: SlotHandle) {
        self.handed_word(slot, layout::HANDED_MARK).store(0, Release);
    }

    /// By the worker. False: it is too long, or more than a short text, and nothing was written.
    pub fn leave_result(&self, slot: SlotHandle, result: &TaskResult<'_>) -> bool {
        let text = |text: &Option<Cow<'_, [u8]>>| std::str::from_utf8(text.as_deref().unwrap_or_default()).is_ok();
        let plain = result.reason.is_none() && result.encoding.is_none() && text(&result.output) && text(&result.error);
        if !plain || result.bytes() > layout::HANDED_TEXT_BYTES {
            return false;
        }
        let (output, error) =
            (result.output.as_deref().unwrap_or_default(), result.error.as_deref().unwrap_or_default());
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        let flags = flag(result.state == EndState::Fail, FAILED)
            | flag(result.output.is_some(), HAS_OUTPUT)
            | flag(result.error.is_some(), HAS_ERROR);
        let set = |word: usize, value: u64| self.handed_word(slot, word).store(value, Relaxed);
        set(layout::HANDED_TASK, result.key.task as u64);
        set(layout::HANDED_ATTEMPT, u64::from(result.key.attempt as u32));
        set(layout::HANDED_FLAGS, flags);
        set(layout::HANDED_OUTPUT_BYTES, output.len() as u64);
        set(layout::HANDED_ERROR_BYTES, error.len() as u64);
        let texts = [output, error].concat();
        for (index, chunk) in texts.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            set(layout::HANDED_TEXTS + index, u64::from_le_bytes(bytes));
        }
        self.handed_word(slot, layout::HANDED_MARK).store(mark(slot), Release);
        true
    }

    /// By the parent, once the worker is gone and before its slot is released. None: there is no result. Its words are
    /// cleared.
    pub fn take_result(&self, slot: SlotHandle) -> Option<TaskResult<'static>> {
        let result = self.left_result(slot);
        if let Some(result) = &result {
            self.expect_result(slot);
            (0..result.bytes().div_ceil(8))
                .for_each(|word| self.handed_word(slot, layout::HANDED_TEXTS + word).store(0, Relaxed));
        }
        result
    }

    fn left_result(&self, slot: SlotHandle) -> Option<TaskResult<'static>> {
        if self.handed_word(slot, layout::HANDED_MARK).load(Acquire) != mark(slot) {
            return None;
        }
        let get = |word: usize| self.handed_word(slot, word).load(Relaxed);
        let output = get(layout::HANDED_OUTPUT_BYTES) as usize;
        let error = get(layout::HANDED_ERROR_BYTES) as usize;
        let length = output.checked_add(error).filter(|length| *length <= layout::HANDED_TEXT_BYTES)?;
        let mut texts: Vec<u8> =
            (0..length.div_ceil(8)).flat_map(|index| get(layout::HANDED_TEXTS + index).to_le_bytes()).collect();
        texts.truncate(length);
        let error = texts.split_off(output);
        if std::str::from_utf8(&texts).is_err() || std::str::from_utf8(&error).is_err() {
            return None;
        }
        let flags = get(layout::HANDED_FLAGS);
        let key = TaskKey { task: get(layout::HANDED_TASK) as i64, attempt: get(layout::HANDED_ATTEMPT) as i32 };
        Some(TaskResult {
            state: if flags & FAILED != 0 { EndState::Fail } else { EndState::Done },
            error: (flags & HAS_ERROR != 0).then_some(Cow::Owned(error)),
            ..TaskResult::done(key, (flags & HAS_OUTPUT != 0).then_some(texts))
        })
    }

    fn handed_word(&self, slot: SlotHandle, word: usize) -> &AtomicU64 {
        self.words.at(layout::handed_start(self.limit, slot.index()) + word)
    }
}

fn mark(slot: SlotHandle) -> u64 {
    u64::from(slot.generation()) << 8 | WHOLE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(output: Option<&str>, error: Option<&str>) -> TaskResult<'static> {
        let text = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let state = if error.is_some() { EndState::Fail } else { EndState::Done };
        let key = TaskKey { task: 7, attempt: 2 };
        TaskResult { state, error: text(error).map(Cow::Owned), ..TaskResult::done(key, text(output)) }
    }

    #[test]
    fn a_result_arrives_as_it_was_left() {
        let region = Region::create(2).unwrap();
        let slot = region.slots().reserve().unwrap();
        for sent in [
            result(None, None),
            result(Some(""), None),
            result(Some("1"), None),
            result(Some("größer als acht Zeichen"), Some("ERROR:  nein")),
            result(None, Some("x")),
            result(Some(&"o".repeat(layout::HANDED_TEXT_BYTES)), None),
        ] {
            region.expect_result(slot);
            assert_eq!(region.left_result(slot), None);
            assert!(region.leave_result(slot, &sent));
            assert_eq!(region.take_result(slot), Some(sent));
            assert_eq!(region.take_result(slot), None);
            assert_eq!(region.handed_word(slot, layout::HANDED_TEXTS).load(Relaxed), 0);
        }
    }

    #[test]
    fn a_result_that_is_too_long_is_not_left_at_all() {
        let region = Region::create(1).unwrap();
        let slot = region.slots().reserve().unwrap();
        region.expect_result(slot);
        assert!(!region.leave_result(slot, &result(Some(&"o".repeat(layout::HANDED_TEXT_BYTES)), Some("e"))));
        assert_eq!(region.left_result(slot), None);
    }

    #[test]
    fn a_result_that_says_more_than_a_short_text_is_not_left() {
        let region = Region::create(1).unwrap();
        let slot = region.slots().reserve().unwrap();
        region.expect_result(slot);
        let plain = result(Some("1"), None);
        let no_text = Some(Cow::Owned(vec![0xff]));
        for odd in [
            TaskResult { reason: Some("timeout"), ..plain.clone() },
            TaskResult { encoding: Some(b"LATIN1".to_vec()), ..plain.clone() },
            TaskResult { output: no_text, ..plain.clone() },
        ] {
            assert!(!region.leave_result(slot, &odd));
            assert_eq!(region.left_result(slot), None);
        }
    }

    #[test]
    fn a_result_of_another_use_of_the_slot_is_none() {
        let region = Region::create(1).unwrap();
        let first = region.slots().reserve().unwrap();
        assert!(region.leave_result(first, &result(Some("1"), None)));
        region.slots().release(first);
        let second = region.slots().reserve().unwrap();
        assert_eq!(region.left_result(second), None);
    }
}
