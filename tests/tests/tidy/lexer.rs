//! Rust source as tokens with their lines: enough to find paths, functions, structs and macros.
//!
//! Comments are left out, so a name in prose is no dependency. A string is one token with its content. The lexer does not
//! report errors: the compiler has already accepted every file that it reads.

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    /// Of a string: its content, escapes as written.
    pub text: String,
    /// From 1.
    pub line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    Text,
    Number,
    Lifetime,
    /// One character, or `::`, `->`, `=>`.
    Mark,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }

    pub fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

pub fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: source, line: 1, found: Vec::new() };
    while lexer.step() {}
    lexer.found
}

struct Lexer<'s> {
    rest: &'s str,
    line: usize,
    found: Vec<Token>,
}

impl Lexer<'_> {
    /// Reads one token, comment or blank; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment(self.rest));
        } else if let Some((prefix, content, whole)) = string(self.rest) {
            let text = self.rest[prefix..prefix + content].to_owned();
            self.push(Kind::Text, text, whole);
        } else if first == '\'' {
            let length = character(self.rest);
            let kind = if self.rest[1..length].ends_with('\'') { Kind::Text } else { Kind::Lifetime };
            self.push(kind, self.rest[..length].to_owned(), length);
        } else if first.is_ascii_digit() {
            let length = number(self.rest);
            self.push(Kind::Number, self.rest[..length].to_owned(), length);
        } else if first.is_alphabetic() || first == '_' {
            let start = if self.rest.starts_with("r#") { 2 } else { 0 };
            let length = start + word(&self.rest[start..]);
            self.push(Kind::Word, self.rest[start..length].to_owned(), length);
        } else {
            let double = ["::", "->", "=>"].into_iter().find(|mark| self.rest.starts_with(mark));
            let length = double.map_or(first.len_utf8(), str::len);
            self.push(Kind::Mark, self.rest[..length].to_owned(), length);
        }
        true
    }

    fn push(&mut self, kind: Kind, text: String, length: usize) {
        self.found.push(Token { kind, text, line: self.line });
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        self.line += self.rest[..length].matches('\n').count();
        self.rest = &self.rest[length..];
    }
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// `1_000`, `0xff`, `1.5e3`; the range `1..2` ends before its dots.
fn number(rest: &str) -> usize {
    let length = word(rest);
    match rest[length..].strip_prefix('.') {
        Some(behind) if behind.starts_with(|c: char| c.is_ascii_digit()) => length + 1 + word(behind),
        _ => length,
    }
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Of a string at the beginning of `rest`: where its content begins, how long that is, and how long all of it is.
fn string(rest: &str) -> Option<(usize, usize, usize)> {
    let prefix = word(rest);
    if !["", "b", "c", "r", "br", "cr"].contains(&&rest[..prefix]) {
        return None;
    }
    let behind = &rest[prefix..];
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let raw = rest[..prefix].ends_with('r');
    if !behind[hashes..].starts_with('"') || (hashes > 0 && !raw) {
        return None;
    }
    let start = prefix + hashes + 1;
    let content = &rest[start..];
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        let length = content.find(&end)?;
        return Some((start, length, start + length + end.len()));
    }
    let mut escaped = false;
    for (at, c) in content.char_indices() {
        match c {
            '"' if !escaped => return Some((start, at, start + at + 1)),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// A character with its quotes, or a lifetime with its only one.
fn character(rest: &str) -> usize {
    let content = &rest[1..];
    if content.starts_with('\\') {
        let escaped = content.chars().nth(1).map_or(0, char::len_utf8);
        let end = content[1 + escaped..].find('\'').unwrap_or(0);
        return 1 + 1 + escaped + end + 1;
    }
    let first = content.chars().next().map_or(0, char::len_utf8);
    if content[first..].starts_with('\'') { 1 + first + 1 } else { 1 + word(content) }
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokens};

    fn texts(source: &str) -> Vec<String> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_left_out_and_lines_are_counted() {
        let found = tokens("a // b\n/* c /* d */\n e */ f");
        let found: Vec<(&str, usize)> = found.iter().map(|token| (token.text.as_str(), token.line)).collect();
        assert_eq!(found, [("a", 1), ("f", 3)]);
    }

    #[test]
    fn strings_of_every_form_are_one_token() {
        assert_eq!(
            texts(r####"x("a \" b", r#"c " d"#, b"e", '"', '\'', b'f')"####),
            ["x", "(", "a \\\" b", ",", "c \" d", ",", "e", ",", "'\"'", ",", "'\\''", ",", "b", "'f'", ")"]
        );
    }

    #[test]
    fn a_lifetime_is_no_character() {
        let found = tokens("fn f<'a>(x: &'a str) -> char { 'a' }");
        let kinds = |kind| found.iter().filter(|token| token.kind == kind).count();
        assert_eq!((kinds(Kind::Lifetime), kinds(Kind::Text)), (2, 1));
    }

    #[test]
    fn a_range_is_two_numbers() {
        assert_eq!(texts("0..10 1.5 r#type a::b"), ["0", ".", ".", "10", "1.5", "type", "a", "::", "b"]);
    }
}
