//! Selections of tests of `whole` by name: in scripts, in `tests/quick` and in `tests/full`. Each name must match a test.

use crate::finding::Finding;
use crate::invariants::test_names;
use crate::lexer::tokens;
use crate::tree::Tree;

const WHOLE: &str = "tests/tests/whole";
const QUICK: &str = "tests/quick";
/// Files in which a word with `::` selects the tests whose names contain it.
const SELECTING: [&str; 3] = ["scripts/test", "scripts/matrix", "tests/full"];

/// Words that match no test.
pub fn selections(tree: &Tree) -> Vec<Finding> {
    let known = names(tree);
    let unknown = |path: &'static str, is_known: &dyn Fn(&str) -> bool| -> Vec<Finding> {
        let text = tree.read(path);
        let missing = words(&text).into_iter().filter(|word| !is_known(word));
        missing.map(|word| Finding::new(path, format!("selects {word}, which matches no test"))).collect()
    };
    let mut found = unknown(QUICK, &|word| known.iter().any(|name| name == word));
    for path in SELECTING {
        found.extend(unknown(path, &|word| known.iter().any(|name| name.contains(word))));
    }
    found
}

/// `module::test` of each test of `whole`.
fn names(tree: &Tree) -> Vec<String> {
    let files = tree.below(WHOLE).into_iter().filter(|path| path.ends_with(".rs"));
    let named = |path: String| {
        let module = path[WHOLE.len() + 1..].trim_end_matches(".rs").replace('/', "::");
        let tests = test_names(&tokens(&tree.read(&path)));
        tests.into_iter().map(move |test| format!("{module}::{test}")).collect::<Vec<_>>()
    };
    files.flat_map(named).collect()
}

fn words(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.contains("::") && word.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn names_of_tests_have_a_module() {
        assert_eq!(words("a=\"take:: b::c_1\" # d, e:f ${x:+::}"), ["take::", "b::c_1"]);
    }
}
