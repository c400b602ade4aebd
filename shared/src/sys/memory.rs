//! Memory that parent and child share after a fork: every page that one of them writes to is copied, one fault at a time,
//! and what neither of them needs is counted for both.

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

/// Gives back to the kernel what of the heap nobody uses: what a start, an installation or another large piece of work has left
/// behind would else be part of this process, and of all that are forked from it, for as long as they live.
pub fn shed_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: looks only at what the allocator itself holds as free, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// So much below the frame of `shed_stack` may still be in use: its own calls, and a signal that comes meanwhile.
const KEPT_STACK_BYTES: usize = 16 * 1024;
/// How far below that frame a parent may have been. The kernel keeps more than that free of other mappings.
const LEFT_STACK_BYTES: usize = 256 * 1024;

/// By a child that will be here for a while, on its first thread: what its parent's deeper calls have left on the stack goes.
#[inline(never)]
pub fn shed_stack() {
    let frame = 0_u8;
    let frame = std::hint::black_box(&raw const frame) as usize;
    let end = frame.saturating_sub(KEPT_STACK_BYTES) & !4095;
    if let Some(start) = NonNull::new(end.saturating_sub(LEFT_STACK_BYTES) as *mut c_void) {
        // SAFETY: nothing below a thread's stack pointer is anybody's but for the frames that it has not entered yet, which
        // begin with what they write; and where the stack does not reach so far there is nothing that could be hit.
        let _ = unsafe { madvise(start, LEFT_STACK_BYTES, MmapAdvise::MADV_DONTNEED) };
    }
}

/// The code that this process has run so far need not be part of it while it waits; what it runs next comes back by itself.
pub fn shed_code() {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for (start, length) in maps.lines().filter_map(code) {
        if let Some(start) = NonNull::new(start as *mut c_void) {
            // SAFETY: these mappings hold what is in their file and nothing else, and are read from there again when they are
            // needed; what the loader has changed, or the program can change, is in others (`code`).
            let _ = unsafe { madvise(start, length, MmapAdvise::MADV_DONTNEED) };
        }
    }
}

/// Where the code of a file lies, or its constants, if this line of the kernel's list tells of some. Constants stand at the
/// file's beginning; what cannot be written to and stands elsewhere is what the loader has filled in.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, offset, file) = (words.next()?, words.next()?, words.nth(2)?);
    let [start, end, offset] = [start, end, offset].map(|number| usize::from_str_radix(number, 16).ok());
    let kept = rights == "r-xp" || (rights == "r--p" && offset == Some(0));
    (kept && file.starts_with('/')).then_some((start?, end?.checked_sub(start?)?))
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
        shed_heap();
        shed_code();
        assert!(kept.iter().enumerate().all(|(at, number)| **number == at as u64));
    }

    #[test]
    fn only_code_and_constants_of_a_file_are_shed() {
        let of = |rights, offset, file| code(&format!("7f00-9f00 {rights} {offset} fe:00 325843   {file}"));
        let whole = Some((0x7f00, 0x2000));
        assert_eq!([of("r-xp", "0026e000", "/bin/launcher"), of("r--p", "00000000", "/bin/launcher")], [whole; 2]);
        assert_eq!([of("r--p", "007d6000", "/bin/launcher"), of("rw-p", "00000000", "/bin/launcher")], [None; 2]);
        assert_eq!([of("r-xp", "00000000", "[vdso]"), code("7f00-9f00 r-xp 00000000 00:00 0")], [None; 2]);
    }
}
