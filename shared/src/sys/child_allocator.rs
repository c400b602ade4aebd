//! The allocator of the programs that fork workers: a forked child can take its memory from fresh pages of its own.
//!
//! A child shares its parent's heap. Every page of the heap that the child writes to is copied, and the heap's own
//! administration is spread over more of them; for a task of a millisecond these copies are a good part of the cost of
//! the fork. So a worker calls `activate`: from then on its memory comes from one static arena, piece after piece, and
//! nothing is freed, neither this nor what the parent has left. When the arena is full, the heap is used again, and its
//! memory is freed again.
//!
//! The programs install it (`#[global_allocator]` in their `main.rs`). Without it `activate` has no effect.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// A short task of a worker needs less. The kernel gives a page to the arena only when it is written to.
const BYTES: usize = 512 * 1024;

/// All zero at first.
#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: only `ChildAllocator` hands out parts of it, and none of them twice (`place`).
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);
/// Since `activate`, every piece of this process came from the arena.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The system's allocator, with the arena in front of it once `activate` was called.
#[derive(Debug)]
pub struct ChildAllocator;

/// From now on this process takes its memory from the arena, until that is full. Once in the life of a short-lived child.
pub fn activate() {
    ACTIVE.store(true, Relaxed);
}

/// Start and end of the next piece; None: there is no room.
fn place(used: usize, size: usize, align: usize) -> Option<(usize, usize)> {
    let start = used.checked_next_multiple_of(align)?;
    let end = start.checked_add(size)?;
    (align <= 4096 && end <= BYTES).then_some((start, end))
}

/// A zeroed piece that was handed out to no caller before.
fn next_piece(layout: Layout) -> Option<*mut u8> {
    if !ACTIVE.load(Relaxed) {
        return None;
    }
    let next = |used| place(used, layout.size(), layout.align()).map(|(_, end)| end);
    let Ok(used) = USED.fetch_update(Relaxed, Relaxed, next) else {
        ACTIVE.store(false, Relaxed);
        return None;
    };
    let (start, _) = place(used, layout.size(), layout.align())?;
    Some(ARENA.0.get().cast::<u8>().wrapping_add(start))
}

fn is_in_arena(piece: *mut u8) -> bool {
    (piece as usize).wrapping_sub(ARENA.0.get() as usize) < BYTES
}

// SAFETY: a piece is either a part of the arena that is handed out once, aligned as asked (the arena itself begins at a page),
// or the system's. Pieces of the arena are never given to the system; those of the system go back to it, or are kept for ever.
unsafe impl GlobalAlloc for ChildAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        next_piece(layout).unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        next_piece(layout).unwrap_or_else(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // While the arena is in use, other pieces are from before the fork: to free one would write to the parent's heap.
        if !is_in_arena(piece) && !ACTIVE.load(Relaxed) {
            // SAFETY: it is the system's, and the rest is as the caller promises.
            unsafe { System.dealloc(piece, layout) };
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_in_arena(piece) && !ACTIVE.load(Relaxed) {
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
