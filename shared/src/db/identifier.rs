//! Names from the config as SQL identifiers. The one function that quotes them.

/// A name as it must stand in SQL text. Names with NUL never get here: the config refuses them.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Schema and name, both quoted.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(name))
}

/// A text as an SQL literal that reads the same whatever standard_conforming_strings says.
pub fn literal(text: &str) -> String {
    let body = text.replace('\'', "''").replace('\\', "\\\\");
    if text.contains('\\') { format!("E'{body}'") } else { format!("'{body}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_one_name() {
        assert_eq!(quoted(r#"a"; DROP TABLE x; --"#), r#""a""; DROP TABLE x; --""#);
        assert_eq!(qualified("My Schema", "t\"t"), r#""My Schema"."t""t""#);
    }

    #[test]
    fn a_literal_keeps_quotes_and_backslashes() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"\N"), r"E'\\N'");
    }
}
