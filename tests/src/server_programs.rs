//! Which PostgreSQL the tests run, as which user, and a data folder made once.
//!
//! The search is that of `scripts/cluster`, so that there is one search. `initdb` runs
//! once per server version and user; its result is kept in cargo's target folder and
//! copied for every cluster.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::{Gid, Uid, User, chown, geteuid};

use crate::binary::profile_folder;

/// The folder with initdb, pg_ctl, postgres and psql.
pub fn bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/cluster");
        let output = Command::new("sh").arg(&script).arg("--find").output().expect("run scripts/cluster");
        assert!(output.status.success(), "no PostgreSQL to test with:\n{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

/// The server's version as its programs say it, for instance `15.14`.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let output = Command::new(bin().join("postgres")).arg("-V").output();
        let output = output.expect("run postgres -V");
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .nth(2)
            .expect("postgres -V says its version")
            .to_owned()
    })
}

/// Who runs the server: PostgreSQL refuses root, so root hands over to `postgres`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUser {
    uid: Uid,
    gid: Gid,
}

impl ServerUser {
    /// The user that runs server programs here.
    pub fn find() -> ServerUser {
        if !geteuid().is_root() {
            return ServerUser::own_self();
        }
        ["postgres", "nobody", "daemon"]
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| ServerUser { uid: user.uid, gid: user.gid })
            .expect("root cannot run PostgreSQL, and there is neither postgres nor nobody")
    }

    /// The user that runs the tests.
    pub fn own_self() -> ServerUser {
        ServerUser { uid: geteuid(), gid: nix::unistd::getegid() }
    }

    /// Gives a folder to this user.
    pub fn own(&self, folder: &Path) {
        if *self != ServerUser::own_self() {
            chown(folder, Some(self.uid), Some(self.gid)).expect("give a folder to its user");
        }
    }

    /// Makes a command run as this user.
    pub fn become_it(&self, command: &mut Command) {
        if *self != ServerUser::own_self() {
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
    }
}

/// Fills `data` (not yet there) with a fresh, never started data folder.
pub fn make_data_folder(user: &ServerUser, data: &Path) {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let name = format!("cluster-template-{}-{}", version(), user.uid);
        let template = profile_folder().join(name);
        if !template.exists() {
            make_template(user, data, &template);
        }
        template
    });
    copy(template, data);
}

/// Runs initdb in `scratch`, which the server's user can reach, and keeps the result.
fn make_template(user: &ServerUser, scratch: &Path, template: &Path) {
    let mut command = Command::new(bin().join("initdb"));
    command.current_dir("/").arg("-D").arg(scratch).args([
        "--username=postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]);
    user.become_it(&mut command);
    let output = command.output().expect("run initdb");
    assert!(output.status.success(), "initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
    // Two test processes may do this at once: each fills a folder of its own, and the
    // rename that comes second fails and does no harm.
    let own = template.with_extension(format!("new-{}", std::process::id()));
    copy(scratch, &own);
    fs::remove_dir_all(scratch).expect("remove initdb's scratch folder");
    if fs::rename(&own, template).is_err() {
        fs::remove_dir_all(&own).expect("remove a second template");
    }
    assert!(template.exists(), "no template at {}", template.display());
}

/// `cp -a`: keeps owner and modes, on which PostgreSQL insists.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot copy {} to {}", from.display(), to.display());
}
