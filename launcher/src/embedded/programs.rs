//! The server programs of this machine: where `initdb` and `postgres` are, and of which major.
//!
//! Called once, by the start of an embedded server. Looked at in this order: the folder that
//! `pg_config --bindir` names, the folders of PATH, then the folders packages use, the newest
//! first. An existing data folder is tied to the major that made it, so the first folder of
//! *that* major is taken; without one, the first of any supported major.
//!
//! What can go wrong: nothing is installed, or only majors that do not fit. The error lists
//! every folder looked at and what to install.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The majors pgmill runs on.
pub const SUPPORTED: RangeInclusive<u32> = 14..=18;

/// `initdb` and `postgres` out of one folder, so that they fit each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub initdb: PathBuf,
    pub postgres: PathBuf,
    pub major: u32,
}

/// Where programs are searched.
#[derive(Debug, Clone)]
pub struct ProgramSearch {
    /// The value of PATH.
    pub search_path: Option<OsString>,
    /// Folders whose children are versions: `/usr/lib/postgresql/17/bin`.
    pub versioned: Vec<PathBuf>,
    /// Folders looked at last, as they are.
    pub fixed: Vec<PathBuf>,
}

impl ProgramSearch {
    /// PATH and the usual folders of Debian, Red Hat and a build by hand.
    pub fn of_this_process() -> ProgramSearch {
        ProgramSearch {
            search_path: std::env::var_os("PATH"),
            versioned: vec!["/usr/lib/postgresql".into(), "/usr".into()],
            fixed: vec!["/usr/local/pgsql/bin".into()],
        }
    }
}

/// The server programs get no variables that steer our own connections, write English into our log,
/// and do not report to the service manager in our place.
pub fn clean_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let steers = [&b"PG"[..], b"LC_", b"LANG", b"NOTIFY_SOCKET"].iter().any(|prefix| bytes.starts_with(prefix));
        if steers {
            command.env_remove(&name);
        }
    }
    command.env("LC_ALL", "C");
}

/// No fitting server programs; lists what was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "found no server programs of PostgreSQL {wanted} (searched: {looked_at}); \
     install them, for example: apt-get install postgresql{package}"
)]
pub struct ProgramsMissing {
    wanted: String,
    package: String,
    looked_at: LookedAt,
}

#[derive(Debug, Default)]
struct LookedAt(Vec<(PathBuf, String)>);

impl fmt::Display for LookedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing, PATH is empty");
        }
        for (index, (folder, found)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {found}", folder.display())?;
        }
        Ok(())
    }
}

impl Programs {
    /// The first fitting programs of `environment`; `needed` is the major of existing data.
    pub fn find(environment: &ProgramSearch, needed: Option<u32>) -> Result<Programs, ProgramsMissing> {
        let mut looked_at = LookedAt::default();
        for folder in candidates(environment) {
            match inspect(&folder) {
                Ok(found) if fits(found.major, needed) => return Ok(found),
                Ok(found) => looked_at.0.push((folder, format!("PostgreSQL {}", found.major))),
                Err(why) => looked_at.0.push((folder, why)),
            }
        }
        Err(ProgramsMissing {
            wanted: match needed {
                Some(major) => major.to_string(),
                None => format!("{} to {}", SUPPORTED.start(), SUPPORTED.end()),
            },
            package: needed.map_or_else(String::new, |major| format!("-{major}")),
            looked_at,
        })
    }
}

fn fits(major: u32, needed: Option<u32>) -> bool {
    SUPPORTED.contains(&major) && needed.is_none_or(|needed| needed == major)
}

