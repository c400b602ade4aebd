//! Words that were replaced by the words of the trade, and type names with two meanings.

use crate::allowed::KEPT_WORDS;
use crate::finding::Finding;
use crate::lexer::Kind;
use crate::sizes::{own_code, programs};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// The retired words and what stands in their place. A word is also found as a part of an identifier.
const RETIRED: [(&str, &str); 52] = [
    ("asking", "a plain verb, querying"),
    ("attendant", "installer_session"),
    ("bell", "SignalPipe, wake-up lock"),
    ("bells", "SignalPipe, wake-up lock"),
    ("book", "record, ledger, counters"),
    ("booked", "recorded"),
    ("booking", "recording"),
    ("bookkeeping", "counters, administration"),
    ("books", "records, ledger, counters"),
    ("clerk", "RecordRetry"),
    ("desk", "Workdir, reporting"),
    ("doze", "PollTimer"),
    ("dress", "setup"),
    ("dressed", "set up"),
    ("ear", "server_watch"),
    ("errand", "Assignment, idle run"),
    ("errands", "Assignment, idle run"),
    ("eye", "Observer"),
    ("gift", "pooled connection"),
    ("guest", "own connection"),
    ("guests", "own connections"),
    ("harvest", "a plain noun"),
    ("hearing", "server_watch"),
    ("kit", "Assignment"),
    ("lend", "pool"),
    ("lending", "connection pool"),
    ("lends", "gives"),
    ("lent", "pooled"),
    ("maker", "author, the session that makes it"),
    ("makers", "authors, sessions that make it"),
    ("mend", "repair"),
    ("mended", "repaired"),
    ("mending", "repairing"),
    ("mends", "repairs"),
    ("mishap", "panic_guard"),
    ("nursery", "Spawner"),
    ("patience", "a timeout by its name"),
    ("rang", "notified"),
    ("renewal", "reset"),
    ("ring", "notify, signal"),
    ("rings", "notifications, signals"),
    ("rung", "notified, stage"),
    ("ringing", "notifying"),
    ("saying", "reported_once"),
    ("seat", "ConnectionPermit"),
    ("seats", "ConnectionPermit"),
    ("stretch", "range"),
    ("stub", "version_check"),
    ("tally", "counts, deltas"),
    ("troubles", "errors"),
    ("undress", "reset"),
    ("workplace", "a plain noun"),
];

/// Retired in Rust only: a column that users see has this name.
const RETIRED_IN_RUST: [(&str, &str); 1] = [("trouble", "DbError")];

/// Names that were replaced as a whole; their words are of the language.
const RETIRED_NAMES: [(&str, &str); 9] = [
    ("hand_over", "transfer"),
    ("hand_down", "reexec"),
    ("handed_in", "result_slot"),
    ("LOOK_", "READ_"),
    ("every look", "every pass"),
    ("thorough look", "full pass"),
    ("row user", "queue's user"),
    ("row_key", "queue_key"),
    ("PATIENCE", "a timeout by its name"),
];

/// The names that a pure state machine gives to its own parts; its module qualifies them.
const MACHINE: [&str; 4] = ["Step", "Event", "Effect", "State"];

/// Here the words themselves are listed.
const LISTS: [&str; 2] = ["tests/tests/tidy/words.rs", "tests/tests/tidy/allowed.rs"];

/// One finding per word and file, but for `allowed::KEPT_WORDS`.
pub fn retired_words(tree: &Tree) -> Vec<Finding> {
    let kept = |key: &str| KEPT_WORDS.iter().any(|kept| kept.key == key);
    let all = occurrences(tree).into_iter().map(|((word, path), lines)| (format!("{word} {path}"), word, lines));
    let wrong = all.filter(|(key, ..)| !kept(key));
    wrong
        .map(|(key, word, lines)| {
            let says = format!("in line {}: write {}", lines[0], instead(word));
            Finding::new(key, says)
        })
        .collect()
}

/// Entries of `KEPT_WORDS` that nothing needs.
pub fn unneeded_words(tree: &Tree) -> Vec<Finding> {
    let found = occurrences(tree);
    let needed = |key: &str| found.keys().any(|(word, path)| format!("{word} {path}") == key);
    let stale = KEPT_WORDS.iter().filter(|kept| !needed(kept.key));
    stale.map(|kept| Finding::new(kept.key, format!("is not found: remove it ({})", kept.reason))).collect()
}

