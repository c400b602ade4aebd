//! One value of the config, read as what its key wants.
//!
//! Called by `read.rs` and `settings.rs`, which know the place; here it is only `Err("found .., want ..")`. Numbers
//! and lengths of time are shown in the message, texts are not, except what begins
//! like a length of time and goes wrong later: a text may be a password that landed under the wrong key.

use super::duration::{IntervalText, Milliseconds, parse_ms};
use super::json::Json;
use crate::conninfo::Conninfo;
use crate::limits::{DEFAULT_BYTES_MAX, NAME_BYTES_MAX};
use std::ops::RangeInclusive;

pub(super) fn wrong_kind(found: &Json, wanted: &str) -> String {
    format!("found {}, want {wanted}", found.kind())
}

pub(super) fn text(json: &Json) -> Result<&str, String> {
    match json {
        Json::Text(text) if text.contains('\0') => Err("holds a NUL character".to_owned()),
        Json::Text(text) => Ok(text),
        other => Err(wrong_kind(other, "text")),
    }
}

/// A text that goes into a column as it is.
pub(super) fn short_text(json: &Json) -> Result<String, String> {
    let text = text(json)?;
    if text.len() > DEFAULT_BYTES_MAX {
        return Err(format!("has {} bytes, more than {DEFAULT_BYTES_MAX}", text.len()));
    }
    Ok(text.to_owned())
}

/// The name of a role, a database, a schema, a table, a launcher.
pub(super) fn name(json: &Json) -> Result<String, String> {
    match text(json)? {
        "" => Err("is empty; want a name".to_owned()),
        long if long.len() > NAME_BYTES_MAX => {
            Err(format!("has {} bytes; a name has at most {NAME_BYTES_MAX}", long.len()))
        }
        name => Ok(name.to_owned()),
    }
}

pub(super) fn boolean(json: &Json) -> Result<bool, String> {
    match json {
        Json::Bool(value) => Ok(*value),
        other => Err(wrong_kind(other, "true or false")),
    }
}

pub(super) fn integer<N>(json: &Json, range: RangeInclusive<N>) -> Result<N, String>
where
    N: Copy + Into<i128> + TryFrom<i128> + std::fmt::Display,
{
    let (low, high) = (*range.start(), *range.end());
    match json {
        Json::Integer(number) if (low.into()..=high.into()).contains(number) => {
            N::try_from(*number).map_err(|_| format!("found {number}, which is too large"))
        }
        Json::Integer(number) => Err(format!("found {number}, want a whole number from {low} to {high}")),
        other => Err(wrong_kind(other, &format!("a whole number from {low} to {high}"))),
    }
}

/// A length of time for ourselves: a number of milliseconds or a text.
pub(super) fn duration_ms(json: &Json, range: RangeInclusive<u64>) -> Result<u64, String> {
    let ms = match json {
        Json::Integer(number) => u64::try_from(*number).map_err(|_| format!("found {number}, want a duration"))?,
        Json::Text(text) => parse_ms(text).map_err(|error| error.to_string())?,
        other => return Err(wrong_kind(other, "milliseconds or a text such as \"10 s\"")),
    };
    if range.contains(&ms) {
        return Ok(ms);
    }
    let [found, low, high] = [ms, *range.start(), *range.end()].map(Milliseconds);
    Err(format!("found {found}, want {low} to {high}"))
}

/// A length of time for the server, as a text that its interval input takes.
pub(super) fn interval(json: &Json, zero_allowed: bool) -> Result<String, String> {
    let interval = match json {
        Json::Integer(number) => {
            let ms = u64::try_from(*number).map_err(|_| format!("found {number}, want a duration"))?;
            IntervalText::from_ms(ms)
        }
        Json::Text(text) => text.parse(),
        other => return Err(wrong_kind(other, "milliseconds or a text such as \"10 min\"")),
    };
    let interval = interval.map_err(|error| error.to_string())?;
    if interval.is_zero() && !zero_allowed {
        return Err("found 0, want more than 0".to_owned());
    }
    Ok(interval.to_string())
}

/// What fits into PostgreSQL's one-byte type "char"; empty means off.
pub(super) fn one_byte(json: &Json) -> Result<String, String> {
    match text(json)? {
        byte if byte.len() <= 1 => Ok(byte.to_owned()),
        longer => Err(format!("has {} bytes, want one byte, or an empty text for off", longer.len())),
    }
}

/// Bytes: a number, or a text with PostgreSQL's units (B, kB, MB, GB; 1 kB is 1024 B).
pub(super) fn size_bytes(json: &Json, range: RangeInclusive<u64>) -> Result<u64, String> {
    let wanted = "a number of bytes or a text such as \"64 MB\"";
    let bytes = match json {
        Json::Integer(number) => u64::try_from(*number).ok(),
        Json::Text(text) => parse_size(text),
        other => return Err(wrong_kind(other, wanted)),
    };
    let bytes = bytes.ok_or_else(|| format!("is not a size; want {wanted}"))?;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("found {bytes} bytes, want {} to {}", range.start(), range.end()))
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

