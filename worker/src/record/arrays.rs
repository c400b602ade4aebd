//! Values as texts of arrays, and several ends as the parameters of one statement.

use shared::region::{EndState, TaskKey, TaskResult};
use std::time::Duration;

/// Values as the text of an array.
pub(super) fn array<'v>(values: impl Iterator<Item = Option<&'v [u8]>>) -> Vec<u8> {
    let mut text = vec![b'{'];
    for (i, value) in values.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        match value {
            None => text.extend_from_slice(b"NULL"),
            Some(value) => {
                text.reserve(value.len() + 2);
                text.push(b'"');
                for byte in value {
                    if matches!(byte, b'"' | b'\\') {
                        text.push(b'\\');
                    }
                    text.push(*byte);
                }
                text.push(b'"');
            }
        }
    }
    text.push(b'}');
    text
}

/// Ids and attempts.
pub(super) fn keys<'k>(keys: impl Iterator<Item = &'k TaskKey> + Clone) -> [Vec<u8>; 2] {
    [numbers(keys.clone().map(|key| Some(key.task))), numbers(keys.map(|key| Some(i64::from(key.attempt))))]
}

fn numbers(numbers: impl Iterator<Item = Option<i64>>) -> Vec<u8> {
    let texts: Vec<Option<String>> = numbers.map(|number| number.map(|number| number.to_string())).collect();
    array(texts.iter().map(|text| text.as_ref().map(String::as_bytes)))
}

/// Results as the parameters of `end.sql`, but for the last one.
pub(super) fn results(results: &[TaskResult<'_>]) -> [Vec<u8>; 8] {
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    let [ids, attempts] = keys(results.iter().map(|result| &result.key));
    let failed = |result: &TaskResult<'_>| if result.state == EndState::Fail { &b"t"[..] } else { b"f" };
    [
        ids,
        attempts,
        array(results.iter().map(|result| Some(failed(result)))),
        array(results.iter().map(|result| result.output.as_deref())),
        array(results.iter().map(|result| result.error.as_deref())),
        array(results.iter().map(|result| result.reason.map(str::as_bytes))),
        numbers(results.iter().map(|result| result.times.map(|times| micros(times.began)))),
        numbers(results.iter().map(|result| result.times.map(|times| micros(times.ended)))),
    ]
}

#[cfg(test)]
mod tests {
    use super::array;

    #[test]
    fn an_array_tells_null_values_from_texts_that_only_look_like_it() {
        let values: [Option<&[u8]>; 4] = [Some(b"a\"b\\c"), None, Some(b"NULL"), Some(b"")];
        assert_eq!(array(values.into_iter()), br#"{"a\"b\\c",NULL,"NULL",""}"#);
        assert_eq!(array(std::iter::empty()), b"{}");
    }
}
