//! Compares printed output with the output that a document shows.
//!
//! Spaces, rules of tables and empty lines do not count. A date, a time of day and a number of four or more digits in the
//! document stand for any date, time and number. A line `..` in the document stands for any lines.

/// Does the real output look like the shown one? In lines that begin with the word `vary` all numbers may differ.
pub fn is_alike(shown: &str, real: &str, vary: Option<&str>) -> bool {
    lines_match(&lines(shown), &lines(real), vary)
}

/// The lines as words, without rules and empty lines.
fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines().filter(|line| !is_rule(line)).map(|line| line.split_whitespace().collect()).collect()
}

/// An empty line, or the line under the header of a table.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || (line.len() > 1 && line.chars().all(|char| char == '-' || char == '+'))
}

fn lines_match(shown: &[Vec<&str>], real: &[Vec<&str>], vary: Option<&str>) -> bool {
    match (shown, real) {
        ([], []) => true,
        ([first, rest @ ..], _) if first == &[".."] => {
            (0..=real.len()).any(|skip| lines_match(rest, &real[skip..], vary))
        }
        ([first, rest @ ..], [line, more @ ..]) => {
            let free = if vary.is_some() && first.first().copied() == vary { 1 } else { 4 };
            words_match(first, line, free) && lines_match(rest, more, vary)
        }
        _ => false,
    }
}

fn words_match(shown: &[&str], real: &[&str], free: usize) -> bool {
    shown.len() == real.len() && shown.iter().zip(real).all(|(shown, real)| word_matches(shown, real, free))
}

/// Numbers of `free` and more digits stand for any number.
fn word_matches(mut shown: &str, mut real: &str, free: usize) -> bool {
    while !shown.is_empty() {
        if let Some(length) = date(shown).or_else(|| time(shown)) {
            let is_date = date(shown).is_some();
            let Some(other) = (if is_date { date(real) } else { time(real) }) else { return false };
            (shown, real) = (&shown[length..], &real[other..]);
        } else if digits(shown) >= free {
            if digits(real) == 0 {
                return false;
            }
            (shown, real) = (&shown[digits(shown)..], &real[digits(real)..]);
        } else {
            // a short number is compared as a whole, so that 12 is not taken for the start of 1234
            let length = digits(shown).max(shown.chars().next().map_or(1, char::len_utf8));
            let Some(rest) = real.strip_prefix(&shown[..length]) else { return false };
            if digits(shown) > 0 && digits(rest) > 0 {
                return false;
            }
            (shown, real) = (&shown[length..], rest);
        }
    }
    real.is_empty()
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The length of a text of this form at the start; `9` is a digit, everything else itself.
fn form(text: &str, form: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..form.len())?;
    let fits =
        form.bytes().zip(bytes).all(|(form, byte)| if form == b'9' { byte.is_ascii_digit() } else { form == *byte });
    fits.then_some(form.len())
}

/// A date, and the time behind a `T`.
fn date(text: &str) -> Option<usize> {
    let day = form(text, "9999-99-99")?;
    let clock = text[day..].strip_prefix('T').and_then(time).map_or(0, |length| length + 1);
    Some(day + clock)
}

/// A time of day or an interval, with a fraction and a zone.
fn time(text: &str) -> Option<usize> {
    let mut length = form(text, "99:99:99")?;
    if let Some(fraction) = text[length..].strip_prefix('.') {
        length += 1 + digits(fraction);
    }
    for zone in ["Z", "+99:99", "-99:99", "+99", "-99"] {
        if let Some(more) = form(&text[length..], zone) {
            return Some(length + more);
        }
    }
    Some(length)
}

#[test]
fn times_and_long_numbers_may_differ_and_nothing_else() {
    let shown =
        " id |             stop              \n----+----\n  1 | 2026-11-16 03:11:29.922187+00\n\npid 17894 of web1\n";
    assert!(is_alike(shown, "id | stop\n--+--\n1 | 2027-01-01 00:00:00+00\npid 311 of web1", None));
    assert!(!is_alike(shown, "id | stop\n--+--\n2 | 2027-01-01 00:00:00+00\npid 311 of web1", None));
    assert!(!is_alike(shown, "id | stop\n--+--\n1 | never at all\npid 311 of web1", None));
    assert!(!is_alike("12", "1234", None) && !is_alike("12 a", "12", None) && is_alike("12", "12", None));
    assert!(
        is_alike("a\n..\nz", "a\nb\nc\nz", None) && is_alike("a\n..", "a", None) && !is_alike("a\n..\nz", "a\nb", None)
    );
    assert!(is_alike("slots 3 of 16", "slots 4 of 16", Some("slots")) && !is_alike("a 3", "a 4", Some("slots")));
    assert!(is_alike("at 2026-11-16T08:55:36.020Z", "at 2027-11-16T08:55:36.1Z", None));
}
