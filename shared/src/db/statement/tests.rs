//! Every statement in every form that it is sent in: nothing is left of the names that stand for something else.

use super::fragment::FRAGMENTS;
use super::*;
use crate::config::ColumnDefaults;
use std::collections::BTreeSet;

fn queue() -> Queue {
    Queue { schema: "public".into(), table: "task".into() }
}

/// The text without what stands in quotes and comments.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let line: String = line.split(['\'', '"']).step_by(2).collect();
        code += line.split("--").next().unwrap_or_default();
        code.push('\n');
    }
    code
}

/// What stands behind each of these marks, as far as it is a word or a number.
fn marked<'t>(text: &'t str, mark: &str) -> BTreeSet<&'t str> {
    let parts = text.split(mark).skip(1);
    let words = parts.map(|part| part.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next());
    words.flatten().filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_name_of_a_parameter_is_listed_and_every_listed_one_is_used() {
    for (path, text) in STATEMENTS {
        let listed = parameters(text).count();
        let names: BTreeSet<&str> = parameters(text).map(|(name, _)| name).collect();
        assert_eq!(names.len(), listed, "{path}: a name is listed twice");
        let mut most = 0;
        for StatementForm { text: form, .. } in forms(path, text, &queue()) {
            let code = code(&form).replace("::", " ");
            assert_eq!(marked(&code, ":"), BTreeSet::new(), "{path}: these parameters are not listed\n{form}");
            let numbers = marked(&code, "$");
            let numbers: BTreeSet<usize> = numbers.into_iter().filter_map(|number| number.parse().ok()).collect();
            assert_eq!(numbers, (1..=numbers.len()).collect(), "{path}: a form uses the first parameters\n{form}");
            most = most.max(numbers.len());
        }
        assert_eq!(most, listed, "{path}: every listed parameter is used");
    }
}

#[test]
fn every_name_in_braces_is_known() {
    for (path, text) in STATEMENTS {
        for StatementForm { text: form, .. } in forms(path, text, &queue()) {
            let left: Vec<&str> = marked(&form, "{").into_iter().collect();
            assert!(
                left.iter().all(|word| ["SELECT", "oid", "user"].contains(word)),
                "{path}: {left:?} stands in braces\n{form}"
            );
        }
    }
}

#[test]
fn every_fragment_is_used_and_has_a_head() {
    let all: String = STATEMENTS.iter().chain(FRAGMENTS).map(|(_, text)| *text).collect();
    for (name, text) in FRAGMENTS {
        let chosen = [
            "among",
            "begin_one",
            "begin_unlocked",
            "end_one",
            "end_unlocked",
            "run_setup",
            "scan_start",
            "scan_start_contended",
            "session_setup",
        ]
        .contains(name);
        assert!(chosen || all.contains(&format!("{{{name}}}")), "{name} is not used");
        assert!(text.starts_with("-- "), "{name} has no head");
    }
}

#[test]
fn every_head_tells_parameters_locks_and_caller() {
    for (path, text) in STATEMENTS {
        for entry in ["\n-- parameters: ", "\n-- locks: ", "\n-- caller: "] {
            assert_eq!(head(text).matches(entry).count(), 1, "{path}:{entry}");
        }
    }
}

#[test]
fn names_that_look_like_placeholders_stay_names() {
    let queue = Queue { schema: "{queue}".into(), table: ":id {state}".into() };
    let text = "-- head\n-- parameters: id bigint\nSELECT :id FROM {queue}";
    assert_eq!(queue.fill(text), r#"SELECT $1 FROM "{queue}".":id {state}""#);
    let queue = Queue { schema: "public".into(), table: "{default_active}".into() };
    let made = queue.fill_make_table(&ColumnDefaults::default());
    assert!(made.starts_with(r#"CREATE TABLE "public"."{default_active}" ("#), "{made}");
}
