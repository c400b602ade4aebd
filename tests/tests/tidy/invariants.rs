//! ARCHITECTURE.md's section Invariants: each item names the tests that show it, and they exist.

use crate::finding::Finding;
use crate::lexer::{Token, tokens};
use crate::sizes::rust_files;
use crate::tree::Tree;
use std::collections::BTreeSet;

const DOCUMENT: &str = "ARCHITECTURE.md";
const SECTION: &str = "invariants";
/// A test's name is a sentence; other names in backticks (columns, settings) are shorter.
const WORDS: usize = 4;

/// Tests that invariants name and that do not exist.
pub fn missing_tests(tree: &Tree) -> Vec<Finding> {
    let known = tests(tree);
    let named = items(&tree.read(DOCUMENT)).into_iter().flat_map(|item| named_tests(&item));
    let missing = named.filter(|name| !known.contains(name));
    missing.map(|name| Finding::new(DOCUMENT, format!("names the test {name}, which does not exist"))).collect()
}

/// Invariants that name no test.
pub fn untested(tree: &Tree) -> Vec<Finding> {
    let items = items(&tree.read(DOCUMENT));
    let untested: Vec<String> = items
        .iter()
        .filter(|item| named_tests(item).is_empty())
        .map(|item| format!("\"{} ..\"", item.chars().take(40).collect::<String>()))
        .collect();
    if items.is_empty() {
        vec![Finding::new(DOCUMENT, "has no section Invariants with items")]
    } else if untested.is_empty() {
        Vec::new()
    } else {
        let says =
            format!("names no test for {} of {} invariants: {}", untested.len(), items.len(), untested.join(", "));
        vec![Finding::new(DOCUMENT, says)]
    }
}

/// Names of all functions with `#[test]`.
fn tests(tree: &Tree) -> BTreeSet<String> {
    let named = |path: String| test_names(&tokens(&tree.read(&path)));
    rust_files(tree).into_iter().flat_map(named).collect()
}

/// The function behind each `#[test]`; in `proptest!` it has further attributes or parameters.
pub fn test_names(tokens: &[Token]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, four) in tokens.windows(4).enumerate() {
        if four[0].is("#") && four[1].is("[") && four[2].is("test") && four[3].is("]") {
            let function = tokens[at + 4..].windows(2).find(|pair| pair[0].is("fn"));
            found.extend(function.map(|pair| pair[1].text.clone()));
        }
    }
    found
}

/// The list items of the section, each with the lines that continue it.
fn items(document: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with('#') {
            inside = line.trim_start_matches('#').trim().to_lowercase().starts_with(SECTION);
        } else if inside {
            let item = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
            let starts = ["- ", "* ", ". ", ") "].iter().any(|mark| item.starts_with(mark)) && !line.starts_with(' ');
            match found.last_mut() {
                _ if starts => found.push(item[2..].to_owned()),
                Some(last) => *last += &format!(" {}", line.trim()),
                None => {}
            }
        }
    }
    found
}

/// Names in backticks that are sentences; of `module::name` the name.
fn named_tests(item: &str) -> Vec<String> {
    let quoted = item.split('`').skip(1).step_by(2);
    let last = quoted.map(|name| name.rsplit("::").next().unwrap_or(name));
    let is_sentence = |name: &&str| {
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        is_name && name.split('_').count() >= WORDS
    };
    last.filter(is_sentence).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{items, named_tests, test_names};
    use crate::lexer::tokens;

    #[test]
    fn items_are_those_of_the_section() {
        let document = "# A\n- no\n## Invariants\n\n1. One\n   goes on. `a_b_c_d`\n- Two\n## Next\n- no";
        assert_eq!(items(document), ["One goes on. `a_b_c_d`", "Two"]);
    }

    #[test]
    fn a_test_is_named_by_a_sentence() {
        let found = named_tests("`max_workers`, `whole::take::a_row_is_taken_once`, `Row`, `a_b_c`");
        assert_eq!(found, ["a_row_is_taken_once"]);
    }

    #[test]
    fn tests_are_known_by_their_attribute() {
        let source = "#[test]\n#[ignore]\nfn it_is_one() {} fn it_is_none() {}";
        assert_eq!(test_names(&tokens(source)), ["it_is_one"]);
    }
}
