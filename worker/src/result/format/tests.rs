//! The rules of the output, each by its number, and the examples that the README gives.
//!
//! The sink is fed by hand, in the order in which a server sends.

use proptest::prelude::*;

use super::*;
use shared::region::EndState;

const INT: u32 = 23;
const TEXT: u32 = 25;
const BOOL: u32 = 16;
const VOID: u32 = 2278;
const KEY: TaskKey = TaskKey { task: 1, attempt: 1 };

#[derive(Default)]
struct Heard {
    overflows: usize,
    notices: Vec<String>,
}

impl Watch for Heard {
    fn overflowed(&mut self) {
        self.overflows += 1;
    }
    fn failed(&mut self, _: &ServerError) {}
    fn noticed(&mut self, notice: ServerError) {
        self.notices.push(notice.to_string());
    }
}

fn run_limited(
    format: &Format,
    limit: usize,
    feed: impl FnOnce(&mut Output<'_>),
) -> (TaskResult<'static>, bool, Heard) {
    let mut heard = Heard::default();
    let mut output = Output::new(format, Verbosity::Default, b"SELECT 1/0", limit, &mut heard);
    feed(&mut output);
    let overflowed = output.overflowed();
    (output.into_result(KEY), overflowed, heard)
}

fn run(format: &Format, feed: impl FnOnce(&mut Output<'_>)) -> Option<String> {
    let (result, overflowed, heard) = run_limited(format, 1 << 20, feed);
    assert!(!overflowed && heard.overflows == 0);
    result.output.map(|text| String::from_utf8(text.into_owned()).unwrap())
}

fn columns(output: &mut Output<'_>, columns: &[(&str, u32)]) {
    let columns: Vec<Column<'_>> =
        columns.iter().map(|(name, type_oid)| Column { name: name.as_bytes(), type_oid: *type_oid }).collect();
    output.columns(&columns);
}

fn row(output: &mut Output<'_>, values: &[&str]) {
    let values: Vec<Option<&[u8]>> = values.iter().map(|v| (*v != "NULL").then_some(v.as_bytes())).collect();
    output.row(&values);
}

fn select(output: &mut Output<'_>, names: &[(&str, u32)], rows: &[&[&str]]) {
    columns(output, names);
    for values in rows {
        row(output, values);
    }
    output.tag(format!("SELECT {}", rows.len()).as_bytes());
}

fn zero() -> ServerError {
    ServerError::local("ERROR", "22012", "division by zero")
}

fn quoting(quote: Option<u8>, escape: Option<u8>) -> Format {
    Format { quote, escape, ..Format::default() }
}

#[test]
fn the_examples_of_the_result_format_hold() {
    let plain = Format::default();
    let quote = quoting(Some(b'"'), None);
    let both = quoting(Some(b'"'), Some(b'\\'));
    type Feed = fn(&mut Output<'_>);
    let table: &[(&str, &Format, Feed, Option<&str>)] = &[
        ("SELECT 1 AS a", &plain, |o| select(o, &[("a", INT)], &[&["1"]]), Some("1")),
        ("SELECT 1 AS a, 2 AS b", &plain, |o| select(o, &[("a", INT), ("b", INT)], &[&["1", "2"]]), Some("a\tb\n1\t2")),
        (
            "SELECT 1 AS a, 2 AS b;SELECT 3 AS c",
            &plain,
            |o| {
                select(o, &[("a", INT), ("b", INT)], &[&["1", "2"]]);
                select(o, &[("c", INT)], &[&["3"]]);
            },
            Some("a\tb\n1\t2\n3"),
        ),
        ("SELECT 1 AS a WHERE false", &plain, |o| select(o, &[("a", INT)], &[]), None),
        ("SELECT pg_sleep(0)", &plain, |o| select(o, &[("pg_sleep", VOID)], &[&[""]]), Some("")),
        (
            "INSERT .. RETURNING *",
            &plain,
            |o| {
                columns(o, &[("a", INT), ("b", TEXT)]);
                row(o, &["2", "y"]);
                row(o, &["3", "NULL"]);
                o.tag(b"INSERT 0 2");
            },
            Some("a\tb\n2\ty\n3\t\\N"),
        ),
        ("DELETE FROM t WHERE false", &plain, |o| o.tag(b"DELETE 0"), Some("DELETE 0")),
        ("SELECT 1/0", &plain, |o| o.error(zero()), Some("")),
        (
            "SELECT 1;SELECT 1/0;SELECT 2",
            &plain,
            |o| {
                select(o, &[("?column?", INT)], &[&["1"]]);
                columns(o, &[("?column?", INT)]);
                o.error(zero());
            },
            Some("1"),
        ),
        ("a\"b\\c", &both, |o| select(o, &[("a", TEXT)], &[&["a\"b\\c"]]), Some(r#""a\"b\\c""#)),
        (
            "SELECT 1 AS a,'x' AS b,NULL AS c,true AS d",
            &quote,
            |o| select(o, &[("a", INT), ("b", TEXT), ("c", TEXT), ("d", BOOL)], &[&["1", "x", "NULL", "t"]]),
            Some("\"a\"\t\"b\"\t\"c\"\t\"d\"\n1\t\"x\"\t\\N\tt"),
        ),
        (
            "BEGIN;SELECT 1",
            &plain,
            |o| {
                o.tag(b"BEGIN");
                select(o, &[("?column?", INT)], &[&["1"]]);
            },
            Some("BEGIN\n1"),
        ),
        ("VACUUM t", &plain, |o| o.tag(b"VACUUM"), Some("VACUUM")),
        (
            "COPY (SELECT 1) TO STDOUT",
            &plain,
            |o| {
                o.copy_out();
                o.copy_data(b"1\n");
                o.tag(b"COPY 1");
            },
            Some("1\n"),
        ),
    ];
    for (input, format, feed, wanted) in table {
        assert_eq!(run(format, feed).as_deref(), *wanted, "{input}");
    }
}

#[test]
fn r1_an_empty_copy_leaves_an_empty_output() {
    let output = run(&Format::default(), |o| {
        o.copy_out();
        o.tag(b"COPY 0");
    });
    assert_eq!(output.as_deref(), Some(""));
}

#[test]
fn r2_an_empty_first_row_is_followed_by_no_newline() {
    let output = run(&Format::default(), |o| select(o, &[("a", TEXT)], &[&[""], &["x"], &[""], &["y"]]));
    assert_eq!(output.as_deref(), Some("x\n\ny"));
}

#[test]
fn r3_a_header_needs_two_columns_a_row_and_the_setting() {
    let off = Format { header: false, ..Format::default() };
    let two: &[(&str, u32)] = &[("a", INT), ("b", INT)];
    assert_eq!(run(&off, |o| select(o, two, &[&["1", "2"]])).as_deref(), Some("1\t2"));
    assert_eq!(run(&Format::default(), |o| select(o, two, &[])), None);
    let again = run(&Format::default(), |o| {
        select(o, two, &[&["1", "2"]]);
        select(o, two, &[&["3", "4"], &["5", "6"]]);
    });
    assert_eq!(again.as_deref(), Some("a\tb\n1\t2\na\tb\n3\t4\n5\t6"));
}

#[test]
fn r4_header_names_are_quoted_and_escaped() {
    let output = run(&quoting(Some(b'"'), Some(b'"')), |o| select(o, &[("a\"", INT), ("b", INT)], &[&["1", "2"]]));
    assert_eq!(output.as_deref(), Some("\"a\"\"\"\t\"b\"\n1\t2"));
}

#[test]
fn r5_without_string_numbers_are_quoted_and_null_is_not() {
    let format = Format { string: false, ..quoting(Some(b'\''), None) };
    assert_eq!(run(&format, |o| select(o, &[("a", INT)], &[&["1"], &["NULL"]])).as_deref(), Some("'1'\n\\N"));
}

#[test]
fn r5_an_escape_without_a_quote_does_nothing() {
    let output = run(&quoting(None, Some(b'\\')), |o| select(o, &[("a", TEXT)], &[&["a\\b\"c"]]));
    assert_eq!(output.as_deref(), Some("a\\b\"c"));
}

#[test]
fn r5_a_delimiter_that_is_off_joins_the_columns() {
    let format = Format { delimiter: None, ..Format::default() };
    assert_eq!(run(&format, |o| select(o, &[("a", INT), ("b", INT)], &[&["1", "2"]])).as_deref(), Some("ab\n12"));
}

#[test]
fn r6_only_the_listed_types_are_bare() {
    for bare in [1560, 16, 29, 700, 701, 21, 23, 20, 1700, 26, 27, 28] {
        assert!(!is_string(bare), "{bare}");
    }
    // varbit, money, xid8, date, timestamptz, int4[], json, void, "char", text, unknown
    for string in [1562, 790, 5069, 1082, 1184, 1007, 114, 2278, 18, 25, 705, 0] {
        assert!(is_string(string), "{string}");
    }
}

#[test]
fn r7_a_statement_with_columns_writes_no_tag_and_the_next_one_does() {
    let output = run(&Format::default(), |o| {
        select(o, &[("a", INT)], &[]);
        o.tag(b"SELECT 3");
    });
    assert_eq!(output.as_deref(), Some("SELECT 3"));
}

#[test]
fn r8_and_r12_silence_and_notices_leave_the_output_null() {
    let (result, overflowed, heard) =
        run_limited(&Format::default(), 10, |o| o.notice(ServerError::local("NOTICE", "00000", "n")));
    assert_eq!((result, overflowed), (TaskResult::done(KEY, None), false));
    assert_eq!(heard.notices, ["NOTICE: n"]);
}

#[test]
fn r9_and_r13_what_was_written_stays_and_errors_are_joined_by_a_newline() {
    let (result, ..) = run_limited(&Format::default(), 100, |o| {
        o.tag(b"BEGIN");
        o.error(zero());
        o.error(ServerError::local("ERROR", "23503", "late"));
    });
    assert_eq!(result.state, EndState::Fail);
    assert_eq!(result.output.as_deref().unwrap(), b"BEGIN");
    let wanted = "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0\nERROR:  late\nSTATEMENT:  SELECT 1/0";
    assert_eq!(String::from_utf8(result.error.unwrap().into_owned()).unwrap(), wanted);
}

#[test]
fn r11_copy_data_is_appended_bare_and_the_next_part_is_parted() {
    let output = run(&Format::default(), |o| {
        o.tag(b"BEGIN");
        o.copy_out();
        o.copy_data(b"1\n");
        o.copy_data(b"2\n");
        o.tag(b"COPY 2");
        o.tag(b"COMMIT");
    });
    assert_eq!(output.as_deref(), Some("BEGIN1\n2\n\nCOMMIT"));
}

#[test]
fn an_output_that_fills_its_limit_exactly_does_not_overflow() {
    let (result, overflowed, heard) =
        run_limited(&Format::default(), 3, |o| select(o, &[("a", INT)], &[&["1"], &["2"]]));
    assert_eq!((result.output.as_deref().unwrap(), overflowed, heard.overflows), (&b"1\n2"[..], false, 0));
}

#[test]
fn what_does_not_fit_is_left_out_whole_and_told_once() {
    let (result, overflowed, heard) = run_limited(&Format::default(), 7, |o| {
        assert_eq!(o.room(), 7);
        select(o, &[("a", INT)], &[&["1"], &["22"], &["333"], &["4"]]);
        assert_eq!(o.room(), 0);
        o.overflow();
        o.tag(b"X");
    });
    assert_eq!(result.output.as_deref().unwrap(), b"1\n22");
    assert!(overflowed);
    assert_eq!(heard.overflows, 1);
}

#[test]
fn a_header_goes_with_its_first_row_or_not_at_all() {
    let (result, overflowed, _) =
        run_limited(&Format::default(), 5, |o| select(o, &[("a", INT), ("b", INT)], &[&["1", "2"]]));
    assert_eq!((result.output.as_deref().unwrap(), overflowed), (&b""[..], true));
}

#[test]
fn the_memory_of_the_output_stays_within_the_limit() {
    let limit = 100_000;
    let mut heard = Heard::default();
    let format = Format::default();
    let mut output = Output::new(&format, Verbosity::Default, b"", limit, &mut heard);
    columns(&mut output, &[("a", TEXT)]);
    while !output.overflowed() {
        row(&mut output, &["some text of a row"]);
        assert!(output.text.as_ref().unwrap().capacity() <= limit);
    }
}

/// Reads one value back as a careful user would.
fn unquote(text: &[u8], quote: u8, escape: u8) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(&[quote])?.strip_suffix(&[quote])?;
    let mut value = Vec::new();
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        if byte == escape {
            value.push(*bytes.next()?);
        } else if byte == quote {
            return None;
        } else {
            value.push(byte);
        }
    }
    Some(value)
}

proptest! {
    #[test]
    fn a_quoted_value_reads_back_as_it_was(value in "[\"\\\\a\t\n]{0,30}", same in any::<bool>()) {
        let (quote, escape) = if same { (b'"', b'"') } else { (b'"', b'\\') };
        let text = run(&quoting(Some(quote), Some(escape)), |o| select(o, &[("a", TEXT)], &[&[&value]])).unwrap();
        prop_assert_eq!(unquote(text.as_bytes(), quote, escape), Some(value.into_bytes()));
    }

    #[test]
    fn rows_and_columns_can_be_counted_by_their_separators(
        rows in proptest::collection::vec(proptest::collection::vec("[a-z]{1,5}", 3), 1..10),
    ) {
        let text = run(&Format::default(), |o| {
            columns(o, &[("x", TEXT), ("y", TEXT), ("z", TEXT)]);
            for values in &rows {
                row(o, &values.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }).unwrap();
        let lines: Vec<Vec<String>> =
            text.split('\n').map(|line| line.split('\t').map(String::from).collect()).collect();
        prop_assert_eq!(&lines[0], &["x", "y", "z"]);
        prop_assert_eq!(&lines[1..], &rows[..]);
    }

    #[test]
    fn no_feed_passes_the_limit(values in proptest::collection::vec("[a-c\"]{0,8}", 0..20), limit in 0usize..60) {
        let (result, overflowed, heard) = run_limited(&quoting(Some(b'"'), Some(b'\\')), limit, |o| {
            columns(o, &[("a", TEXT)]);
            for value in &values {
                row(o, &[value]);
            }
        });
        prop_assert!(result.output.is_none_or(|text| text.len() <= limit));
        prop_assert_eq!(heard.overflows, usize::from(overflowed));
    }
}