pub(super) fn conninfo(json: &Json) -> Result<Conninfo, String> {
    Conninfo::parse(text(json)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Json, boolean, conninfo, duration_ms, integer, interval, name, one_byte, size_bytes, text};

    fn say(text: &str) -> Json {
        Json::Text(text.to_owned())
    }

    #[test]
    fn a_text_that_does_not_begin_like_a_length_of_time_is_not_shown() {
        for text in ["passfile=x password='hush'", "hush", " 'hush' 5 s", ""] {
            let words = duration_ms(&say(text), 0..=9).unwrap_err();
            assert!(words.starts_with("is not a duration; write for example"), "{words}");
            assert!(!interval(&say(text), true).unwrap_err().contains("hush"));
        }
        assert!(duration_ms(&say("5 lightyears"), 0..=9).unwrap_err().contains("lightyears"));
    }

    #[test]
    fn a_wrong_type_says_what_was_found_and_what_is_wanted() {
        assert_eq!(text(&Json::Null), Err("found null, want text".into()));
        assert_eq!(boolean(&say("true")), Err("found text, want true or false".into()));
        assert_eq!(
            integer(&Json::Float(1.5), 0..=9u32),
            Err("found a number that is not whole, or too large, want a whole number from 0 to 9".into())
        );
        assert!(duration_ms(&Json::Bool(true), 0..=9).unwrap_err().starts_with("found true or false, want milli"));
        assert!(size_bytes(&Json::Array(vec![]), 0..=9).unwrap_err().starts_with("found an array, want a number"));
    }

    #[test]
    fn names_have_1_to_63_bytes_and_no_nul() {
        assert_eq!(name(&say(&"x".repeat(63))), Ok("x".repeat(63)));
        for (bad, why) in [("", "empty"), (&"é".repeat(32), "64 bytes"), ("a\0b", "NUL")] {
            assert!(name(&say(bad)).unwrap_err().contains(why));
        }
    }

    #[test]
    fn numbers_keep_to_their_range() {
        assert_eq!(integer(&Json::Integer(-5), i32::MIN..=i32::MAX), Ok(-5));
        assert_eq!(integer(&Json::Integer(u32::MAX.into()), 1..=u32::MAX), Ok(u32::MAX));
        let error = integer(&Json::Integer(5000), 0..=4096u32).unwrap_err();
        assert_eq!(error, "found 5000, want a whole number from 0 to 4096");
        assert!(integer(&Json::Integer(i128::MAX), 0..=1u32).is_err());
    }

    #[test]
    fn times_are_numbers_of_milliseconds_or_texts() {
        assert_eq!(duration_ms(&Json::Integer(100), 1..=1000), Ok(100));
        assert_eq!(duration_ms(&say("1 s"), 1..=1000), Ok(1000));
        assert_eq!(duration_ms(&say("2 s"), 1..=1000), Err("found 2 s, want 1 ms to 1 s".into()));
        assert!(duration_ms(&Json::Integer(-1), 0..=1).unwrap_err().contains("found -1"));
        assert!(duration_ms(&say("1 moon"), 0..=1).unwrap_err().contains("\"1 moon\""));
    }

    #[test]
    fn intervals_become_text_for_the_server() {
        assert_eq!(interval(&Json::Integer(600_000), true), Ok("10 min".into()));
        assert_eq!(interval(&say("1 month 90 s"), true), Ok("1 mon 1 min 30 s".into()));
        assert_eq!(interval(&Json::Integer(0), true), Ok("0 s".into()));
        assert!(interval(&Json::Integer(0), false).unwrap_err().contains("more than 0"));
        assert!(interval(&Json::Integer(i128::from(u64::MAX)), true).is_err());
    }

    #[test]
    fn a_char_column_takes_one_byte_or_none() {
        assert_eq!(one_byte(&say("\t")), Ok("\t".into()));
        assert_eq!(one_byte(&say("")), Ok(String::new()));
        for bad in ["ab", "é", "\0"] {
            assert!(one_byte(&say(bad)).is_err());
        }
    }

    #[test]
    fn sizes_have_postgresqls_units() {
        let all = 0..=u64::MAX;
        for (text, bytes) in [("512 kB", 524_288), ("64MB", 67_108_864), ("1 GB", 1 << 30), ("7", 7), ("7B", 7)] {
            assert_eq!(size_bytes(&say(text), all.clone()), Ok(bytes), "{text}");
        }
        for bad in ["", "MB", "1.5 MB", "-1", "1 MiB", "99999999999999 TB"] {
            assert!(size_bytes(&say(bad), all.clone()).unwrap_err().contains("not a size"), "{bad}");
        }
        assert_eq!(size_bytes(&Json::Integer(9), 1..=5), Err("found 9 bytes, want 1 to 5".into()));
    }

    #[test]
    fn a_bad_conninfo_is_described_without_its_values() {
        let error = conninfo(&say("password=s3cret hots")).unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
