//! DIR: the folder of a private server, what lies in it, and what is refused.
//!
//! ```text
//! DIR/                   0700, the server user's: who may enter may connect (auth is trust)
//! DIR/data/              the cluster; DIR/data.new/ while it is being made
//! DIR/server.log         what the server and initdb write; .old is the one before
//! DIR/launcher.lock      held by the launcher that supervises this server
//! DIR/.s.PGSQL.5432      the socket
//! ```
//!
//! Called by the start only. A root launcher writes here into a folder of someone else, so it
//! follows no link in it, takes no second name of a file, and never gives away a folder that
//! has things in it.

use crate::limits::SOCKET_PATH_MAX;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::unistd::{Gid, Pid, Uid, geteuid};

use super::programs::SUPPORTED;
use super::system_user::{FolderOwner, SystemUser};

/// The port names the socket file; nothing listens on a network.
pub const PORT: u16 = 5432;

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{what} {path}")]
    System { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the path {path} has {length} bytes, but the folder of a server's socket may have at most {limit}; \
         name a shorter one"
    )]
    TooLong { path: PathBuf, length: usize, limit: usize },
    #[error(
        "the path {path:?} does not fit into a connection string (not UTF-8, a comma or a control \
         character); name another folder"
    )]
    BadName { path: PathBuf },
    #[error("{path} exists and is not a folder")]
    NotAFolder { path: PathBuf },
    #[error(
        "{path} belongs to root and is not empty; name a new folder, or change its owner to the user that \
         runs the server"
    )]
    RootsThings { path: PathBuf },
    #[error(
        "{path} is accessible to other users (mode {mode:03o}), who could connect to the server; \
         chmod 700 it, or name another folder"
    )]
    TooOpen { path: PathBuf, mode: u32 },
    #[error("{path} exists and is not a data folder of PostgreSQL; name another folder")]
    Foreign { path: PathBuf },
    #[error(
        "{path} was created by PostgreSQL {version}; supported versions are {} to {}",
        SUPPORTED.start(),
        SUPPORTED.end()
    )]
    UnsupportedMajor { path: PathBuf, version: String },
    #[error("{path} is in use by another launcher (pid {pid})")]
    InUse { path: PathBuf, pid: Pid },
    #[error("{path} is not a regular file")]
    NotPlain { path: PathBuf },
}

/// What `DIR/data` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Missing,
    Made { major: u32 },
}

/// The resolved DIR: absolute, free of links, writable into a connection string.
#[derive(Debug, Clone)]
pub struct DataFolder {
    path: PathBuf,
    text: String,
}

