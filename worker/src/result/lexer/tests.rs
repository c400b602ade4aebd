//! What is found, what is not, and that no quoting hides or forges a statement.

use super::{ForbiddenStatement, transaction_control};
use proptest::prelude::*;

fn found(input: &str) -> Option<String> {
    transaction_control(input.as_bytes(), false).map(|ForbiddenStatement { word, .. }| word)
}

#[test]
fn every_kind_of_transaction_control_is_found() {
    for (input, word) in [
        ("BEGIN", "BEGIN"),
        ("begin;", "BEGIN"),
        ("SELECT 1; COMMIT", "COMMIT"),
        ("commit and chain", "COMMIT"),
        ("END", "END"),
        ("ABORT WORK", "ABORT"),
        ("START TRANSACTION READ ONLY", "START"),
        ("ROLLBACK", "ROLLBACK"),
        ("ROLLBACK; SELECT 1", "ROLLBACK"),
        ("ROLLBACK WORK", "ROLLBACK"),
        ("ROLLBACK TRANSACTION AND NO CHAIN", "ROLLBACK"),
        ("ROLLBACK PREPARED 'x'", "ROLLBACK"),
        ("COMMIT PREPARED 'x'", "COMMIT"),
        ("PREPARE TRANSACTION 'x'", "PREPARE"),
        ("/* a /* b */ c */ -- d\n COMMIT", "COMMIT"),
        ("SELECT 'it''s';COMMIT", "COMMIT"),
        ("SELECT $$;$$; COMMIT", "COMMIT"),
        ("SELECT $a$ $b$ ; $a$; COMMIT", "COMMIT"),
        (r"SELECT E'\';'; COMMIT", "COMMIT"),
        (r"SELECT '\'; COMMIT; --'", "COMMIT"),
        (";;COMMIT", "COMMIT"),
        ("CREATE FUNCTION begin() RETURNS int LANGUAGE sql AS 'SELECT 1'; COMMIT", "COMMIT"),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; COMMIT", "COMMIT"),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; END; ROLLBACK", "ROLLBACK"),
    ] {
        assert_eq!(found(input).as_deref(), Some(word), "{input}");
    }
}

#[test]
fn what_only_looks_like_it_is_left_alone() {
    for input in [
        "",
        "SELECT 1",
        "SELECT 'COMMIT'; SELECT \"COMMIT\"; SELECT $$COMMIT$$; SELECT $x$ ; COMMIT; $x$",
        "-- COMMIT\n/* COMMIT; */ SELECT 1",
        "SELECT begin FROM commits; SELECT 1 AS commit",
        "SAVEPOINT a; ROLLBACK TO a; ROLLBACK WORK TO SAVEPOINT a; ROLLBACK TRANSACTION TO a; RELEASE a",
        "PREPARE p AS SELECT 1; EXECUTE p",
        "DO $$ BEGIN COMMIT; END $$",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END",
        "CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC SELECT CASE WHEN true THEN 1 ELSE 2 END; END; SELECT 1",
        "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM t; DELETE FROM u)",
        "SELECT a$b$ FROM t; SELECT $1",
        "SELECT E'\\'; COMMIT; --'",
        "SELECT U&'\\0041; COMMIT; '",
        "(SELECT 1)",
        "COPY t TO STDOUT",
    ] {
        assert_eq!(found(input), None, "{input}");
    }
}

#[test]
fn backslashes_count_when_strings_do_not_conform() {
    let input = br"SELECT '\'; COMMIT; --'";
    assert!(transaction_control(input, false).is_some());
    assert!(transaction_control(input, true).is_none());
    let quoted_name = br#"SELECT "\"; COMMIT"#;
    assert!(transaction_control(quoted_name, true).is_some());
}

#[test]
fn an_input_cut_anywhere_never_panics() {
    let input =
        br#"SELECT E'\'x', $a$ b $a$, "q""q", U&'\00', /* /* */ */ $1 ; CREATE FUNCTION f() BEGIN ATOMIC END; COMMIT"#;
    for end in 0..=input.len() {
        for backslashes in [false, true] {
            let _ = transaction_control(&input[..end], backslashes);
        }
    }
}

/// A piece of SQL that is one or more whole statements' middle, without transaction control, whatever is in it.
fn harmless() -> impl Strategy<Value = String> {
    let text = "[a-zA-Z0-9 ;'\"\\\\$/*\n()-]{0,24}";
    prop_oneof![
        text.prop_map(|text| format!("'{}'", text.replace('\'', "''"))),
        text.prop_map(|text| format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))),
        text.prop_map(|text| format!("\"{}\"", text.replace('"', "\"\""))),
        text.prop_map(|text| format!("$tag${}$tag$", text.replace("$tag", ""))),
        text.prop_map(|text| format!("/*{}*/", text.replace(['*', '/'], ""))),
        text.prop_map(|text| format!("-- {}\n", text.replace('\n', " "))),
        Just("SELECT".to_owned()),
        Just(" a1 , b$c ".to_owned()),
        Just("( ; COMMIT )".to_owned()),
        Just("; SELECT 2 ".to_owned()),
    ]
}

proptest! {
    #[test]
    fn nothing_inside_quotes_comments_or_brackets_is_taken_for_a_statement(pieces in prop::collection::vec(harmless(), 0..12)) {
        let input = format!("SELECT 1 {}", pieces.join(" "));
        prop_assert_eq!(found(&input), None, "{}", input);
    }

    #[test]
    fn a_statement_behind_anything_is_found(pieces in prop::collection::vec(harmless(), 0..12)) {
        let input = format!("SELECT 1 {}\n;COMMIT", pieces.join(" "));
        prop_assert_eq!(found(&input), Some("COMMIT".to_owned()), "{}", input);
    }

    #[test]
    fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..200), backslashes: bool) {
        let _ = transaction_control(&input, backslashes);
    }
}
