//! The tables of modules in the READMEs of crates: each module of the crate once, and nothing that does not exist.
//!
//! Such a table has a column with the head `module` (or `room`), in which modules are named in backticks, and perhaps a
//! column `folder` in front of it. `name/` stands for a folder with all that is in it. Roots, the `mod.rs` of a folder, and
//! modules inside of another module's file (`link/coming_up.rs` beside `link.rs`) need not be listed.

use crate::finding::Finding;
use crate::modules::read;
use crate::tree::Tree;

pub fn module_lists(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in tree.crates() {
        let readme = format!("{name}/README.md");
        if !tree.has(&readme) {
            continue;
        }
        let listed = listed(&tree.read(&readme));
        if listed.is_empty() {
            found.push(Finding::new(readme, "has no table with a column `module`"));
            continue;
        }
        let all = read(tree, &name).modules;
        let paths: Vec<(String, bool)> = all
            .iter()
            .filter(|module| !module.path.is_empty())
            .map(|module| (module.path.join("/"), module.is_face()))
            .collect();
        let wrong = compare(&listed, &paths);
        found.extend(wrong.into_iter().map(|(name, says)| Finding::new(readme.as_str(), format!("{says}: {name}"))));
    }
    found
}

/// What is listed and does not exist, and the other way round. Paths come with whether each is a folder's `mod.rs`.
fn compare(listed: &[String], paths: &[(String, bool)]) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let is_known = |name: &str| match name.strip_suffix('/') {
        Some(folder) => paths.iter().any(|(path, _)| path.starts_with(name) || path == folder),
        None => paths.iter().any(|(path, _)| path == name),
    };
    for name in listed.iter().filter(|name| !is_known(name)) {
        wrong.push((name.clone(), "lists a module that does not exist".to_owned()));
    }
    let is_inside = |path: &str| {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        parent.is_some_and(|parent| paths.iter().any(|(path, is_face)| path == parent && !is_face))
    };
    for (path, is_face) in paths {
        let count =
            listed.iter().filter(|name| *name == path || (name.ends_with('/') && path.starts_with(*name))).count();
        match count {
            0 if !is_face && !is_inside(path) => wrong.push((path.clone(), "does not list a module".to_owned())),
            0 | 1 => {}
            more => wrong.push((path.clone(), format!("lists a module {more} times"))),
        }
    }
    wrong
}

/// Modules by path, as all tables of modules in the document name them.
fn listed(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut columns: Option<(Option<usize>, usize)> = None;
    let mut folder = String::new();
    for line in document.lines() {
        let Some(line) = line.trim().strip_prefix('|') else {
            columns = None;
            continue;
        };
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some((folders, modules)) = columns else {
            let named = |names: &[&str]| cells.iter().position(|cell| names.contains(cell));
            columns = named(&["module", "modules", "room"]).map(|modules| (named(&["folder"]), modules));
            folder.clear();
            continue;
        };
        if let Some(named) = folders.and_then(|column| backticked(cells.get(column)?).into_iter().next()) {
            folder = format!("{}/", named.trim_end_matches('/'));
        }
        let modules = cells.get(modules).map(|cell| backticked(cell)).unwrap_or_default();
        found.extend(modules.into_iter().map(|name| format!("{folder}{}", name.replace("::", "/"))));
    }
    found
}

fn backticked(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::{compare, listed};

    const README: &str = "\
| folder | module | what |
|---|---|---|
| | `event_loop` | wait |
| `claim` | `pass` (pure), `claim` | `no` |
| | `poll_timer` | when |

| state | event |
|---|---|
| `a` | `b` |
";

    #[test]
    fn modules_are_read_from_tables_with_their_folders() {
        assert_eq!(listed(README), ["event_loop", "claim/pass", "claim/claim", "claim/poll_timer"]);
    }

    #[test]
    fn both_sides_are_compared() {
        let paths = |all: &[&str]| -> Vec<(String, bool)> {
            all.iter().map(|path| (path.trim_end_matches('/').to_owned(), path.ends_with('/'))).collect()
        };
        let told = |listed: &[&str], all: &[&str]| {
            let listed: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
            compare(&listed, &paths(all)).into_iter().map(|(name, says)| format!("{name} {says}")).collect::<Vec<_>>()
        };
        assert!(told(&["a", "b/c"], &["a", "a/part", "b/", "b/c"]).is_empty());
        assert!(told(&["b/"], &["b/", "b/c", "b/d"]).is_empty());
        assert_eq!(
            told(&["a", "x"], &["a", "b"]),
            ["x lists a module that does not exist", "b does not list a module"]
        );
        assert_eq!(told(&["a", "a"], &["a"]), ["a lists a module 2 times"]);
    }
}
