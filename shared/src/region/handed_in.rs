//! The result of a task that its worker leaves to its parent to write down, if it is short.
//!
//! The parent wipes the mark before the fork, the worker writes the rest and then the mark, and the parent reads it
//! when it has seen the worker's end and still holds the slot in its name: one writer at a time. The mark carries the
//! generation of the slot; without it there is no result, whatever else stands there. A result counts also if the
//! worker died after it: the task has run.

use super::slot::SlotHandle;
use super::{Region, layout};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WHOLE: u64 = 1;
const FAILED: u64 = 1;
const HAS_OUTPUT: u64 = 2;
const HAS_ERROR: u64 = 4;

/// How a task has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedIn {
    pub task: i64,
    pub attempt: i32,
    pub failed: bool,
    pub output: Option<String>,
    pub error: Option<String>,
}

impl Region {
    /// By the parent, before the fork.
    pub fn expect_result(&self, slot: SlotHandle) {
        self.handed_word(slot, layout::HANDED_MARK).store(0, Release);
    }

    /// By the worker. False: it does not fit, and nothing was written.
    pub fn hand_in(&self, slot: SlotHandle, result: &HandedIn) -> bool {
        let (output, error) = (result.output.as_deref().unwrap_or(""), result.error.as_deref().unwrap_or(""));
        if output.len() + error.len() > layout::HANDED_TEXT_BYTES {
            return false;
        }
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        let flags = flag(result.failed, FAILED)
            | flag(result.output.is_some(), HAS_OUTPUT)
            | flag(result.error.is_some(), HAS_ERROR);
        let set = |word: usize, value: u64| self.handed_word(slot, word).store(value, Relaxed);
        set(layout::HANDED_TASK, result.task as u64);
        set(layout::HANDED_ATTEMPT, u64::from(result.attempt as u32));
        set(layout::HANDED_FLAGS, flags);
        set(layout::HANDED_OUTPUT_BYTES, output.len() as u64);
        set(layout::HANDED_ERROR_BYTES, error.len() as u64);
        let texts: Vec<u8> = output.bytes().chain(error.bytes()).collect();
        for (index, chunk) in texts.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            set(layout::HANDED_TEXTS + index, u64::from_le_bytes(bytes));
        }
        self.handed_word(slot, layout::HANDED_MARK).store(mark(slot), Release);
        true
    }

    /// By the parent, once the worker is gone and before its slot is given back. None: there is no result. What a task
    /// has said is not left lying about.
    pub fn take_result(&self, slot: SlotHandle) -> Option<HandedIn> {
        let result = self.handed_in(slot);
        if let Some(result) = &result {
            let bytes = [&result.output, &result.error].into_iter().flatten().map(String::len).sum::<usize>();
            self.expect_result(slot);
            (0..bytes.div_ceil(8))
                .for_each(|word| self.handed_word(slot, layout::HANDED_TEXTS + word).store(0, Relaxed));
        }
        result
    }

    fn handed_in(&self, slot: SlotHandle) -> Option<HandedIn> {
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
        let error = String::from_utf8(texts.split_off(output)).ok()?;
        let output = String::from_utf8(texts).ok()?;
        let flags = get(layout::HANDED_FLAGS);
        Some(HandedIn {
            task: get(layout::HANDED_TASK) as i64,
            attempt: get(layout::HANDED_ATTEMPT) as i32,
            failed: flags & FAILED != 0,
            output: (flags & HAS_OUTPUT != 0).then_some(output),
            error: (flags & HAS_ERROR != 0).then_some(error),
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

    fn result(output: Option<&str>, error: Option<&str>) -> HandedIn {
        let text = |text: Option<&str>| text.map(str::to_owned);
        HandedIn { task: 7, attempt: 2, failed: error.is_some(), output: text(output), error: text(error) }
    }

    #[test]
    fn a_result_arrives_as_it_was_handed_in() {
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
            assert_eq!(region.handed_in(slot), None);
            assert!(region.hand_in(slot, &sent));
            assert_eq!(region.take_result(slot), Some(sent));
            assert_eq!(region.take_result(slot), None);
            assert_eq!(region.handed_word(slot, layout::HANDED_TEXTS).load(Relaxed), 0);
        }
    }

    #[test]
    fn what_is_too_long_is_not_handed_in_at_all() {
        let region = Region::create(1).unwrap();
        let slot = region.slots().reserve().unwrap();
        region.expect_result(slot);
        assert!(!region.hand_in(slot, &result(Some(&"o".repeat(layout::HANDED_TEXT_BYTES)), Some("e"))));
        assert_eq!(region.handed_in(slot), None);
    }

    #[test]
    fn a_result_of_another_use_of_the_slot_is_none() {
        let region = Region::create(1).unwrap();
        let first = region.slots().reserve().unwrap();
        assert!(region.hand_in(first, &result(Some("1"), None)));
        region.slots().release(first);
        let second = region.slots().reserve().unwrap();
        assert_eq!(region.handed_in(second), None);
    }
}
