//! Memory of a worker that has just been forked: fresh pages of its own, used once, one after the other.
//!
//! What a child takes from the heap that it shares with its parent lies about in pages that are copied when they are
//! written to, and the heap's own books in more of them; for a task of a millisecond that is a good part of what the fork
//! costs. So a worker that is told to (`settle`) takes its memory from here and gives none back, neither this nor what its
//! parent has left it. When the nest is full the heap is used as by everybody else, and what comes from there goes back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const BYTES: usize = 512 * 1024;

/// Zero, and without a page of its own until somebody writes to it.
#[repr(align(4096))]
struct Nest(UnsafeCell<[u8; BYTES]>);

// SAFETY: only `Allocator` hands parts of it out, and none of them twice (`place`).
unsafe impl Sync for Nest {}

static NEST: Nest = Nest(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);
/// All that this process has asked for since `settle` was given from the nest.
static YOUNG: AtomicBool = AtomicBool::new(false);

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// From now on this process takes its memory from the nest, until that is full. Once in the life of a short-lived child.
pub fn settle() {
    YOUNG.store(true, Relaxed);
}

/// Where the next piece may lie, and where it ends; None: there is no room.
fn place(used: usize, size: usize, align: usize) -> Option<(usize, usize)> {
    let start = used.checked_next_multiple_of(align)?;
    let end = start.checked_add(size)?;
    (align <= 4096 && end <= BYTES).then_some((start, end))
}

/// A piece that nobody else has; it is zero.
fn take(layout: Layout) -> Option<*mut u8> {
    if !YOUNG.load(Relaxed) {
        return None;
    }
    let next = |used| place(used, layout.size(), layout.align()).map(|(_, end)| end);
    let Ok(used) = USED.fetch_update(Relaxed, Relaxed, next) else {
        YOUNG.store(false, Relaxed);
        return None;
    };
    let (start, _) = place(used, layout.size(), layout.align())?;
    Some(NEST.0.get().cast::<u8>().wrapping_add(start))
}

fn is_ours(piece: *mut u8) -> bool {
    (piece as usize).wrapping_sub(NEST.0.get() as usize) < BYTES
}

// SAFETY: a piece is a part of the nest that was given to nobody before and to nobody after, aligned as asked (the nest
// itself begins at a page), or the system's. Pieces of the nest are never given to the system; what the system gave goes
// back to it, or is kept for ever.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        take(layout).unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        take(layout).unwrap_or_else(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // As long as we are young, what is not ours is our parent's.
        if !is_ours(piece) && !YOUNG.load(Relaxed) {
            // SAFETY: it is the system's, and the rest is as the caller promises.
            unsafe { System.dealloc(piece, layout) };
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_ours(piece) && !YOUNG.load(Relaxed) {
            // SAFETY: it is the system's, and the rest is as the caller promises.
            return unsafe { System.realloc(piece, layout, size) };
        }
        // SAFETY: the caller promises that the size fits the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero, as the caller promises.
        let larger = unsafe { self.alloc(wanted) };
        if !larger.is_null() {
            // SAFETY: both are as long as is copied, and the new one overlaps with nothing.
            unsafe { std::ptr::copy_nonoverlapping(piece, larger, layout.size().min(size)) };
        }
        larger
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, place};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_follow_each_other_aligned_and_never_overlap(asked in prop::collection::vec((1usize..5000, 0u32..13), 1..300)) {
            let mut used = 0;
            for (size, shift) in asked {
                let align = 1 << shift;
                let Some((start, end)) = place(used, size, align) else {
                    prop_assert!(used.next_multiple_of(align) + size > BYTES);
                    continue;
                };
                prop_assert!(start >= used && start.is_multiple_of(align) && end == start + size && end <= BYTES);
                used = end;
            }
        }
    }

    #[test]
    fn what_cannot_fit_is_refused_and_not_miscounted() {
        assert_eq!(place(0, BYTES, 4096), Some((0, BYTES)));
        assert_eq!(place(1, BYTES, 1), None);
        assert_eq!(place(8, usize::MAX, 1), None);
        assert_eq!(place(0, 1, 8192), None);
    }
}
