//! Numbers about the design, for a report: how many forms the same thing has.
//!
//! | number | what is counted |
//! |---|---|
//! | claim templates | whole statements `shared/sql/task/claim_*.sql` (once `take_*.sql`); fragments are not whole |
//! | begins | UPDATEs of a task table that can set the state WORK |
//! | ends | UPDATEs of a task table that write an output |
//! | worker entries | public functions of the worker's public modules that return an `ExitCode` |
//! | result types | structs and variants in worker, scheduler and shared with a field for an output |
//! | session setups | functions and constants of worker and shared with a text that sets `pg_task.id` or `pg_task.group` |
//!
//! They are computed by names and patterns, so each is printed with what was found.

use crate::lexer::{Kind, Token};
use crate::modules::read;
use crate::sizes::{long_files, long_sql_functions, loop_fields, own_code};
use crate::source::{functions, structs};
use crate::tree::Tree;

const STATEMENTS: &str = "shared/sql/task";

/// One line per number.
pub fn counts(tree: &Tree) -> Vec<String> {
    let line = |what: &str, found: Vec<String>| format!("{what}: {} ({})", found.len(), found.join(", "));
    let mut lines = vec![
        line("claim templates", claims(tree)),
        line("begins", updates(tree, sets_work)),
        line("ends", updates(tree, sets_output)),
        line("worker entries", worker_entries(tree)),
        line("result types", result_types(tree)),
        line("session setups", setups(tree)),
    ];
    lines.extend(loop_fields(tree).into_iter().map(|(name, fields)| format!("fields of {name}: {fields}")));
    lines.push(line("files over 450 lines", long_files(tree).into_iter().map(|long| long.key).collect()));
    lines.push(line(
        "functions in SQL over 80 lines",
        long_sql_functions(tree).into_iter().map(|long| long.key).collect(),
    ));
    lines.extend(crate::cycles::summary(tree));
    lines
}

/// Names and texts of the statements about tasks, without their comments.
fn statements(tree: &Tree) -> Vec<(String, String)> {
    let mut files = tree.below(STATEMENTS);
    files.retain(|path| path.ends_with(".sql"));
    let code = |path: &String| {
        let text = tree.read(path);
        let lines = text.lines().map(|line| line.split("--").next().unwrap_or(""));
        lines.collect::<Vec<_>>().join("\n")
    };
    let name =
        |path: &String| path.trim_start_matches(STATEMENTS).trim_matches('/').trim_end_matches(".sql").to_owned();
    files.iter().map(|path| (name(path), code(path))).collect()
}

fn claims(tree: &Tree) -> Vec<String> {
    let is_whole = |text: &str| ["WITH", "UPDATE", "SELECT"].iter().any(|verb| text.trim_start().starts_with(verb));
    let all = statements(tree).into_iter();
    let claims = all.filter(|(name, text)| (name.starts_with("claim_") || name.starts_with("take_")) && is_whole(text));
    claims.map(|(name, _)| name).collect()
}

/// Statements with an UPDATE of the task table whose list of assignments is so; a statement with two is named twice.
fn updates(tree: &Tree, is_so: fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in statements(tree) {
        for update in text.split("UPDATE {queue}").skip(1) {
            if is_so(assignments(update)) {
                found.push(name.clone());
            }
        }
    }
    found
}

/// From SET to the FROM, WHERE or RETURNING behind it.
fn assignments(update: &str) -> &str {
    let start = update.find("SET ").map_or(update, |at| &update[at..]);
    let mut depth = 0_i32;
    for (at, c) in start.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        let ends = ["FROM ", "WHERE ", "RETURNING "].iter().any(|word| start[at..].starts_with(word));
        if depth < 0 || (depth == 0 && ends) {
            return &start[..at];
        }
    }
    start
}

fn sets_work(assignments: &str) -> bool {
    let state = assignments.split("state =").nth(1).map(|rest| rest.split(',').next().unwrap_or(rest));
    state.is_some_and(|state| state.contains("'WORK'"))
}

