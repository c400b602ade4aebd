//! A disk that a test can fill and free: a tmpfs of its own, on which a cluster has its data or its write-ahead log.
//!
//! Only root may mount. A guardian unmounts it, also after kill -9 of the test; lazily, because the server that has its data
//! there is ended by another guardian.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::guardian::Guardian;
use crate::server_programs::ServerUser;

#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
    _guardian: Guardian,
}

impl SmallDisk {
    /// `None` where nothing may be mounted; the caller prints its SKIPPED line.
    pub fn mount(megabytes: u32) -> Option<SmallDisk> {
        let mut guardian = Guardian::start(&ServerUser::own_self(), r#"umount -l "$home/disk" 2>/dev/null"#);
        let folder = guardian.home().join("disk");
        fs::create_dir(&folder).expect("a folder to mount at");
        let mount = format!(r#"mount -t tmpfs -o size={megabytes}m,mode=0755 tmpfs "$home/disk" 2>/dev/null"#);
        if guardian.run(&mount) != 0 {
            return None;
        }
        ServerUser::find().own(&folder);
        Some(SmallDisk { folder, _guardian: guardian })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes all the space that is left. A server that gives space back meanwhile makes it worth calling again.
    pub fn fill(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.filler()).expect("the filler");
        for piece in [1 << 20, 4096] {
            write_until_full(&mut file, &vec![0; piece]);
        }
    }

    /// Gives it back.
    pub fn free(&self) {
        match fs::remove_file(self.filler()) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("free the disk: {error}"),
            _ => {}
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }
}

fn write_until_full(file: &mut File, piece: &[u8]) {
    loop {
        match file.write(piece) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return,
            Err(error) => panic!("fill the disk: {error}"),
        }
    }
}
