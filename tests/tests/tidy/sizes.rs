//! Lengths of files and functions, and how much the two event loops hold.

use crate::allowed::TABLES;
use crate::finding::Finding;
use crate::lexer::{Token, tokens};
use crate::source::{functions, impls, is_table, structs, without_tests};
use crate::tree::Tree;

const FILE_LINES: usize = 450;
const FUNCTION_LINES: usize = 80;
const LOOP_FIELDS: usize = 15;

/// The structs of the event loops; their methods are all in one file, so that no other module reaches into their fields.
const LOOPS: [(&str, &str, &str); 2] =
    [("Scheduler", "scheduler", "scheduler/src/event_loop.rs"), ("Launcher", "launcher", "launcher/src/event_loop.rs")];

/// Endings of files that people write and read as programs.
const PROGRAMS: [&str; 7] = [".rs", ".sql", ".sh", ".js", ".ts", ".css", ".html"];

/// Generated from other files, which are checked instead.
const GENERATED: [&str; 1] = ["shared/sql/schema.sql"];

/// Every program file, scripts included.
fn programs(tree: &Tree) -> Vec<String> {
    let is_script = |path: &str| path.starts_with("scripts/") && !path.contains('.');
    let mut all = tree.below("");
    all.retain(|path| PROGRAMS.iter().any(|end| path.ends_with(end)) || is_script(path));
    all.retain(|path| !GENERATED.contains(&path.as_str()));
    all
}

pub fn rust_files(tree: &Tree) -> Vec<String> {
    let mut all = tree.below("");
    all.retain(|path| path.ends_with(".rs"));
    all
}

/// Rust files of a crate with the tokens of what is not built for tests only.
pub fn own_code(tree: &Tree, folder: &str) -> Vec<(String, Vec<Token>)> {
    let mut files = tree.below(&format!("{folder}/src"));
    files.retain(|path| path.ends_with(".rs") && !path.ends_with("/tests.rs") && !path.contains("/tests/"));
    files.into_iter().map(|path| (without_tests(&tokens(&tree.read(&path))), path)).map(|(t, p)| (p, t)).collect()
}

pub fn long_files(tree: &Tree) -> Vec<Finding> {
    let count = |path: String| (tree.read(&path).lines().count(), path);
    let long = programs(tree).into_iter().map(count).filter(|(lines, _)| *lines > FILE_LINES);
    long.map(|(lines, path)| Finding::new(path, format!("has {lines} lines, and {FILE_LINES} are allowed"))).collect()
}

pub fn long_functions(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in rust_files(tree) {
        let tokens = tokens(&tree.read(&path));
        for function in functions(&tokens).iter().filter(|function| function.lines > FUNCTION_LINES) {
            let key = format!("{path} {}", function.name);
            let listed = TABLES.iter().any(|table| table.key == key);
            let table = is_table(&tokens[function.body.clone()]);
            let says = match (listed, table) {
                (true, true) => continue,
                (true, false) => "is listed as a table in allowed.rs, and is not one match or one list",
                (false, true) => "is a table: list it in allowed.rs with the reason",
                (false, false) => "is too long",
            };
            let lines = function.lines;
            found.push(Finding::new(key, format!("{says} ({lines} lines, and {FUNCTION_LINES} are allowed)")));
        }
    }
    found
}

/// Functions of the catalog, and those that statements make. None is a table, so there is no list of exceptions.
pub fn long_sql_functions(tree: &Tree) -> Vec<Finding> {
    let mut files = tree.below("shared/sql");
    files.retain(|path| path.ends_with(".sql") && !GENERATED.contains(&path.as_str()));
    let mut found = Vec::new();
    for path in files {
        let long = sql_functions(&tree.read(&path)).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES);
        found.extend(long.map(|(name, lines)| {
            Finding::new(format!("{path} {name}"), format!("has {lines} lines, and {FUNCTION_LINES} are allowed"))
        }));
    }
    found
}

/// Functions and procedures from CREATE to the line that closes the body, with their lines. A body in dollar quotes ends with
/// them, any other with its first semicolon.
fn sql_functions(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize)> = None;
    let mut quoted = false;
    for (number, line) in text.lines().enumerate() {
        let created = ["FUNCTION ", "PROCEDURE "].iter().find_map(|kind| line.split_once(kind));
        if let Some((before, rest)) = created
            && before.starts_with("CREATE ")
        {
            open = Some((rest.split('(').next().unwrap_or(rest).trim().to_owned(), number));
            quoted = false;
        }
        quoted |= line.contains(" AS $");
        // `$$;` and `$body$;` close it
        if line.trim_end().ends_with(if quoted { "$;" } else { ";" })
            && let Some((name, start)) = open.take()
        {
            found.push((name, number - start + 1));
        }
    }
    found
}

/// Entries of the list of tables that no long function needs.
pub fn unneeded_tables(tree: &Tree) -> Vec<Finding> {
    let is_long = |key: &str| {
        let (path, name) = key.split_once(' ').unwrap_or((key, ""));
        let tokens = if tree.has(path) { tokens(&tree.read(path)) } else { Vec::new() };
        functions(&tokens).iter().any(|function| function.name == name && function.lines > FUNCTION_LINES)
    };
    let unneeded = TABLES.iter().filter(|table| !is_long(table.key));
    unneeded.map(|table| Finding::new(table.key, "is listed as a table in allowed.rs, and is not long")).collect()
}

pub fn impls_elsewhere(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, folder, home) in LOOPS {
        for (path, tokens) in own_code(tree, folder).iter().filter(|(path, _)| path != home) {
            for (_, line) in impls(tokens).iter().filter(|(of, _)| of == name) {
                found.push(Finding::new(path.as_str(), format!("implements {name} in line {line}; only {home} may")));
            }
        }
    }
    found
}

/// The number of fields of each loop's struct.
pub fn loop_fields(tree: &Tree) -> Vec<(&'static str, usize)> {
    let count = |name: &str, folder: &str| {
        let all = own_code(tree, folder);
        let fields = all.iter().flat_map(|(_, tokens)| structs(tokens)).find(|(known, ..)| known == name);
        fields.map_or(0, |(_, _, fields)| fields.len())
    };
    LOOPS.iter().map(|(name, folder, _)| (*name, count(name, folder))).collect()
}

pub fn large_loops(tree: &Tree) -> Vec<Finding> {
    let large = loop_fields(tree).into_iter().filter(|(_, fields)| *fields > LOOP_FIELDS || *fields == 0);
    large
        .map(|(name, fields)| {
            let says = format!("has {fields} fields, and 1 to {LOOP_FIELDS} are allowed");
            Finding::new(format!("struct {name}"), says)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::sql_functions;

    #[test]
    fn a_function_in_sql_ends_where_its_body_is_closed() {
        let text = "CREATE FUNCTION a.b(c int) RETURNS int AS $$\nBEGIN\n  x;\nEND\n$$;\n\
                    CREATE OR REPLACE PROCEDURE d() AS $x$BEGIN END$x$;\nCREATE FUNCTION e() RETURNS int\n  RETURN 1;\nx;";
        assert_eq!(sql_functions(text), [("a.b".to_owned(), 5), ("d".to_owned(), 1), ("e".to_owned(), 2)]);
    }
}
