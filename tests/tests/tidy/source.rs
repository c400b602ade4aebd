//! What a Rust file contains, read from its tokens: functions, structs, impls, module declarations; with tests left out
//! where they do not count.

use crate::lexer::Token;

/// A function, by the lines from `fn` to its closing brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
    /// The tokens between its braces.
    pub body: std::ops::Range<usize>,
    /// The tokens between its name and its body.
    pub head: std::ops::Range<usize>,
}

/// The same tokens without items that only tests are built with, and without the attributes in front of them.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match attribute(tokens, at) {
            Some(end) if is_for_tests(&tokens[at..end]) => at = item_end(tokens, end),
            Some(end) => {
                kept.extend_from_slice(&tokens[at..end]);
                at = end;
            }
            None => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// The end of an attribute `#[..]` that begins here.
fn attribute(tokens: &[Token], at: usize) -> Option<usize> {
    let starts = tokens.get(at)?.is("#") && tokens.get(at + 1)?.is("[");
    starts.then(|| closing(tokens, at + 1) + 1)
}

/// `#[cfg(test)]`, `#[cfg(all(test, ..))]`, `#[test]`; not `#[cfg(not(test))]`.
fn is_for_tests(attribute: &[Token]) -> bool {
    let has = |text: &str| attribute.iter().any(|token| token.is(text));
    let is_cfg = attribute.get(2).is_some_and(|token| token.is("cfg"));
    (is_cfg && has("test") && !has("not")) || (attribute.len() == 4 && has("test"))
}

/// The end of the item, field or arm that begins here, further attributes included.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while let Some(end) = attribute(tokens, at) {
        at = end;
    }
    const UNTIL_SEMICOLON: [&str; 5] = ["use", "const", "static", "type", "let"];
    const WITH_BODY: [&str; 7] = ["fn", "mod", "impl", "struct", "enum", "trait", "union"];
    let head =
        tokens[at..].iter().take_while(|token| !["{", "}", ";", ",", ":", "="].iter().any(|mark| token.is(mark)));
    let keyword = head.clone().find_map(|token| {
        let known = UNTIL_SEMICOLON.iter().chain(&WITH_BODY).find(|known| token.is(known));
        known.copied()
    });
    // `const fn` has a body
    let to_semicolon =
        keyword.is_some_and(|first| UNTIL_SEMICOLON.contains(&first)) && !head.clone().any(|token| token.is("fn"));
    while let Some(token) = tokens.get(at) {
        if token.is(";") || (keyword.is_none() && token.is(",")) {
            return at + 1;
        }
        if ["(", "[", "{"].iter().any(|open| token.is(open)) {
            let end = closing(tokens, at);
            if token.is("{") && !to_semicolon {
                return end + 1;
            }
            at = end;
        } else if ["}", ")", "]"].iter().any(|close| token.is(close)) {
            // the last field or arm of what it stands in
            return at;
        }
        at += 1;
    }
    at
}

/// The place of the bracket that closes the one at `open`.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if ["(", "[", "{"].iter().any(|mark| token.is(mark)) {
            depth += 1;
        } else if [")", "]", "}"].iter().any(|mark| token.is(mark)) {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at;
            }
        }
    }
    tokens.len().saturating_sub(1)
}

/// All functions with a body, nested ones and methods included.
pub fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if !pair[0].is("fn") || !pair[1].is_word() {
            continue;
        }
        let mut body = at + 2;
        while body < tokens.len() && !tokens[body].is("{") && !tokens[body].is(";") {
            let group = tokens[body].is("(") || tokens[body].is("[");
            body = if group { closing(tokens, body) } else { body } + 1;
        }
        if tokens.get(body).is_some_and(|token| token.is("{")) {
            let end = closing(tokens, body);
            let line = pair[0].line;
            found.push(Function {
                name: pair[1].text.clone(),
                line,
                lines: tokens[end].line - line + 1,
                body: body + 1..end,
                head: at + 2..body,
            });
        }
    }
    found
}

/// A body that is one `match` or one list is a table: it is as long as its subject has cases. Abbreviations for its lines may
/// stand in front: `use`, and closures.
pub fn is_table(body: &[Token]) -> bool {
    let mut at = 0;
    while let Some(next) = abbreviation_end(body, at) {
        at = next;
    }
    let body = &body[at..];
    let ends_with_group = |open: usize| closing(body, open) + 1 == body.len();
    if body.first().is_some_and(|first| first.is("match")) {
        let open = body.iter().position(|token| token.is("{"));
        return open.is_some_and(ends_with_group);
    }
    let list = body.iter().take(4).position(|token| token.is("["));
    list.is_some_and(|open| {
        let before = &body[..open];
        let is_list = before.iter().all(|token| token.is("&") || token.is("vec") || token.is("!"));
        is_list && ends_with_group(open)
    })
}

/// The end of a `use` or of a `let name = |..| ..;` that begins here.
fn abbreviation_end(body: &[Token], at: usize) -> Option<usize> {
    let first = body.get(at)?;
    let is_closure = first.is("let") && body.get(at + 2)?.is("=") && body.get(at + 3)?.is("|");
    if !first.is("use") && !is_closure {
        return None;
    }
    let mut end = at;
    while !body.get(end)?.is(";") {
        let opens = ["(", "[", "{"].iter().any(|mark| body[end].is(mark));
        end = if opens { closing(body, end) } else { end } + 1;
    }
    Some(end + 1)
}

