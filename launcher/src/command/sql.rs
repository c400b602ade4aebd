//! `launcher sql`: the statements that launcher, scheduler and worker send. Nothing is connected to.

use super::config_file::{print_mistakes, read_config};
use super::{output, print};
use crate::cli::{Cli, ConfigPlace};
use clap::CommandFactory;
use clap::error::ErrorKind;
use shared::config::nearest::nearest;
use shared::db::statement::{Queue, STATEMENTS, forms, head};
use shared::process::exit_code::launcher_status;

pub fn run(place: &ConfigPlace, name: Option<&str>) -> u8 {
    let queue = match queue(place) {
        Ok(queue) => queue,
        Err(status) => return status,
    };
    let Some(name) = name else {
        list();
        return launcher_status::ORDERLY;
    };
    match find(name) {
        Ok((path, text)) => {
            show(path, text, &queue);
            launcher_status::ORDERLY
        }
        Err(text) => output::print_usage(&Cli::command().error(ErrorKind::InvalidValue, text)),
    }
}

/// That of the first queue of the config.
fn queue(place: &ConfigPlace) -> Result<Queue, u8> {
    let Some(path) = &place.config else {
        return Ok(Queue { schema: "public".to_owned(), table: "task".to_owned() });
    };
    let config = read_config(place).map_err(|mistakes| print_mistakes(&path.display().to_string(), &mistakes))?;
    let names = config.queues.first().map_or(("public", "task"), |queue| (queue.schema.as_str(), queue.table.as_str()));
    Ok(Queue { schema: names.0.to_owned(), table: names.1.to_owned() })
}

fn list() {
    let longest = STATEMENTS.iter().map(|(path, _)| path.len()).max().unwrap_or_default();
    let mut sorted = STATEMENTS.to_vec();
    sorted.sort();
    for (path, text) in sorted {
        print(&format!("{path:longest$}  {} ({})", first_sentence(text), entry(text, "caller")));
    }
}

fn show(path: &str, text: &str, queue: &Queue) {
    for (number, form) in forms(path, text, queue).iter().enumerate() {
        if number > 0 {
            print("");
        }
        let about = if form.about.is_empty() { String::new() } else { format!(", {}", form.about) };
        print(&format!("-- {path}{about}"));
        let parameters = form.parameters(text).into_iter().enumerate();
        let parameters = parameters.map(|(place, (name, kind))| format!("${} {name} {kind}", place + 1));
        let parameters: Vec<String> = parameters.collect();
        if !parameters.is_empty() {
            print(&format!("-- {}", parameters.join(", ")));
        }
        print(&form.text);
    }
}

/// By its path, or by the name of its file if no other has that name. Err: what to tell.
fn find(name: &str) -> Result<(&'static str, &'static str), String> {
    let of_file = |path: &'static str| path.rsplit('/').next().unwrap_or(path);
    if let Some(found) = STATEMENTS.iter().find(|(path, _)| *path == name) {
        return Ok(*found);
    }
    let named: Vec<_> = STATEMENTS.iter().filter(|(path, _)| of_file(path) == name).collect();
    if let [found] = named[..] {
        return Ok(*found);
    }
    let paths =
        |found: &[&(&'static str, &'static str)]| found.iter().map(|(path, _)| *path).collect::<Vec<_>>().join(", ");
    if !named.is_empty() {
        return Err(format!("several statements have the name {name}: {}", paths(&named)));
    }
    let mut near: Vec<_> = STATEMENTS.iter().filter(|(path, _)| name.len() > 2 && path.contains(name)).collect();
    if near.is_empty() {
        let word = nearest(name, STATEMENTS.iter().flat_map(|(path, _)| [*path, of_file(path)]));
        near = STATEMENTS.iter().filter(|(path, _)| word.is_some_and(|word| path.ends_with(word))).collect();
    }
    let hint = if near.is_empty() {
        "launcher sql lists all statements".to_owned()
    } else {
        format!("did you mean {}?", paths(&near))
    };
    Err(format!("no statement has the name {name}; {hint}"))
}

/// Of what its head says that it is for.
fn first_sentence(text: &str) -> String {
    let prose = head(text)
        .lines()
        .map(|line| line.trim_start_matches("-- "))
        .take_while(|line| !line.starts_with("parameters:"));
    let prose = prose.collect::<Vec<_>>().join(" ");
    // two points in a row stand for something left out
    let ends = |(at, _): &(usize, &str)| {
        let before = prose.get(..*at).is_some_and(|before| !before.ends_with('.'));
        before && prose.get(at + 1..).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let end = prose.match_indices(['.', '?']).find(ends).map(|(at, _)| at + 1);
    prose.get(..end.unwrap_or(prose.len())).unwrap_or(&prose).to_owned()
}

/// What its head says under a name.
fn entry(text: &str, name: &str) -> String {
    let mut lines = head(text).lines().map(|line| line.trim_start_matches("--").trim_start_matches(' '));
    let mark = format!("{name}: ");
    let first = lines.find_map(|line| line.strip_prefix(mark.as_str())).unwrap_or_default();
    let rest = lines.take_while(|line| !line.contains(": "));
    [first].into_iter().chain(rest).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_found_by_its_path_or_by_its_name_alone() {
        assert_eq!(find("task/claim_walk").map(|(path, _)| path), Ok("task/claim_walk"));
        assert_eq!(find("claim_walk").map(|(path, _)| path), Ok("task/claim_walk"));
        let several = find("read_queue").expect_err("two");
        assert!(several.contains("task/read_queue, import/read_queue"), "{several}");
        let none = find("clam_walk").expect_err("none");
        assert_eq!(none, "no statement has the name clam_walk; did you mean task/claim_walk?");
        assert!(find("claim").expect_err("a part").contains("task/claim_walk, task/claim_heads"));
        assert!(find("x").expect_err("none").contains("launcher sql lists all statements"));
    }

    #[test]
    fn every_statement_says_in_a_sentence_what_it_is_for_and_who_sends_it() {
        for (path, text) in STATEMENTS {
            let sentence = first_sentence(text);
            assert!(sentence.ends_with(['.', '?']), "{path}: {sentence}");
            assert!(!entry(text, "caller").is_empty(), "{path}");
        }
    }
}
