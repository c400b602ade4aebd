//! Memory that a whole family of processes shares: a sealed memfd, mapped MAP_SHARED, seen only as atomic words.
//!
//! No reference to plain memory ever leaves this room: others write to it at any time, so a `&[u8]` over it would be
//! undefined behaviour. An anonymous map would not do either: it is private after a fork.

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A run of shared 64-bit words. Clones share the same map.
#[derive(Clone, Debug)]
pub struct Words {
    map: Arc<MmapRaw>,
    file: Arc<File>,
    count: usize,
}

impl Words {
    /// Makes `count` words, all zero. The size can never change afterwards (a shrunk file would raise SIGBUS).
    pub fn create(name: &str, count: usize) -> io::Result<Words> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(name, flags).map_err(io::Error::from)?);
        file.set_len((count * size_of::<u64>()) as u64)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(io::Error::from)?;
        let map = MmapOptions::new().map_raw(&file)?;
        Ok(Words { map: Arc::new(map), file: Arc::new(file), count })
    }

    /// The words behind a descriptor that another program has made: as many as they say, if all is as it should be.
    pub fn open(file: File) -> io::Result<Words> {
        let bytes = file.metadata()?.len();
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map_err(io::Error::from)?;
        let fixed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        if bytes == 0 || bytes % size_of::<u64>() as u64 != 0 || seals & fixed.bits() != fixed.bits() {
            return Err(io::Error::other("the descriptor is no memory of ours"));
        }
        let map = MmapOptions::new().map_raw(&file)?;
        Ok(Words { map: Arc::new(map), file: Arc::new(file), count: bytes as usize / size_of::<u64>() })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The word at `index`. Panics when out of bounds: indices come from our own layout.
    pub fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} lies outside a region of {} words", self.count);
        // SAFETY: the map is page-aligned, holds `count` words and lives as long as `self`; every access by every
        // process is atomic, because this is the only way to reach it.
        unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>().add(index) }
    }
}

impl AsFd for Words {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