/// Every folder that may have them, each once, in order of preference.
fn candidates(environment: &ProgramSearch) -> Vec<PathBuf> {
    let path: Vec<PathBuf> = environment
        .search_path
        .iter()
        .flat_map(std::env::split_paths)
        // A relative entry would mean another folder after every change of directory.
        .filter(|folder| folder.is_absolute())
        .collect();

    let configured = path.iter().find_map(|folder| bindir(folder));
    let versioned = environment.versioned.iter().flat_map(|p| by_version(p));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in
        configured.into_iter().chain(path.iter().cloned()).chain(versioned).chain(environment.fixed.iter().cloned())
    {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// What `pg_config` of this folder prints.
fn bindir(folder: &Path) -> Option<PathBuf> {
    let text = output_of(&folder.join("pg_config"), "--bindir").ok()?;
    let bindir = PathBuf::from(text.trim_end_matches('\n'));
    bindir.is_absolute().then_some(bindir)
}

/// `PARENT/17/bin`, `PARENT/pgsql-17/bin`, the newest first.
fn by_version(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?;
            let digits = name.strip_prefix("pgsql-").unwrap_or(name);
            Some((digits.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    found.into_iter().map(|(_, folder)| folder).collect()
}

fn inspect(folder: &Path) -> Result<Programs, String> {
    let (initdb, postgres) = (folder.join("initdb"), folder.join("postgres"));
    match (initdb.is_file(), postgres.is_file()) {
        (true, true) => {}
        (false, false) => return Err("nothing".to_owned()),
        (true, false) => return Err("no postgres".to_owned()),
        (false, true) => return Err("no initdb".to_owned()),
    }
    let text = output_of(&postgres, "--version")?;
    let major = major_of(&text).ok_or_else(|| format!("unknown version {:?}", text.trim()))?;
    Ok(Programs { initdb, postgres, major })
}

fn output_of(program: &Path, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(OsStr::new(argument))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{argument} failed: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{argument} printed no UTF-8 text"))
}

/// The 15 of `postgres (PostgreSQL) 15.4 (Debian 15.4-1)`, the 18 of `.. 18beta1`.
fn major_of(version: &str) -> Option<u32> {
    let (_, number) = version.split_once("(PostgreSQL) ")?;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::super::tests::{TempDir, write_script};
    use super::*;

    fn pretend(folder: &Path, names: &[&str], says: &str) {
        fs::create_dir_all(folder).unwrap();
        for name in names {
            let script = format!("#!/bin/sh\necho '{says}'\n");
            write_script(&folder.join(name), &script);
        }
    }

    fn pretend_server(folder: &Path, major: &str) {
        let says = format!("postgres (PostgreSQL) {major}.1");
        pretend(folder, &["initdb", "postgres"], &says);
    }

    #[test]
    fn every_shape_of_version_gives_its_major() {
        for (text, major) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL) 19devel\n", Some(19)),
            ("postgres (PostgreSQL) 14", Some(14)),
            ("postgres (PostgreSQL) ", None),
            ("something else 15.1", None),
        ] {
            assert_eq!(major_of(text), major, "{text:?}");
        }
    }

    #[test]
    fn the_needed_major_wins_over_the_order_and_the_newest_over_the_older() {
        let temp = TempDir::make("programs");
        let versioned = temp.path().join("lib");
        pretend_server(&versioned.join("9/bin"), "9");
        pretend_server(&versioned.join("14/bin"), "14");
        pretend_server(&versioned.join("pgsql-16/bin"), "16");
        pretend_server(&versioned.join("40/bin"), "40");
        let path = temp.path().join("path");
        pretend_server(&path, "15");
        let mut environment = ProgramSearch {
            search_path: Some(path.clone().into_os_string()),
            versioned: vec![versioned.clone()],
            fixed: Vec::new(),
        };

        let found =
            |environment: &ProgramSearch, needed| Programs::find(environment, needed).map(|programs| programs.major);
        assert_eq!(found(&environment, None).unwrap(), 15);
        assert_eq!(found(&environment, Some(14)).unwrap(), 14);
        environment.search_path = None;
        assert_eq!(found(&environment, None).unwrap(), 16);

        let bindir = versioned.join("14/bin");
        pretend(&path, &["pg_config"], &bindir.display().to_string());
        environment.search_path = Some(path.into_os_string());
        assert_eq!(found(&environment, None).unwrap(), 14);
    }

    #[test]
    fn missing_programs_are_told_with_every_folder_looked_at_and_what_to_install() {
        let temp = TempDir::make("missing");
        let half = temp.path().join("half");
        pretend(&half, &["postgres"], "postgres (PostgreSQL) 15.1");
        let old = temp.path().join("old");
        pretend_server(&old, "13");
        let environment = ProgramSearch {
            search_path: Some(std::env::join_paths([&half, &old]).unwrap()),
            versioned: Vec::new(),
            fixed: vec![temp.path().join("absent")],
        };
        let text = Programs::find(&environment, Some(17)).unwrap_err().to_string();
        for part in [
            "PostgreSQL 17",
            "half: no initdb",
            "old: PostgreSQL 13",
            "absent: nothing",
            "apt-get install postgresql-17",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
}