impl DataFolder {
    /// Resolves the name; changes nothing.
    pub fn resolve(dir: &Path) -> Result<DataFolder, FolderError> {
        let path = match dir.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = match dir.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    Some(_) | None => Path::new("."),
                };
                let parent = parent.canonicalize().map_err(system("cannot find the folder", parent))?;
                match dir.file_name() {
                    Some(name) => parent.join(name),
                    None => return Err(system("cannot find the folder", dir)(error)),
                }
            }
            found => found.map_err(system("cannot find the folder", dir))?,
        };
        let limit = SOCKET_PATH_MAX - format!("/.s.PGSQL.{PORT}").len();
        let length = path.as_os_str().len();
        if length > limit {
            return Err(FolderError::TooLong { path, length, limit });
        }
        match path.to_str() {
            // A comma separates hosts in a connection string and no quoting helps.
            Some(text) if !text.contains(|c: char| c == ',' || c.is_control()) => {
                Ok(DataFolder { text: text.to_owned(), path })
            }
            Some(_) | None => Err(FolderError::BadName { path }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub fn unfinished_data(&self) -> PathBuf {
        self.path.join("data.new")
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// The folder that must be passed to get to DIR.
    pub fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Whose it is, if it exists.
    pub fn owner(&self) -> Result<Option<FolderOwner>, FolderError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if !metadata.is_dir() => Err(FolderError::NotAFolder { path: self.path.clone() }),
            Ok(metadata) => {
                Ok(Some(FolderOwner { uid: Uid::from_raw(metadata.uid()), gid: Gid::from_raw(metadata.gid()) }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system("cannot stat", &self.path)(error)),
        }
    }

    /// What `DIR/data` holds; refuses what is neither a cluster nor empty.
    pub fn inspect_data(&self) -> Result<Data, FolderError> {
        let data = self.data();
        let foreign = || FolderError::Foreign { path: data.clone() };
        match fs::symlink_metadata(&data) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Data::Missing),
            Err(error) => return Err(system("cannot stat", &data)(error)),
            Ok(_) if !data.is_dir() => return Err(foreign()),
            Ok(_) => {}
        }
        match read_small(&data.join("PG_VERSION")) {
            Ok(version) if data.join("global/pg_control").is_file() => {
                let version = version.trim();
                match version.parse() {
                    Ok(major) if SUPPORTED.contains(&major) => Ok(Data::Made { major }),
                    Ok(_) | Err(_) => {
                        Err(FolderError::UnsupportedMajor { version: version.escape_default().to_string(), path: data })
                    }
                }
            }
            Ok(_) => Err(foreign()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_empty(&data)? => Ok(Data::Missing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(foreign()),
            Err(error) => Err(system("cannot read PG_VERSION in", &data)(error)),
        }
    }

    /// Makes DIR, or checks the one that is there: the user's own, and closed to others.
    pub fn prepare(&self, user: &SystemUser) -> Result<(), FolderError> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(system("cannot create the folder", &self.path)(error));
            }
            Ok(()) | Err(_) => {}
        }
        // Everything below is about this very folder, whatever happens to its name.
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
            .open(&self.path)
            .map_err(system("cannot open the folder", &self.path))?;
        let metadata = dir.metadata().map_err(system("cannot stat", &self.path))?;
        let empty = is_empty(&self.path)?;
        if metadata.uid() != user.uid.as_raw() {
            if !empty {
                return Err(FolderError::RootsThings { path: self.path.clone() });
            }
            fchown(&dir, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .map_err(system("cannot change the owner of", &self.path))?;
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 && !empty {
            let path = self.path.clone();
            return Err(FolderError::TooOpen { path, mode });
        }
        if empty {
            dir.set_permissions(Permissions::from_mode(0o700))
                .map_err(system("cannot change the mode of", &self.path))?;
        }
        Ok(())
    }

    /// Takes the supervisor's lock. It belongs to the process, not to the descriptor: children
    /// that are forked do not hold it, and it ends with the launcher however that ends.
    pub fn lock(&self, user: &SystemUser) -> Result<File, FolderError> {
        let path = self.path.join("launcher.lock");
        let file = open_own(&path, user)?;
        let mut request = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(&file, FcntlArg::F_SETLK(&request)) {
            Ok(_) => Ok(file),
            Err(Errno::EAGAIN | Errno::EACCES) => {
                fcntl(&file, FcntlArg::F_GETLK(&mut request))
                    .map_err(|errno| system("cannot find the holder of", &path)(errno.into()))?;
                Err(FolderError::InUse { path: self.path.clone(), pid: Pid::from_raw(request.l_pid) })
            }
            Err(errno) => Err(system("cannot lock", &path)(errno.into())),
        }
    }
}

/// Opens or makes a file in DIR that belongs to the server's user, for appending.
pub fn open_own(path: &Path, user: &SystemUser) -> Result<File, FolderError> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
        .map_err(system("cannot open", path))?;
    let metadata = file.metadata().map_err(system("cannot stat", path))?;
    if !metadata.is_file() || metadata.nlink() != 1 {
        let path = path.to_owned();
        return Err(FolderError::NotPlain { path });
    }
    if geteuid().is_root() && metadata.uid() != user.uid.as_raw() {
        fchown(&file, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .map_err(system("cannot change the owner of", path))?;
    }
    Ok(file)
}

/// The beginning of a small text file; a pipe laid in its place holds nobody up.
pub fn read_small(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)?;
    let mut text = String::new();
    file.take(8192).read_to_string(&mut text)?;
    Ok(text)
}

fn is_empty(path: &Path) -> Result<bool, FolderError> {
    let mut entries = fs::read_dir(path).map_err(system("cannot read the folder", path))?;
    Ok(entries.next().is_none())
}

/// Names what was attempted on what.
pub fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::System { what, path, source }
}
