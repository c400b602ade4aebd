//! Whose name the server runs under: PostgreSQL refuses to run as root.
//!
//! A launcher that is not root runs the server as itself. A root launcher takes the owner of an
//! existing folder, or else the first of a few system users that exists, and every program of
//! the server is started with that uid and gid and without supplementary groups.
//!
//! What can go wrong: no such user, or a folder above DIR that this user may not pass.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, User, getegid, geteuid};

/// In order of preference; the last exists nearly everywhere.
const CANDIDATES: [&str; 3] = ["postgres", "pgsql", "nobody"];

/// The user that owns the folder and runs the server programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemUser {
    pub name: String,
    pub uid: Uid,
    pub gid: Gid,
}

#[derive(Debug, thiserror::Error)]
pub enum SystemUserError {
    #[error("the server cannot run as root, and none of these users exists: {}", CANDIDATES.join(", "))]
    NoneExists,
    #[error("cannot look up user {name}")]
    Lookup { name: String, source: nix::Error },
    #[error("{dir} belongs to {owner}, not to {myself}; run as {owner}, or name another folder")]
    NotMine { dir: PathBuf, owner: String, myself: String },
    #[error(
        "user {user}, which runs the server, may not enter the folder {folder}; \
         name another folder, or run: chmod o+x {folder}"
    )]
    Unsearchable { user: String, folder: PathBuf },
    #[error("user {user}, which runs the server, cannot run {program} in {folder}")]
    Unreachable { user: String, program: PathBuf, folder: PathBuf, source: io::Error },
}

/// Owner and group of a folder that exists already.
#[derive(Debug, Clone, Copy)]
pub struct FolderOwner {
    pub uid: Uid,
    pub gid: Gid,
}

impl SystemUser {
    /// Whom to run as, for `dir` with this owner (`None`: it does not exist yet).
    pub fn choose(dir: &Path, owner: Option<FolderOwner>) -> Result<SystemUser, SystemUserError> {
        let me = geteuid();
        match owner {
            Some(owner) if me.is_root() && !owner.uid.is_root() => Ok(SystemUser {
                name: name_of(owner.uid),
                uid: owner.uid,
                // Someone without an entry has no group of his own but the folder's.
                gid: entry_of(owner.uid).map_or(owner.gid, |user| user.gid),
            }),
            Some(_) | None if me.is_root() => first_existing(),
            Some(owner) if owner.uid != me => {
                Err(SystemUserError::NotMine { dir: dir.to_owned(), owner: name_of(owner.uid), myself: name_of(me) })
            }
            Some(_) | None => Ok(SystemUser { name: name_of(me), uid: me, gid: getegid() }),
        }
    }

    /// Lets `command` run as this user. Setting the uid drops root's supplementary groups too.
    pub fn assume(&self, command: &mut Command) {
        if geteuid().is_root() {
            command.gid(self.gid.as_raw()).uid(self.uid.as_raw());
        }
    }

    /// Can this user run `program` from within `folder`? The kernel answers, by a trial, so that
    /// access lists count as well; the mode bits only name the folder that is in the way.
    pub fn try_reach(&self, folder: &Path, program: &Path) -> Result<(), SystemUserError> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let mut trial = Command::new(program);
        trial
            .arg(OsStr::new("--version"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.assume(&mut trial);
        let source = match trial.status() {
            Ok(_) => return Ok(()),
            Err(source) => source,
        };
        let user = self.name.clone();
        let outermost_first: Vec<&Path> = folder.ancestors().collect();
        Err(match outermost_first.iter().rev().find(|f| !self.may_pass(f)) {
            Some(folder) => SystemUserError::Unsearchable { user, folder: folder.to_path_buf() },
            None => {
                SystemUserError::Unreachable { user, program: program.to_owned(), folder: folder.to_owned(), source }
            }
        })
    }

    fn may_pass(&self, folder: &Path) -> bool {
        let Ok(metadata) = folder.metadata() else {
            return false;
        };
        let bit = if metadata.uid() == self.uid.as_raw() {
            0o100
        } else if metadata.gid() == self.gid.as_raw() {
            0o010
        } else {
            0o001
        };
        metadata.mode() & bit != 0
    }
}

fn first_existing() -> Result<SystemUser, SystemUserError> {
    for name in CANDIDATES {
        let found =
            User::from_name(name).map_err(|source| SystemUserError::Lookup { name: name.to_owned(), source })?;
        if let Some(user) = found.filter(|user| !user.uid.is_root()) {
            return Ok(SystemUser { name: user.name, uid: user.uid, gid: user.gid });
        }
    }
    Err(SystemUserError::NoneExists)
}

fn entry_of(uid: Uid) -> Option<User> {
    User::from_uid(uid).ok().flatten()
}

fn name_of(uid: Uid) -> String {
    entry_of(uid).map_or_else(|| format!("uid {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_root_launcher_never_runs_the_server_as_root() {
        if !geteuid().is_root() {
            return;
        }
        let root = FolderOwner { uid: Uid::from_raw(0), gid: Gid::from_raw(0) };
        for owner in [None, Some(root)] {
            let user = SystemUser::choose(Path::new("/x"), owner).unwrap();
            assert!(!user.uid.is_root() && user.gid.as_raw() != 0, "{user:?}");
        }
    }

    #[test]
    fn the_owner_of_a_folder_runs_its_server() {
        if !geteuid().is_root() {
            return;
        }
        let owner = FolderOwner { uid: Uid::from_raw(54_321), gid: Gid::from_raw(54_322) };
        let user = SystemUser::choose(Path::new("/x"), Some(owner)).unwrap();
        assert_eq!((user.uid, user.gid), (owner.uid, owner.gid));
        assert_eq!(user.name, "uid 54321");
    }

    #[test]
    fn without_root_a_folder_of_someone_else_is_refused_by_name() {
        if geteuid().is_root() {
            return;
        }
        let owner = FolderOwner { uid: Uid::from_raw(0), gid: Gid::from_raw(0) };
        let error = SystemUser::choose(Path::new("/x"), Some(owner)).unwrap_err();
        assert!(error.to_string().contains("belongs to root"), "{error}");
    }
}
