//! Makes the text that is sent from a statement's file.
//!
//! A file begins with a head of comment lines, which is not sent. One of them, with its continuation lines, lists the
//! parameters in the order in which their values are sent: `-- parameters: ids bigint[], attempts int[]`. In the body
//! `:ids` becomes the number of that place, wherever it stands but in quotes and comments. `{name}` becomes a value of the
//! caller, a name of the queue, the number of a lock kind, or a fragment. The parameters of a fragment are those of the
//! statement that includes it, so a fragment knows names and no numbers.

use super::fragment::fragment;
use super::queue_name::Queue;
use super::task_row;
use crate::config::Settings;
use crate::db::identifier::literal;
use crate::db::lock_key;

/// What the caller puts in place of a name in braces.
pub(super) enum Value {
    /// Stands as it is, whatever it looks like.
    Text(String),
    /// Is rendered as a part of the statement.
    Fragment(&'static str),
}

pub(super) struct Renderer<'a> {
    parameters: Vec<&'a str>,
    queue: Option<&'a Queue>,
    values: &'a [(&'a str, Value)],
}

/// The statement with everything in it and without its head, in one pass: a value that looks like a name in braces is left alone.
pub(super) fn render(statement: &str, queue: Option<&Queue>, values: &[(&str, Value)]) -> String {
    let renderer = Renderer { parameters: parameters(statement).map(|(name, _)| name).collect(), queue, values };
    let mut out = String::with_capacity(statement.len() + 256);
    renderer.put(body(statement), &mut out);
    out
}

/// A statement that names no queue, without its head comment.
pub fn bare(statement: &str) -> String {
    render(statement, None, &[])
}

/// A statement with these values under their names, without its head comment.
pub(in crate::db) fn fill(statement: &str, names: &[(&str, String)]) -> String {
    let values: Vec<_> = names.iter().map(|(name, value)| (*name, Value::Text(value.clone()))).collect();
    render(statement, None, &values)
}

/// Names and types of a statement's parameters, in the order in which their values are sent.
pub fn parameters(statement: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut inside = false;
    let lines = head(statement).lines().filter_map(move |line| {
        let listed = line.strip_prefix("-- parameters: ").filter(|list| !list.starts_with("none"));
        inside = listed.is_some() || inside && line.starts_with("--    ");
        if inside { Some(listed.unwrap_or(&line[2..])) } else { None }
    });
    let items = lines.flat_map(|line| line.split(',')).map(str::trim);
    items.filter(|item| !item.is_empty()).map(|item| item.split_once(' ').unwrap_or((item, "")))
}

/// The comment lines at the beginning.
pub fn head(statement: &str) -> &str {
    &statement[..statement.len() - without_head(statement).len()]
}

fn body(statement: &str) -> &str {
    without_head(statement).trim_end_matches('\n')
}

fn without_head(statement: &str) -> &str {
    let mut rest = statement;
    while rest.starts_with("--") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

impl Renderer<'_> {
    fn put(&self, body: &str, out: &mut String) {
        let mut rest = body;
        let mut quote = None;
        while let Some(at) = rest.find(['{', ':', '\'', '"', '-']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let length = match rest.as_bytes()[0] {
                b'{' => self.put_value(rest, out),
                b':' if quote.is_none() => self.put_parameter(rest, out),
                b'-' if quote.is_none() && rest.starts_with("--") => {
                    let line = rest.split('\n').next().unwrap_or_default();
                    out.push_str(line);
                    line.len()
                }
                byte => {
                    if quote == Some(byte) {
                        quote = None;
                    } else if quote.is_none() && matches!(byte, b'\'' | b'"') {
                        quote = Some(byte);
                    }
                    out.push(char::from(byte));
                    1
                }
            };
            rest = &rest[length..];
        }
        out.push_str(rest);
    }

    /// At a brace. How much of the text was dealt with.
    fn put_value(&self, rest: &str, out: &mut String) -> usize {
        let name = word(&rest[1..]);
        if rest[1 + name.len()..].starts_with('}') && self.put_named(name, out) {
            return name.len() + 2;
        }
        out.push('{');
        1
    }

    /// At a colon: a parameter, or a part of a cast or an assignment.
    fn put_parameter(&self, rest: &str, out: &mut String) -> usize {
        let name = word(&rest[1..]);
        if let Some(place) = self.parameters.iter().position(|parameter| *parameter == name) {
            out.push_str(&format!("${}", place + 1));
            return 1 + name.len();
        }
        let colons = if rest.starts_with("::") { "::" } else { ":" };
        out.push_str(colons);
        colons.len()
    }

    /// False: nothing has that name.
    fn put_named(&self, name: &str, out: &mut String) -> bool {
        match self.values.iter().find(|(own, _)| *own == name) {
            Some((_, Value::Text(text))) => out.push_str(text),
            Some((_, Value::Fragment(text))) => self.put(body(text), out),
            None => {
                if let Some(own) = self.queue.and_then(|queue| queue.named(name)).or_else(|| general(name)) {
                    out.push_str(&own);
                } else if let Some(text) = fragment(name) {
                    self.put(body(text), out);
                } else if let Some(part) = task_row::part(name) {
                    self.put(&part, out);
                } else {
                    return false;
                }
            }
        }
        true
    }
}

/// The name that the text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// What stands under a name in braces in every statement, whether it is one of a queue or not.
fn general(name: &str) -> Option<String> {
    Some(match name {
        "task_key" => lock_key::TASK.to_string(),
        "unknown_key" => lock_key::UNKNOWN.to_string(),
        "wakeup_key" => lock_key::WAKE_UP.to_string(),
        "server_settings" => Settings::server_settings().map(literal).collect::<Vec<_>>().join(", "),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(body: &str) -> String {
        render(
            &format!("-- Head.\n-- parameters: id bigint,\n--     ids bigint[], mi text\n-- locks: none\n{body}\n"),
            None,
            &[],
        )
    }

    #[test]
    fn a_parameter_becomes_its_place_in_the_list_but_not_in_quotes_and_comments() {
        assert_eq!(rendered("SELECT :id::bigint, :ids[1], x::id"), "SELECT $1::bigint, $2[1], x::id");
        assert_eq!(rendered("'HH:mi' \"a:id\" 'it''s :id' :mi"), "'HH:mi' \"a:id\" 'it''s :id' $3");
        assert_eq!(rendered("x -- it's :id\n:id"), "x -- it's :id\n$1");
        assert_eq!(rendered("a - :id := :idle"), "a - $1 := :idle");
    }

    #[test]
    fn a_list_goes_on_in_indented_lines_and_ends_with_the_others() {
        let text = "-- x\n-- parameters: a int, b name,\n--     c\n-- caller: d, e\nSELECT 1";
        assert_eq!(parameters(text).collect::<Vec<_>>(), [("a", "int"), ("b", "name"), ("c", "")]);
        assert_eq!(parameters("-- parameters: none\n").count(), 0);
        assert_eq!((head(text).lines().count(), body(text)), (4, "SELECT 1"));
    }
}
