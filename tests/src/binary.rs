//! The launcher binary under test: the one beside this test's own target folder.
//!
//! `CARGO_BIN_EXE_*` does not exist across packages, so cargo does not see to it that
//! the binary is built, or built anew: that is what `scripts/test` is for, and a binary
//! older than one of its sources is refused here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Cargo's folder of this build profile, such as `target/debug`.
pub fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    // target/debug/deps/whole-0123456789abcdef
    let folder = test.parent().expect("a test lies in a folder");
    match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().unwrap_or(folder).to_owned(),
        _ => folder.to_owned(),
    }
}

/// The path of a launcher that is not older than its sources.
pub fn launcher() -> &'static Path {
    static LAUNCHER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = LAUNCHER.get_or_init(|| {
        let binary = profile_folder().join("launcher");
        check_fresh(&binary).map(|()| binary).map_err(|why| format!("{why}; run scripts/test, which builds it first"))
    });
    match found {
        Ok(binary) => binary,
        Err(why) => panic!("{why}"),
    }
}

/// The scheduler as a program of its own.
pub fn scheduler() -> PathBuf {
    fresh(profile_folder().join("scheduler"))
}

/// The launcher of a version to come, with a catalog and migrations of its own.
pub fn next_launcher() -> PathBuf {
    fresh(profile_folder().join("next/launcher"))
}

/// The scheduler of a version to come.
pub fn next_scheduler() -> PathBuf {
    fresh(profile_folder().join("next/scheduler"))
}

/// What `scripts/next` builds.
pub const NEXT_VERSION: &str = "0.2.0-next";

fn fresh(binary: PathBuf) -> PathBuf {
    match check_fresh(&binary) {
        Ok(()) => binary,
        Err(why) => panic!("{why}; run scripts/test, or scripts/next and then cargo build, which build it"),
    }
}

/// The same, built with fault points; a fault asked of another binary would never come,
/// and the test that asks for it would show nothing.
pub fn launcher_with_faults() -> &'static Path {
    static HAS_FAULTS: OnceLock<bool> = OnceLock::new();
    let binary = launcher();
    let has_faults = HAS_FAULTS.get_or_init(|| {
        let grep = Command::new("grep").args(["-qaF", "PGMILL_FAULT"]).arg(binary).status();
        grep.is_ok_and(|status| status.success())
    });
    assert!(
        has_faults,
        "{} was built without the feature `fault`; run scripts/test, which builds it with it",
        binary.display()
    );
    binary
}

/// Cargo writes beside a binary the list of all files it was made of (`launcher.d`).
/// That list is exact: files that only tests are made of do not count.
fn check_fresh(binary: &Path) -> Result<(), String> {
    let shown = binary.display();
    let built = modified(binary).ok_or_else(|| format!("there is no {shown}"))?;
    let list = binary.with_extension("d");
    let list = fs::read_to_string(&list)
        .map_err(|error| format!("cannot tell the age of {shown}: {}: {error}", list.display()))?;
    for source in sources(&list) {
        match modified(&source) {
            Some(changed) if changed <= built => {}
            Some(_) => return Err(format!("{shown} is older than {}", source.display())),
            None => return Err(format!("{shown} was made of {}, now gone", source.display())),
        }
    }
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// The right side of `target: source source`, where a blank in a name is written `\ `.
fn sources(list: &str) -> Vec<PathBuf> {
    list.lines()
        .filter_map(|line| line.split_once(": "))
        .flat_map(|(_, right)| {
            let right = right.replace("\\ ", "\0");
            let names = right.split(' ').filter(|name| !name.is_empty());
            names.map(|name| PathBuf::from(name.replace('\0', " "))).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Path, sources};

    #[test]
    fn blanks_in_the_names_of_sources_are_understood() {
        let list = "/t/launcher: /a/main.rs /b\\ c/lib.rs\n";
        assert_eq!(sources(list), [Path::new("/a/main.rs"), Path::new("/b c/lib.rs")]);
    }
}
