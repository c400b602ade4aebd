//! PURE. Finds transaction control at the top level of an input, before anything of it is sent.
//!
//! An atomic task runs inside a transaction block of ours. The server refuses what cannot run in a block, but a BEGIN,
//! COMMIT or ROLLBACK of the input's own would end it. So the input is read as the server's lexer reads it: quotes
//! (with backslashes where they count), quoted names, dollar quotes, nested comments, brackets, and the bodies of SQL
//! functions (BEGIN ATOMIC .. END), which hold statements of their own. What it cannot make sense of it leaves to the server.

/// Where a forbidden statement begins, and its first word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForbiddenStatement {
    pub at: usize,
    pub word: String,
}

/// The first top-level BEGIN, START, COMMIT, END, ROLLBACK (other than TO), ABORT or PREPARE TRANSACTION.
/// `backslashes`: plain quotes know backslash escapes, because standard_conforming_strings is off.
pub fn transaction_control(input: &[u8], backslashes: bool) -> Option<ForbiddenStatement> {
    let mut statement = StatementHead::default();
    let mut lexer = Lexer { input, at: 0, backslashes };
    let mut brackets = 0usize;
    while let Some(token) = lexer.next() {
        match token {
            Token::Word(start, end) => {
                statement.word(start, &input[start..end], brackets);
                if let Some(found) = statement.forbidden(false) {
                    return Some(found);
                }
            }
            Token::Symbol(b'(' | b'[') => brackets += 1,
            Token::Symbol(b')' | b']') => brackets = brackets.saturating_sub(1),
            Token::Symbol(b';') if brackets == 0 && statement.body_depth == 0 => {
                if let Some(found) = statement.forbidden(true) {
                    return Some(found);
                }
                statement = StatementHead::default();
            }
            Token::Symbol(_) | Token::Quoted => statement.other(),
        }
    }
    statement.forbidden(true)
}

/// The first words of a statement, and how deep in a function's body we are.
#[derive(Default)]
struct StatementHead {
    at: usize,
    words: Vec<String>,
    /// Something else than a word came: what follows is not the head any more.
    closed: bool,
    body_depth: usize,
    creates_routine: bool,
    after_begin: bool,
}

/// More words than this never decide anything.
const HEAD_WORDS: usize = 4;

impl StatementHead {
    fn word(&mut self, at: usize, word: &[u8], brackets: usize) {
        let word = String::from_utf8_lossy(word).to_ascii_uppercase();
        if self.creates_routine && brackets == 0 {
            match word.as_str() {
                // Only both words open a body: a function may well be called begin.
                "ATOMIC" if self.after_begin => self.body_depth += 1,
                "CASE" if self.body_depth > 0 => self.body_depth += 1,
                "END" => self.body_depth = self.body_depth.saturating_sub(1),
                _ => {}
            }
        }
        self.after_begin = word == "BEGIN";
        if self.closed || self.words.len() >= HEAD_WORDS {
            return;
        }
        if self.words.is_empty() {
            self.at = at;
        }
        self.words.push(word);
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        self.creates_routine |= matches!(
            words.as_slice(),
            ["CREATE", "FUNCTION" | "PROCEDURE", ..] | ["CREATE", "OR", "REPLACE", "FUNCTION" | "PROCEDURE"]
        );
    }

    fn other(&mut self) {
        self.after_begin = false;
        if self.words.is_empty() {
            // A statement that begins with no word: a bracketed SELECT, or nonsense.
            self.words.push(String::new());
        }
        self.closed = true;
    }

