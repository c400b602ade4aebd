//! A JSON tree that keeps what serde_json's own forgets: the order of the keys, and keys that stand twice.
//!
//! Called by `read.rs` alone, which wants to name every mistake of a file at once. What can go wrong: bad syntax,
//! named by line and column; nesting deeper than `JSON_DEPTH_MAX`, or more than `JSON_VALUES_MAX` values, both refused while
//! reading, so that no file can overflow the stack or fill the memory.

use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    /// A fraction, or a number beyond 64 bits.
    Float(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Where the text stops being JSON, and why.
#[derive(Debug, PartialEq)]
pub(super) struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub text: String,
}

impl Json {
    pub fn parse(text: &str) -> Result<Json, SyntaxError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let values_left = Cell::new(JSON_VALUES_MAX);
        Tree { depth: 0, values_left: &values_left }
            .deserialize(&mut deserializer)
            .and_then(|json| deserializer.end().map(|()| json))
            .map_err(|error| {
                let (line, column) = (error.line(), error.column());
                let shown = error.to_string();
                let place = format!(" at line {line} column {column}");
                let mut reason = shown.strip_suffix(&place).unwrap_or(&shown).to_owned();
                if is_comment(text, line, column) {
                    reason.push_str("; JSON has no comments");
                }
                SyntaxError { line, column, text: reason }
            })
    }

    /// What it is, in the words of a message. Never its content, which may be a secret.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "true or false",
            Json::Integer(_) => "a whole number",
            Json::Float(_) => "a number that is not whole, or too large",
            Json::Text(_) => "text",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        }
    }
}

/// serde_json counts columns in bytes, from 1.
fn is_comment(text: &str, line: usize, column: usize) -> bool {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
    let found = line.as_bytes().get(column.saturating_sub(1));
    found.is_some_and(|byte| matches!(byte, b'/' | b'#'))
}

struct Tree<'a> {
    depth: usize,
    values_left: &'a Cell<usize>,
}

impl Tree<'_> {
    fn deeper<E: Error>(&self) -> Result<Tree<'_>, E> {
        if self.depth >= JSON_DEPTH_MAX {
            return Err(E::custom(format!("nested deeper than {JSON_DEPTH_MAX}")));
        }
        Ok(Tree { depth: self.depth + 1, values_left: self.values_left })
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        let left = self.values_left.get().checked_sub(1);
        self.values_left.set(left.ok_or_else(|| D::Error::custom(format!("more than {JSON_VALUES_MAX} values")))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            object.push((key, entries.next_value_seed(self.deeper()?)?));
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::{JSON_DEPTH_MAX, JSON_VALUES_MAX, Json};
    use proptest::prelude::{any, proptest};

    fn refusal(text: &str) -> String {
        let error = Json::parse(text).expect_err("syntax");
        format!("line {} column {}: {}", error.line, error.column, error.text)
    }

    #[test]
    fn order_and_duplicates_are_kept() {
        let entry = |key: &str, number| (key.to_owned(), Json::Integer(number));
        let wanted = Json::Object(vec![entry("b", 1), entry("a", 2), entry("b", 3)]);
        assert_eq!(Json::parse(r#"{"b":1,"a":2,"b":3}"#), Ok(wanted));
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let text = r#"[null, true, -5, 18446744073709551615, 1.5, 1e400000, "é\n"]"#;
        assert!(Json::parse(text).is_err());
        let wanted = vec![
            Json::Null,
            Json::Bool(true),
            Json::Integer(-5),
            Json::Integer(u64::MAX.into()),
            Json::Float(1.5),
            Json::Text("é\n".into()),
        ];
        assert_eq!(Json::parse(&text.replace("1e400000, ", "")), Ok(Json::Array(wanted)));
    }

    #[test]
    fn a_syntax_error_is_named_by_line_and_column() {
        assert_eq!(refusal("{\n \"a\": 1,\n}"), "line 3 column 1: trailing comma");
        assert_eq!(refusal("[1] x"), "line 1 column 5: trailing characters");
        assert!(refusal("").contains("EOF while parsing a value"));
    }

    #[test]
    fn a_comment_is_called_a_comment() {
        assert!(refusal("{ // hello\n}").ends_with("; JSON has no comments"), "{}", refusal("{ // hello\n}"));
    }

    #[test]
    fn nesting_ends_at_64() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse(&nested(JSON_DEPTH_MAX)).is_ok());
        assert!(refusal(&nested(JSON_DEPTH_MAX + 1)).contains("nested deeper than 64"));
        assert!(refusal(&"[".repeat(5_000_000)).contains("nested deeper than 64"));
        assert!(refusal(&"{\"a\":".repeat(1_000_000)).contains("nested deeper than 64"));
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let text = format!("[{}0]", "0,".repeat(JSON_VALUES_MAX));
        assert!(refusal(&text).contains("more than 500000 values"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>(), like in "[\\[\\]{}\",:0-9a-z \\\\]{0,60}") {
            let _ = Json::parse(&text);
            let _ = Json::parse(&like);
        }
    }
}
