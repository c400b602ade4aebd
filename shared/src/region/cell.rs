//! Cells: how a child gets its parameters.
//!
//! The word is (generation, state). The parent fills the payload and publishes it with one release store; the child
//! copies it as atomic words between an acquire load and a compare-and-swap of the word, so that it either had the
//! whole of its own payload or knows that it had not:
//!
//! ```text
//!     FREE ──fill──▶ FILLING ──▶ PUBLISHED ──accept (child)──▶ ACCEPTED ──free (parent)──▶ FREE
//!                                    └────────── free (parent: late, or the child died) ──────▶ FREE
//! ```
//!
//! The signal that the child sends afterwards only wakes the parent: it reads the words of all its cells. Freeing
//! wipes the payload, because it holds passwords. A late child finds its ticket stale and runs nothing; a payload
//! that does not match its checksum runs nothing either.

use super::layout;
use crate::sys::map::Words;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const FREE: u64 = 0;
const FILLING: u64 = 1;
const PUBLISHED: u64 = 2;
const ACCEPTED: u64 = 3;
const STATE_BITS: u64 = 8;

/// What a child is started with: which cell, and in which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub index: u32,
    pub generation: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    #[error("the parameters take {0} bytes, a cell holds {max}", max = layout::CELL_PAYLOAD_BYTES)]
    TooLong(usize),
    #[error("cell {0} is in use")]
    Busy(u32),
    #[error("the cell does not belong to this process any more")]
    Stale,
    #[error("the cell is damaged")]
    Damaged,
}

fn word(generation: u32, state: u64) -> u64 {
    u64::from(generation) << STATE_BITS | state
}

fn generation_of(word: u64) -> u32 {
    (word >> STATE_BITS) as u32
}

fn state_of(word: u64) -> u64 {
    word & ((1 << STATE_BITS) - 1)
}

struct Cell<'a> {
    words: &'a Words,
    start: usize,
}

impl<'a> Cell<'a> {
    fn at(words: &'a Words, limit: u32, index: u32) -> Cell<'a> {
        Cell { words, start: layout::cell_start(limit, index) }
    }

    fn word(&self) -> &'a AtomicU64 {
        self.words.at(self.start + layout::CELL_WORD)
    }

    fn field(&self, field: usize) -> &'a AtomicU64 {
        self.words.at(self.start + field)
    }

    fn wipe_payload(&self) {
        for i in layout::CELL_LENGTH..layout::CELL_WORDS {
            // Release: nobody may see a wiped word before the word that says FILLING.
            self.field(i).store(0, Release);
        }
    }
}

