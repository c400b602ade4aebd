//! What a fork leaves behind in the parent: every page that it writes next has to be copied, one fault at a time.

use nix::sys::mman::{MmapAdvise, madvise};
use std::ffi::c_void;
use std::fs;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// More is not copied beforehand: most of it would not be written.
const MOST_BYTES: usize = 1 << 20;

/// Copies the heap of this process at once, which its children share with it since they were forked: here and now, where it
/// has time, instead of page by page when the next thing has to be done quickly. Where the kernel cannot do that (before
/// 5.14), or the heap is somewhere else, or large, nothing is done, and nothing but time is lost.
pub fn own_again() {
    static FIRST: OnceLock<Option<usize>> = OnceLock::new();
    let Some(first) = *FIRST.get_or_init(first_byte) else { return };
    // SAFETY: asks where the heap ends, and changes nothing.
    let end = unsafe { libc::sbrk(0) } as usize;
    let length = end.saturating_sub(first);
    if length == 0 || length > MOST_BYTES {
        return;
    }
    if let Some(start) = NonNull::new(first as *mut c_void) {
        // SAFETY: populating changes no byte of what is there, whoever owns it; and a range that is not all there is refused.
        let _ = unsafe { madvise(start, length, MmapAdvise::MADV_POPULATE_WRITE) };
    }
}

/// Where the heap begins: the kernel says so, and it stays there.
fn first_byte() -> Option<usize> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let heap = maps.lines().find(|line| line.ends_with("[heap]"))?;
    usize::from_str_radix(heap.split('-').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_heap_stays_as_it_is() {
        let kept: Vec<Box<u64>> = (0..1000).map(Box::new).collect();
        own_again();
        assert!(kept.iter().enumerate().all(|(at, number)| **number == at as u64));
    }
}
