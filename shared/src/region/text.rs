//! A short text in the region: one writer, any readers.
//!
//! The first word holds a sequence in the upper half and the length in the lower. The sequence is odd while the text is being
//! written, so a reader takes a torn text for none.

use super::layout;
use crate::sys::map::Words;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Writes at most `TEXT_BYTES`, cut at a character.
pub(super) fn write(words: &Words, at: usize, text: &str) {
    let mut end = text.len().min(layout::TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = &text.as_bytes()[..end];
    // A writer that died half way left the sequence odd: go on from the next even number.
    let sequence = (words.at(at).load(Relaxed) >> 32).next_multiple_of(2);
    words.at(at).store((sequence + 1) << 32, SeqCst);
    for (i, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        words.at(at + 1 + i).store(u64::from_le_bytes(word), SeqCst);
    }
    words.at(at).store((sequence + 2) << 32 | bytes.len() as u64, SeqCst);
}

pub(super) fn read(words: &Words, at: usize) -> Option<String> {
    let head = words.at(at).load(SeqCst);
    let length = (head & 0xFFFF_FFFF) as usize;
    if (head >> 32) % 2 == 1 || length > layout::TEXT_BYTES {
        return None;
    }
    let mut bytes: Vec<u8> =
        (0..length.div_ceil(8)).flat_map(|i| words.at(at + 1 + i).load(SeqCst).to_le_bytes()).collect();
    bytes.truncate(length);
    (words.at(at).load(SeqCst) == head).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