pub(super) fn fill(words: &Words, limit: u32, index: u32, payload: &[u8]) -> Result<Ticket, CellError> {
    if payload.len() > layout::CELL_PAYLOAD_BYTES {
        return Err(CellError::TooLong(payload.len()));
    }
    let cell = Cell::at(words, limit, index);
    let seen = cell.word().load(Acquire);
    let generation = generation_of(seen).wrapping_add(1);
    let filling = word(generation, FILLING);
    if state_of(seen) != FREE || cell.word().compare_exchange(seen, filling, AcqRel, Acquire).is_err() {
        return Err(CellError::Busy(index));
    }
    cell.field(layout::CELL_LENGTH).store(payload.len() as u64, Relaxed);
    cell.field(layout::CELL_CHECKSUM).store(checksum(generation, payload), Relaxed);
    for (i, chunk) in payload.chunks(8).enumerate() {
        let mut bytes = [0u8; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        cell.field(layout::CELL_PAYLOAD + i).store(u64::from_le_bytes(bytes), Relaxed);
    }
    cell.word().store(word(generation, PUBLISHED), Release);
    Ok(Ticket { index, generation })
}

pub(super) fn accept(words: &Words, limit: u32, ticket: Ticket) -> Result<Vec<u8>, CellError> {
    if ticket.index >= limit {
        return Err(CellError::Stale);
    }
    let cell = Cell::at(words, limit, ticket.index);
    let published = word(ticket.generation, PUBLISHED);
    if cell.word().load(Acquire) != published {
        return Err(CellError::Stale);
    }
    let length = cell.field(layout::CELL_LENGTH).load(Relaxed) as usize;
    let sum = cell.field(layout::CELL_CHECKSUM).load(Relaxed);
    let readable = length.min(layout::CELL_PAYLOAD_BYTES);
    let mut payload: Vec<u8> = (0..readable.div_ceil(8))
        .flat_map(|i| cell.field(layout::CELL_PAYLOAD + i).load(Relaxed).to_le_bytes())
        .collect();
    payload.truncate(readable);
    if length > layout::CELL_PAYLOAD_BYTES || checksum(ticket.generation, &payload) != sum {
        // Freed and wiped under our hands looks like damage: ask the word which it was.
        return Err(if cell.word().load(SeqCst) == published { CellError::Damaged } else { CellError::Stale });
    }
    match cell.word().compare_exchange(published, word(ticket.generation, ACCEPTED), AcqRel, Acquire) {
        Ok(_) => Ok(payload),
        Err(_) => Err(CellError::Stale),
    }
}

pub(super) fn published(words: &Words, limit: u32, index: u32) -> Option<Ticket> {
    let seen = Cell::at(words, limit, index).word().load(Acquire);
    (state_of(seen) == PUBLISHED).then(|| Ticket { index, generation: generation_of(seen) })
}

pub(super) fn accepted(words: &Words, limit: u32, ticket: Ticket) -> bool {
    Cell::at(words, limit, ticket.index).word().load(Acquire) == word(ticket.generation, ACCEPTED)
}

pub(super) fn free(words: &Words, limit: u32, ticket: Ticket) {
    let cell = Cell::at(words, limit, ticket.index);
    for state in [ACCEPTED, PUBLISHED, ACCEPTED] {
        // Published may become accepted under our hands, so that is tried again; anything else is not this ticket's.
        let seen = word(ticket.generation, state);
        if cell.word().compare_exchange(seen, word(ticket.generation, FILLING), AcqRel, Acquire).is_ok() {
            cell.wipe_payload();
            cell.word().store(word(ticket.generation, FREE), Release);
            return;
        }
    }
}

/// Frees the cell of a dead process, whatever its state. FILLING first: a child that is just copying loses its
/// compare-and-swap before it can take wiped words for its parameters.
pub(super) fn wipe(words: &Words, limit: u32, index: u32) {
    let cell = Cell::at(words, limit, index);
    let generation = generation_of(cell.word().load(Acquire));
    cell.word().store(word(generation, FILLING), SeqCst);
    cell.wipe_payload();
    cell.word().store(word(generation, FREE), Release);
}

pub(super) fn in_use(words: &Words, limit: u32, index: u32) -> bool {
    state_of(Cell::at(words, limit, index).word().load(Acquire)) != FREE
}

/// FNV-1a over generation and payload: catches stray writes, not malice.
fn checksum(generation: u32, payload: &[u8]) -> u64 {
    let bytes = generation.to_le_bytes();
    bytes
        .iter()
        .chain(payload)
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::CellError;
    use crate::region::{CELL_PAYLOAD_BYTES, Region, Ticket};

    fn one_cell() -> (Region, crate::region::SlotHandle) {
        let region = Region::create(1).unwrap();
        let slot = region.slots().reserve().unwrap();
        (region, slot)
    }

    #[test]
    fn what_was_filled_is_what_is_accepted_once() {
        let (region, slot) = one_cell();
        for length in [0, 1, 7, 8, 9, CELL_PAYLOAD_BYTES] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let ticket = region.fill(slot, &payload).unwrap();
            assert!(!region.accepted(ticket));
            assert_eq!(region.accept(ticket).unwrap(), payload);
            assert!(region.accepted(ticket));
            assert_eq!(region.accept(ticket), Err(CellError::Stale));
            region.free(ticket);
            assert!(region.cells_are_wiped());
        }
    }

    #[test]
    fn a_payload_that_does_not_fit_is_refused_by_its_size() {
        let (region, slot) = one_cell();
        let long = vec![1u8; CELL_PAYLOAD_BYTES + 1];
        assert_eq!(region.fill(slot, &long), Err(CellError::TooLong(CELL_PAYLOAD_BYTES + 1)));
        assert_eq!(region.cells_in_use(), 0);
    }

    #[test]
    fn a_late_child_finds_its_ticket_stale() {
        let (region, slot) = one_cell();
        let late = region.fill(slot, b"first").unwrap();
        region.free(late);
        assert_eq!(region.accept(late), Err(CellError::Stale));
        let next = region.fill(slot, b"second").unwrap();
        assert_eq!(region.accept(late), Err(CellError::Stale));
        // Freeing by the old ticket does not touch the new parameters.
        region.free(late);
        assert_eq!(region.accept(next).unwrap(), b"second");
    }

    #[test]
    fn a_wrong_generation_or_index_is_stale() {
        let (region, slot) = one_cell();
        let ticket = region.fill(slot, b"x").unwrap();
        let wrong = Ticket { generation: ticket.generation + 1, ..ticket };
        assert_eq!(region.accept(wrong), Err(CellError::Stale));
        assert_eq!(region.accept(Ticket { index: 9, ..ticket }), Err(CellError::Stale));
    }

    #[test]
    fn a_damaged_payload_is_not_accepted() {
        let (region, slot) = one_cell();
        let ticket = region.fill(slot, b"parameters").unwrap();
        region.damage(ticket);
        assert_eq!(region.accept(ticket), Err(CellError::Damaged));
    }
}