/// The type that an `impl` is for, by the last word of its path, and its line.
pub fn impls(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let in_type = at > 0 && ["(", "->", "&", ":", "<", ",", "+", "="].iter().any(|mark| tokens[at - 1].is(mark));
        if !token.is("impl") || in_type {
            continue;
        }
        let mut depth = 0_i32;
        let mut name = String::new();
        for token in tokens[at + 1..].iter().take_while(|token| !token.is("{") && !token.is("where")) {
            match token.text.as_str() {
                "<" => depth += 1,
                ">" => depth -= 1,
                // an `impl Trait for Type` is for what follows
                "for" if depth == 0 => name.clear(),
                _ if depth == 0 && token.is_word() => name.clone_from(&token.text),
                _ => {}
            }
        }
        found.push((name, token.line));
    }
    found
}

/// Of each struct with named fields, and each variant of an enum with such: its name, its line, and its fields' names.
pub fn structs(tokens: &[Token]) -> Vec<(String, usize, Vec<String>)> {
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if !(pair[0].is("struct") || pair[0].is("enum")) || !pair[1].is_word() {
            continue;
        }
        let mut open = at + 2;
        while open < tokens.len() && !["{", ";", "("].iter().any(|mark| tokens[open].is(mark)) {
            open += 1;
        }
        if tokens.get(open).is_none_or(|token| !token.is("{")) {
            continue;
        }
        let body = &tokens[open + 1..closing(tokens, open)];
        if pair[0].is("struct") {
            found.push((pair[1].text.clone(), pair[0].line, fields(body)));
            continue;
        }
        let mut inside = 0;
        while inside < body.len() {
            let next = body.get(inside + 1);
            if body[inside].is_word() && next.is_some_and(|token| token.is("{")) {
                let end = closing(body, inside + 1);
                let name = format!("{}::{}", pair[1].text, body[inside].text);
                found.push((name, body[inside].line, fields(&body[inside + 2..end])));
                inside = end;
            }
            inside += 1;
        }
    }
    found
}

/// Words before a single colon, outside of any bracket and of generic arguments.
fn fields(body: &[Token]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut at, mut generics) = (0, 0_i32);
    while at < body.len() {
        let token = &body[at];
        if ["(", "[", "{"].iter().any(|mark| token.is(mark)) {
            at = closing(body, at);
        } else if token.is("<") {
            generics += 1;
        } else if token.is(">") {
            generics -= 1;
        } else if generics == 0 && token.is_word() && body.get(at + 1).is_some_and(|next| next.is(":")) {
            found.push(token.text.clone());
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{functions, impls, is_table, structs, without_tests};
    use crate::lexer::tokens;

    fn kept(source: &str) -> String {
        without_tests(&tokens(source)).iter().map(|token| token.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_only_tests_are_built_with_is_left_out() {
        assert_eq!(kept("a; #[cfg(test)] mod tests { x; { y } } b"), "a ; b");
        assert_eq!(kept("#[cfg(test)] #[path = \"t.rs\"] mod tests; b"), "b");
        assert_eq!(kept("#[cfg(test)] use crate::{a, b}; c"), "c");
        assert_eq!(kept("#[cfg(all(test, unix))] pub const fn f() -> [u8; 2] { [1, 2] } c"), "c");
        assert_eq!(kept("struct S { a: u8, #[cfg(test)] b: u8, c: u8 }"), "struct S { a : u8 , c : u8 }");
        assert_eq!(kept("#[cfg(not(test))] a"), "# [ cfg ( not ( test ) ) ] a");
    }

    #[test]
    fn a_function_is_as_long_as_its_lines_from_fn_to_brace() {
        let found =
            functions(&tokens("impl S {\n  fn a(x: [u8; 2])\n  where T: X {\n  {}\n  }\n}\nfn b();\nfn c() {}"));
        let found: Vec<(&str, usize, usize)> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, [("a", 2, 4), ("c", 8, 1)]);
    }

    #[test]
    fn a_table_is_one_match_or_one_list() {
        let body = |source: &str| is_table(&tokens(source));
        assert!(body("match (a, b) { A => 1, B => { 2 } }"));
        assert!(body("&[1, 2]"));
        assert!(body("vec![1, 2]"));
        assert!(body("use E as F; let go = |a| { b; c }; let no = || d; match a { A => go(1) }"));
        assert!(!body("let a = 1; match a { A => 1 }"));
        assert!(!body("match a { A => 1 } + 1"));
        assert!(!body("[1, 2].len()"));
    }

    #[test]
    fn an_impl_is_known_by_its_type() {
        let found =
            impls(&tokens("impl<'a> fmt::Debug for a::Scheduler<'a> {}\nimpl Launcher {}\nfn f() -> impl Fn() {}"));
        assert_eq!(found, [("Scheduler".to_owned(), 1), ("Launcher".to_owned(), 2)]);
    }

    #[test]
    fn fields_are_counted_in_structs_and_in_variants() {
        let found =
            structs(&tokens("struct S { pub a: Vec<(u8, b::C)>, pub(crate) d: E } enum F { G { h: u8 }, I(u8), J }"));
        let found: Vec<(String, String)> =
            found.into_iter().map(|(name, _, fields)| (name, fields.join(" "))).collect();
        assert_eq!(found, [("S".to_owned(), "a d".to_owned()), ("F::G".to_owned(), "h".to_owned())]);
    }
}