fn sets_output(assignments: &str) -> bool {
    let mut values =
        assignments.split([',', '\n']).filter_map(|one| one.trim().trim_start_matches("SET ").strip_prefix("output ="));
    // a value that is kept or taken away is no result
    values.any(|value| value.trim() != "NULL" && !value.contains("t.output"))
}

fn worker_entries(tree: &Tree) -> Vec<String> {
    let all = read(tree, "worker");
    let is_public = |path: &[String]| {
        // each step is declared `pub mod`
        (0..path.len()).all(|length| {
            let parent = all.modules.iter().find(|module| module.path == path[..length]);
            parent.is_some_and(|parent| {
                parent
                    .tokens
                    .windows(3)
                    .any(|three| three[0].is("pub") && three[1].is("mod") && three[2].is(&path[length]))
            })
        })
    };
    let mut found = Vec::new();
    for module in all.modules.iter().filter(|module| is_public(&module.path)) {
        for function in functions(&module.tokens) {
            let public = function.head.start >= 3 && module.tokens[function.head.start - 3].is("pub");
            let head = &module.tokens[function.head.clone()];
            let returns = head.iter().position(|token| token.is("->")).map_or(&head[..0], |at| &head[at..]);
            if public && returns.len() == 2 && returns[1].is("ExitCode") {
                found.push(format!("{}::{}", module.name(), function.name));
            }
        }
    }
    found
}

fn result_types(tree: &Tree) -> Vec<String> {
    const FIELDS: [&str; 3] = ["output", "outputs", "texts"];
    let mut found = Vec::new();
    for folder in ["worker", "scheduler", "shared"] {
        // `texts` of the wire are those of statements
        for (path, tokens) in own_code(tree, folder).into_iter().filter(|(path, _)| !path.contains("/wire/")) {
            let all = structs(&tokens).into_iter();
            let results = all.filter(|(.., fields)| fields.iter().any(|field| FIELDS.contains(&field.as_str())));
            found.extend(results.map(|(name, ..)| format!("{path} {name}")));
        }
    }
    found
}

fn setups(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["worker", "shared"] {
        for (path, tokens) in own_code(tree, folder) {
            let all = functions(&tokens);
            let mut names: Vec<String> = Vec::new();
            for at in (0..tokens.len()).filter(|at| is_setup(&tokens[*at])) {
                let function = all.iter().rev().find(|function| function.body.contains(&at));
                let name = function.map_or_else(|| constant(&tokens, at), |function| function.name.clone());
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            found.extend(names.into_iter().map(|name| format!("{path} {name}")));
        }
    }
    for (name, text) in statements(tree) {
        if text.contains("set_config('pg_task.") {
            found.push(name);
        }
    }
    found
}

fn is_setup(token: &Token) -> bool {
    let names = |name: &str| {
        // `pg_task.idle` is another setting
        token.text.split(name).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let sets = names("pg_task.id") || names("pg_task.group") || token.text.contains("pg_task.{");
    token.kind == Kind::Text && sets && !token.text.contains("current_setting")
}

/// The constant whose value stands there.
fn constant(tokens: &[Token], at: usize) -> String {
    let before = tokens[..at].iter().rposition(|token| token.is("const") || token.is("static"));
    before.and_then(|at| tokens.get(at + 1)).map_or_else(String::new, |name| name.text.clone())
}

#[cfg(test)]
mod tests {
    use super::{assignments, sets_output, sets_work};

    #[test]
    fn an_update_begins_or_ends_by_what_it_assigns() {
        let claim = " t SET state = CASE WHEN l.b THEN 'WORK' ELSE t.state END, pid = (SELECT 1 FROM a)\n FROM l WHERE state = 'PLAN'";
        assert!(sets_work(assignments(claim)) && !sets_output(assignments(claim)));
        let end = " t SET state = $3, stop = now(),\n  output = $4 WHERE t.state = 'WORK'";
        assert!(sets_output(assignments(end)) && !sets_work(assignments(end)));
        assert!(!sets_output(assignments(" t SET state = 'PLAN', output = NULL, error = NULL WHERE t.id = 1")));
    }
}