    /// Decides as soon as the words allow; at the `end` of the statement with what there is.
    fn forbidden(&self, end: bool) -> Option<ForbiddenStatement> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let whole = end || self.closed;
        let forbidden = match words.as_slice() {
            ["BEGIN" | "COMMIT" | "END" | "ABORT", ..] => true,
            ["START", "TRANSACTION", ..] | ["PREPARE", "TRANSACTION", ..] => true,
            // ROLLBACK [WORK | TRANSACTION] TO a savepoint stays inside our block.
            ["ROLLBACK", "TO", ..] | ["ROLLBACK", "WORK" | "TRANSACTION", "TO", ..] => false,
            ["ROLLBACK", "WORK" | "TRANSACTION", _, ..] => true,
            ["ROLLBACK", "WORK" | "TRANSACTION"] | ["ROLLBACK"] => whole,
            ["ROLLBACK", _, ..] => true,
            _ => false,
        };
        forbidden.then(|| ForbiddenStatement { at: self.at, word: self.words.first().cloned().unwrap_or_default() })
    }
}

enum Token {
    /// An unquoted name or keyword, from byte to byte.
    Word(usize, usize),
    Symbol(u8),
    /// A string, a quoted name, a number, a parameter.
    Quoted,
}

struct Lexer<'a> {
    input: &'a [u8],
    at: usize,
    backslashes: bool,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<Token> {
        loop {
            let byte = self.peek(0)?;
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == Some(b'-') => self.skip_line(),
                b'/' if self.peek(1) == Some(b'*') => self.skip_comment(),
                b'\'' => return Some(self.quoted(b'\'', self.backslashes)),
                b'"' => return Some(self.quoted(b'"', false)),
                b'$' => return Some(self.dollar()),
                b'0'..=b'9' => {
                    self.skip_while(|byte| byte.is_ascii_digit() || byte == b'.');
                    return Some(Token::Quoted);
                }
                _ if is_word_start(byte) => return Some(self.word()),
                _ => {
                    self.at += 1;
                    return Some(Token::Symbol(byte));
                }
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.input.get(self.at + ahead).copied()
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        self.skip_while(|byte| byte != b'\n' && byte != b'\r');
    }

    /// Comments nest.
    fn skip_comment(&mut self) {
        let mut depth = 0usize;
        while self.at < self.input.len() {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// From the opening quote to behind the closing one; doubled quotes are part of it.
    fn quoted(&mut self, quote: u8, backslashes: bool) -> Token {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == b'\\' && backslashes {
                self.at += 1;
            } else if byte == quote {
                if self.peek(0) != Some(quote) {
                    break;
                }
                self.at += 1;
            }
        }
        Token::Quoted
    }

    /// $tag$ .. $tag$, a parameter $1, or a lone dollar.
    fn dollar(&mut self) -> Token {
        let tag = self.input[self.at + 1..].iter().take_while(|byte| is_tag_part(**byte)).count();
        let ends = self.peek(tag + 1) == Some(b'$');
        let digits = self.peek(1).is_some_and(|byte| byte.is_ascii_digit());
        if !ends || digits {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
            return Token::Quoted;
        }
        let mark = &self.input[self.at..self.at + tag + 2];
        let body = self.at + mark.len();
        let end = self.input[body..].windows(mark.len()).position(|window| window == mark);
        self.at = end.map_or(self.input.len(), |end| body + end + mark.len());
        Token::Quoted
    }

    /// A word; or a string behind one of the prefixes E, B, X, N and U&.
    fn word(&mut self) -> Token {
        let start = self.at;
        match (self.peek(0).map(|byte| byte.to_ascii_uppercase()), self.peek(1), self.peek(2)) {
            (Some(b'E'), Some(b'\''), _) => {
                self.at += 1;
                return self.quoted(b'\'', true);
            }
            (Some(b'B' | b'X'), Some(b'\''), _) => {
                self.at += 1;
                return self.quoted(b'\'', false);
            }
            (Some(b'N'), Some(b'\''), _) => {
                self.at += 1;
                return self.quoted(b'\'', self.backslashes);
            }
            (Some(b'U'), Some(b'&'), Some(quote @ (b'\'' | b'"'))) => {
                self.at += 2;
                return self.quoted(quote, quote == b'\'' && self.backslashes);
            }
            _ => {}
        }
        self.skip_while(|byte| is_word_start(byte) || byte.is_ascii_digit() || byte == b'$');
        Token::Word(start, self.at)
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_tag_part(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit()
}

#[cfg(test)]
#[path = "lexer/tests.rs"]
mod tests;