/// How often each retired word occurs, for a report.
pub fn counts(tree: &Tree) -> Vec<(&'static str, usize)> {
    let mut counts: BTreeMap<&str, usize> = lists().map(|(word, _)| (word, 0)).collect();
    for ((word, _), lines) in occurrences(tree) {
        *counts.entry(word).or_default() += lines.len();
    }
    counts.into_iter().collect()
}

/// Type names that are defined twice, but for those of pure state machines.
pub fn types_defined_twice(tree: &Tree) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in ["launcher", "scheduler", "worker", "shared"] {
        for (path, tokens) in own_code(tree, folder) {
            let is_pure =
                tree.read(&path).lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains("PURE"));
            let mut depth = 0_i32;
            for pair in tokens.windows(2) {
                match pair[0].text.as_str() {
                    "{" if pair[0].kind == Kind::Mark => depth += 1,
                    "}" if pair[0].kind == Kind::Mark => depth -= 1,
                    "struct" | "enum" | "union" | "trait" | "type" if depth == 0 && pair[1].is_word() => {
                        let name = &pair[1].text;
                        if !(is_pure && MACHINE.contains(&name.as_str())) {
                            places.entry(name.clone()).or_default().push(path.clone());
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    let twice = places.into_iter().filter(|(_, paths)| paths.len() > 1);
    twice.map(|(name, paths)| Finding::new(name, format!("is defined in {}", paths.join(" and ")))).collect()
}

/// Word and path, and the lines in which the word is.
fn occurrences(tree: &Tree) -> BTreeMap<(&'static str, String), Vec<usize>> {
    let mut files = programs(tree);
    let prose = |path: &String| path.ends_with(".md") || path == "Cargo.toml";
    files.extend(tree.below("").into_iter().filter(prose));
    files.retain(|path| !LISTS.contains(&path.as_str()));
    let mut found: BTreeMap<(&str, String), Vec<usize>> = BTreeMap::new();
    for path in files {
        let rust = path.ends_with(".rs");
        for (number, line) in tree.read(&path).lines().enumerate() {
            let parts = parts(line);
            let own = if rust { &RETIRED_IN_RUST[..] } else { &[] };
            let words = RETIRED.iter().chain(own).flat_map(|(word, _)| {
                let times = parts.iter().filter(|part| part == word).count();
                std::iter::repeat_n(*word, times)
            });
            let names = RETIRED_NAMES.iter().filter(|(name, _)| has_name(line, name)).map(|(name, _)| *name);
            for word in words.chain(names) {
                found.entry((word, path.clone())).or_default().push(number + 1);
            }
        }
    }
    found
}

fn lists() -> impl Iterator<Item = (&'static str, &'static str)> {
    RETIRED.into_iter().chain(RETIRED_IN_RUST).chain(RETIRED_NAMES)
}

fn instead(word: &str) -> &'static str {
    lists().find(|(retired, _)| *retired == word).map_or("", |(_, instead)| instead)
}

/// A name begins a word, or follows a space.
fn has_name(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric()))
}

/// The words of a line, those of identifiers apart, in small letters.
fn parts(line: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for word in line.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
        let letters: Vec<char> = word.chars().collect();
        let mut start = 0;
        for at in 1..=letters.len() {
            let ends = at == letters.len() || {
                let (before, here) = (letters[at - 1], letters[at]);
                let next_is_small = letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
                here.is_ascii_uppercase() && (before.is_ascii_lowercase() || next_is_small)
            };
            if ends {
                parts.push(letters[start..at].iter().collect::<String>().to_ascii_lowercase());
                start = at;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{has_name, parts};

    #[test]
    fn identifiers_are_words_too() {
        assert_eq!(
            parts("let x = DbError::take_seat(HTTPBell, \"a ring\")"),
            ["let", "x", "db", "error", "take", "seat", "http", "bell", "a", "ring"]
        );
    }

    #[test]
    fn a_name_is_not_found_in_the_middle_of_a_word() {
        assert!(has_name("the row user", "row user") && !has_name("arrow user", "row user"));
    }
}
