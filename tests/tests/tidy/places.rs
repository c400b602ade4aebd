//! What may be where: entries of folders, unsafe code, output on a process's standard streams.

use crate::finding::Finding;
use crate::lexer::tokens;
use crate::sizes::{own_code, rust_files};
use crate::tree::Tree;

const SHARED_ENTRIES: usize = 10;

/// Folders and programs' files at the top of the repository.
const TOP: [&str; 10] =
    ["Cargo.toml", "docs", "launcher", "packaging", "scheduler", "scripts", "shared", "tests", "web", "worker"];
/// Documents, and what tools want to find there.
const TOP_PROSE: [&str; 11] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "deny.toml",
    "mill.example.json",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

pub fn top_entries(tree: &Tree) -> Vec<Finding> {
    let known = |name: &str| {
        let prose = TOP_PROSE.contains(&name) || name.starts_with("LICENSE-") || name.starts_with('.');
        prose || TOP.contains(&name)
    };
    let unknown = tree.top().into_iter().filter(|name| !known(name));
    unknown.map(|name| Finding::new(name, "is at the top of the repository, and is not one of its folders")).collect()
}

pub fn shared_entries(tree: &Tree) -> Vec<Finding> {
    let count = tree.entries("shared/src").len();
    let says = format!("has {count} entries, and {SHARED_ENTRIES} are allowed");
    if count > SHARED_ENTRIES { vec![Finding::new("shared/src", says)] } else { Vec::new() }
}

pub fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in rust_files(tree).into_iter().filter(|path| !path.starts_with("shared/src/sys/")) {
        let tokens = tokens(&tree.read(&path));
        if let Some(token) = tokens.iter().find(|token| token.is("unsafe")) {
            let says = format!("has unsafe code in line {}; only shared/src/sys may", token.line);
            found.push(Finding::new(path.as_str(), says));
        }
    }
    found
}

/// A forked process shares its parent's streams and writes lines of the log only; commands print for a person.
pub fn prints(tree: &Tree) -> Vec<Finding> {
    const MACROS: [&str; 5] = ["println", "print", "eprintln", "eprint", "dbg"];
    let mut found = Vec::new();
    for folder in ["launcher", "scheduler", "worker", "shared"] {
        for (path, tokens) in own_code(tree, folder) {
            if path.starts_with("launcher/src/command/") {
                continue;
            }
            let calls = tokens.windows(2).find(|pair| pair[1].is("!") && MACROS.iter().any(|name| pair[0].is(name)));
            if let Some([name, _]) = calls {
                let says = format!("calls {}! in line {}; only launcher/src/command may", name.text, name.line);
                found.push(Finding::new(path.as_str(), says));
            }
        }
    }
    found
}
