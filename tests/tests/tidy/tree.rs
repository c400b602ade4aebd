//! The files of a checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that are made, not written.
const MADE: [&str; 4] = ["target", ".git", "mill-data", "node_modules"];

/// A checkout: this one, or another one for `counts`.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The checkout that this test was built from.
    pub fn own() -> Tree {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        Tree::at(tests.parent().expect("the crate of the tests lies in the checkout"))
    }

    pub fn at(root: &Path) -> Tree {
        Tree { root: root.to_owned() }
    }

    pub fn read(&self, path: &str) -> String {
        let whole = self.root.join(path);
        fs::read_to_string(&whole).unwrap_or_else(|error| panic!("cannot read {}: {error}", whole.display()))
    }

    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Everything below a folder (the empty path: the root), by path from the root, in order. Of what is made and not written
    /// nothing.
    pub fn below(&self, folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for (name, is_folder) in self.entries(&folder) {
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                match is_folder {
                    true if MADE.contains(&name.as_str()) => {}
                    true => folders.push(path),
                    false => found.push(path),
                }
            }
        }
        found.sort();
        found
    }

    /// Names in a folder, and whether each is a folder.
    pub fn entries(&self, folder: &str) -> Vec<(String, bool)> {
        let listed = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut found: Vec<(String, bool)> =
            listed.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().is_dir())).collect();
        found.sort();
        found
    }

    /// Names at the top that are committed; without git, all that are there.
    pub fn top(&self) -> Vec<String> {
        let git = Command::new("git").arg("-C").arg(&self.root).args(["ls-tree", "--name-only", "HEAD"]).output();
        match git {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
            }
            _ => {
                let all = self.entries("").into_iter().map(|(name, _)| name);
                all.filter(|name| !MADE.contains(&name.as_str())).collect()
            }
        }
    }

    /// Crates at the top that have sources, in order.
    pub fn crates(&self) -> Vec<String> {
        let all = self.entries("").into_iter().map(|(name, _)| name);
        all.filter(|name| self.has(&format!("{name}/Cargo.toml")) && self.has(&format!("{name}/src"))).collect()
    }
}
