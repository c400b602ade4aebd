//! What documents refer to: links, anchors, and files of the repository.

use crate::finding::Finding;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// What has been, and need not be there any more.
const HISTORY: &str = "CHANGELOG.md";

/// Endings of files that a document names in backticks.
const FILES: [&str; 5] = [".rs", ".sql", ".md", ".toml", ".json"];

fn documents(tree: &Tree) -> Vec<String> {
    let mut all = tree.below("");
    all.retain(|path| path.ends_with(".md"));
    all
}

/// Links `[text](file#anchor)` between documents that lead nowhere.
pub fn broken_links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in documents(tree) {
        for (line, target) in links(&tree.read(&path)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.clone() } else { beside(&path, file) };
            let says = if !tree.has(&file) {
                format!("links to {target} in line {line}, which does not exist")
            } else if !anchor.is_empty()
                && file.ends_with(".md")
                && !anchors(&tree.read(&file)).contains(&anchor.to_owned())
            {
                format!("links to {target} in line {line}, and {file} has no such heading")
            } else {
                continue;
            };
            found.push(Finding::new(path.as_str(), says));
        }
    }
    found
}

/// Files named in backticks by a path, in part or in full, that do not exist.
pub fn missing_files(tree: &Tree) -> Vec<Finding> {
    let all = tree.below("");
    let mut found = Vec::new();
    for path in documents(tree).into_iter().filter(|path| path != HISTORY) {
        for (line, name) in named_files(&tree.read(&path)) {
            let end = format!("/{name}");
            if !all.iter().any(|known| *known == name || known.ends_with(&end)) {
                found.push(Finding::new(path.as_str(), format!("names {name} in line {line}, which does not exist")));
            }
        }
    }
    found
}

/// The path that a link in the document `from` means.
fn beside(from: &str, link: &str) -> String {
    let mut path: Vec<&str> = from.split('/').collect();
    path.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                path.pop();
            }
            name => path.push(name),
        }
    }
    path.join("/")
}

/// Lines outside of code blocks, with their numbers.
fn prose(document: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let lines = document.lines().enumerate().filter(|(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence && !line.starts_with("    ")
    });
    lines.map(|(at, line)| (at + 1, line)).collect()
}

/// Targets of `[..](target)` and `src="target"` outside of code.
fn links(document: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(document) {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let ends = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];
        for (start, end) in ends {
            let targets = plain.split(start).skip(1).filter_map(|rest| rest.split_once(end));
            found.extend(targets.map(|(target, _)| (number, target.trim().to_owned())));
        }
    }
    found
}

/// Paths with a folder, in backticks, that end like a file.
fn named_files(document: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(document) {
        for name in line.split('`').skip(1).step_by(2) {
            let is_path =
                name.contains('/') && !name.starts_with(['/', '~', '.']) && !name.contains([' ', '<', '*', '$', ':']);
            if is_path && FILES.iter().any(|end| name.ends_with(end)) {
                found.push((number, name.to_owned()));
            }
        }
    }
    found
}

/// Anchors of a document's headings: lower case, without punctuation, with hyphens for blanks; a second one of the same has a number.
fn anchors(document: &str) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, line) in prose(document) {
        let heading = line.trim_start_matches('#');
        if !line.starts_with('#') || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().to_lowercase().replace(' ', "-");
        let slug: String = kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect();
        let count = counts.entry(slug.clone()).or_default();
        found.push(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{anchors, beside, links, named_files};

    #[test]
    fn links_are_found_outside_of_code() {
        let found = links("[a](b.md) and ![c](d.svg#e)\n```\n[no](no.md)\n```\n`[no](no.md)` [f](#g)");
        assert_eq!(found, [(1, "b.md".to_owned()), (1, "d.svg#e".to_owned()), (5, "#g".to_owned())]);
    }

    #[test]
    fn a_link_is_relative_to_its_document() {
        assert_eq!(beside("docs/a/b.md", "../c.md"), "docs/c.md");
        assert_eq!(beside("a.md", "./docs/b.md"), "docs/b.md");
    }

    #[test]
    fn headings_have_anchors() {
        let found = anchors("# What is it?\n\n## `live`, and the rest\n\n# What is it?\n");
        assert_eq!(found, ["what-is-it", "live-and-the-rest", "what-is-it-1"]);
    }

    #[test]
    fn files_are_named_by_paths() {
        let found =
            named_files("`region/batch.rs` and `batch.rs`, `/etc/x.json`, `shared/sql/TAKE_*.sql`, `docs/x.md`");
        assert_eq!(found, [(1, "region/batch.rs".to_owned()), (1, "docs/x.md".to_owned())]);
    }
}
