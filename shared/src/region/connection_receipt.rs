//! What a worker reports, last of all, about the connection that it leaves to its parent.
//!
//! The parent wipes the words before the fork, the worker writes them before it leaves, and the parent reads them when
//! it has seen the end: so there is one writer at a time. The mark comes last and carries the generation of the slot;
//! without it, or with another generation in it, nothing is known about the connection, and it must not be used again.

use super::slot::SlotHandle;
use super::{Region, layout};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const CLEAN: u64 = 1;

/// How a worker has left a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionReceipt {
    /// The transaction status: I, T or E.
    pub status: u8,
    /// Bytes received and not read.
    pub unread: u64,
    /// Requests sent that are answered by a ReadyForQuery, and ReadyForQuery seen.
    pub asked: u64,
    pub answered: u64,
}

impl ConnectionReceipt {
    /// Nothing is under way: the next word on it is the parent's.
    pub fn is_quiet(self) -> bool {
        self.status == b'I' && self.unread == 0 && self.asked == self.answered
    }
}

impl Region {
    /// By the parent, before the fork.
    pub fn expect_return(&self, slot: SlotHandle) {
        self.receipt_word(slot, layout::RECEIPT_MARK).store(0, Release);
    }

    /// By the worker, last of all.
    pub fn leave_clean(&self, slot: SlotHandle, receipt: ConnectionReceipt) {
        self.receipt_word(slot, layout::RECEIPT_STATUS).store(u64::from(receipt.status), Relaxed);
        self.receipt_word(slot, layout::RECEIPT_UNREAD).store(receipt.unread, Relaxed);
        self.receipt_word(slot, layout::RECEIPT_ASKED).store(receipt.asked, Relaxed);
        self.receipt_word(slot, layout::RECEIPT_ANSWERED).store(receipt.answered, Relaxed);
        self.receipt_word(slot, layout::RECEIPT_MARK).store(u64::from(slot.generation()) << 8 | CLEAN, Release);
    }

    /// By the parent, once the worker is gone. None: it did not come to its end, or it was another use of the slot.
    pub fn left_clean(&self, slot: SlotHandle) -> Option<ConnectionReceipt> {
        let mark = self.receipt_word(slot, layout::RECEIPT_MARK).load(Acquire);
        (mark == u64::from(slot.generation()) << 8 | CLEAN).then(|| ConnectionReceipt {
            status: self.receipt_word(slot, layout::RECEIPT_STATUS).load(Relaxed) as u8,
            unread: self.receipt_word(slot, layout::RECEIPT_UNREAD).load(Relaxed),
            asked: self.receipt_word(slot, layout::RECEIPT_ASKED).load(Relaxed),
            answered: self.receipt_word(slot, layout::RECEIPT_ANSWERED).load(Relaxed),
        })
    }

    fn receipt_word(&self, slot: SlotHandle, word: usize) -> &AtomicU64 {
        self.words.at(layout::receipt_start(self.limit, slot.index()) + word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: ConnectionReceipt = ConnectionReceipt { status: b'I', unread: 0, asked: 4, answered: 4 };

    #[test]
    fn only_the_mark_of_this_use_of_the_slot_counts() {
        let region = Region::create(1).unwrap();
        let first = region.slots().reserve().unwrap();
        region.expect_return(first);
        assert_eq!(region.left_clean(first), None);
        region.leave_clean(first, QUIET);
        assert_eq!(region.left_clean(first), Some(QUIET));
        region.slots().release(first);
        let second = region.slots().reserve().unwrap();
        // The mark of the one before it.
        assert_eq!(region.left_clean(second), None);
        region.leave_clean(second, QUIET);
        region.expect_return(second);
        assert_eq!(region.left_clean(second), None);
    }

    #[test]
    fn whatever_is_under_way_is_not_quiet() {
        assert!(QUIET.is_quiet());
        for odd in [
            ConnectionReceipt { status: b'T', ..QUIET },
            ConnectionReceipt { status: b'E', ..QUIET },
            ConnectionReceipt { unread: 1, ..QUIET },
            ConnectionReceipt { asked: 5, ..QUIET },
            ConnectionReceipt { answered: 5, ..QUIET },
        ] {
            assert!(!odd.is_quiet(), "{odd:?}");
        }
    }
}
