//! The modules of a crate and who uses whom.
//!
//! A module is a file: `attempt/record.rs` is `attempt::record`, `attempt/mod.rs` and `attempt.rs` are `attempt`, `lib.rs` or
//! `main.rs` is the root. Inline modules belong to their file. Modules that only tests are built with, and `main.rs` beside a
//! `lib.rs`, are not part of the graph.
//!
//! Module A uses module B if the code of A outside of tests contains a path that leads to B or into it: in a `use`, in a
//! `pub use`, or in an expression, a type or a macro; beginning with `crate`, `self` or `super`, with the name of a child, or with a name
//! that a `use` of this file has given to a module. A path leads to the last module in it: `crate::attempt::record::Ended` is a use of
//! `attempt::record` and not of `attempt`. `crate::Name` is a use of the root, but a macro's is a use of the module that defines
//! it. A declaration `mod child;` and a visibility such as `pub(in crate::attempt)` are no uses.
//!
//! Modules that reach each other by uses are a cycle, parents and children like any others.

use crate::lexer::{Kind, Token, tokens};
use crate::source::{closing, without_tests};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// One file of a crate.
#[derive(Clone, Debug)]
pub struct Module {
    /// From the crate's root, which is the empty path.
    pub path: Vec<String>,
    /// From the root of the checkout.
    pub file: String,
    pub tokens: Vec<Token>,
    children: Vec<String>,
}

impl Module {
    pub fn name(&self) -> String {
        if self.path.is_empty() { "the root".to_owned() } else { self.path.join("::") }
    }

    /// A file that is a folder's face: `mod.rs`, `lib.rs`, `main.rs`.
    pub fn is_face(&self) -> bool {
        ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| self.file.ends_with(&format!("/{name}")))
    }
}

/// The modules of a crate, the root first.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    pub modules: Vec<Module>,
    /// Of each module (by place in `modules`): those that it uses, with the line of the first use.
    pub uses: Vec<BTreeMap<usize, usize>>,
}

/// Reads a crate by its declarations, from its root down.
pub fn read(tree: &Tree, folder: &str) -> Crate {
    let roots = ["lib.rs", "main.rs"].map(|name| format!("{folder}/src/{name}"));
    let Some(root) = roots.into_iter().find(|root| tree.has(root)) else { return Crate::default() };
    let mut modules = Vec::new();
    let mut open = vec![(Vec::new(), root)];
    while let Some((path, file)) = open.pop() {
        let tokens = without_tests(&tokens(&tree.read(&file)));
        let children = declared(&tokens);
        for child in children.iter().rev() {
            let path: Vec<String> = path.iter().chain([child]).cloned().collect();
            let place = format!("{folder}/src/{}", path.join("/"));
            let files = [format!("{place}.rs"), format!("{place}/mod.rs")];
            if let Some(file) = files.into_iter().find(|file| tree.has(file)) {
                open.push((path, file));
            }
        }
        modules.push(Module { path, file, tokens, children });
    }
    of(modules)
}

fn of(modules: Vec<Module>) -> Crate {
    let places: BTreeMap<Vec<String>, usize> =
        modules.iter().enumerate().map(|(place, module)| (module.path.clone(), place)).collect();
    let mut macros = BTreeMap::new();
    for (place, module) in modules.iter().enumerate() {
        for window in module.tokens.windows(3) {
            if window[0].is("macro_rules") && window[1].is("!") {
                macros.insert(window[2].text.clone(), place);
            }
        }
    }
    let uses = modules
        .iter()
        .enumerate()
        .map(|(own, module)| {
            let mut found = BTreeMap::new();
            for (path, line) in paths(module) {
                let used = match &path[..] {
                    [name] if !places.contains_key(&path) && macros.contains_key(name) => macros[name],
                    _ => deepest(&places, &path),
                };
                if used != own {
                    found.entry(used).or_insert(line);
                }
            }
            found
        })
        .collect();
    Crate { modules, uses }
}

/// The longest beginning of the path that is a module.
fn deepest(places: &BTreeMap<Vec<String>, usize>, path: &[String]) -> usize {
    (0..=path.len()).rev().find_map(|length| places.get(&path[..length])).copied().unwrap_or(0)
}

/// `mod name;`
fn declared(tokens: &[Token]) -> Vec<String> {
    let declarations = tokens.windows(3).filter(|three| three[0].is("mod") && three[1].is_word() && three[2].is(";"));
    declarations.map(|three| three[1].text.clone()).collect()
}

/// All paths of a module's code that begin in this crate, from the root, with their lines.
fn paths(module: &Module) -> Vec<(Vec<String>, usize)> {
    let tokens = &module.tokens;
    let mut found: Vec<(Vec<String>, usize)> = Vec::new();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // Where inline modules end: `super` in one of them is still this file.
    let mut inline: Vec<usize> = Vec::new();
    // First what `use` declares, since a name may be used above its declaration.
    for declarations in [true, false] {
        let mut at = 0;
        while at < tokens.len() {
            inline.retain(|end| *end > at);
            if tokens[at].is("mod") && tokens.get(at + 2).is_some_and(|token| token.is("{")) {
                inline.push(closing(tokens, at + 2));
            }
            let is_use = tokens[at].is("use") && !tokens.get(at + 1).is_some_and(|token| token.is("<"));
            if is_use {
                let end = at + tokens[at..].iter().position(|token| token.is(";")).unwrap_or(0);
                if declarations {
                    for (path, name) in use_tree(&tokens[at + 1..end]) {
                        if let Some(path) = from_root(module, inline.len(), &names, &path) {
                            if let Some(name) = name {
                                names.insert(name, path.clone());
                            }
                            found.push((path, tokens[at].line));
                        }
                    }
                }
                at = end + 1;
                continue;
            }
            let (path, next) = path_at(tokens, at);
            if !declarations && !path.is_empty() && !is_visibility(tokens, at) {
                let path = from_root(module, inline.len(), &names, &path);
                found.extend(path.map(|path| (path, tokens[at].line)));
            }
            at = next;
        }
    }
    found
}

/// The path that begins here, of two words at least, and where the next one may begin.
fn path_at(tokens: &[Token], at: usize) -> (Vec<String>, usize) {
    let follows = at > 0 && (tokens[at - 1].is(".") || tokens[at - 1].is("::"));
    if tokens[at].kind != Kind::Word || follows {
        return (Vec::new(), at + 1);
    }
    let mut path = vec![tokens[at].text.clone()];
    let mut next = at + 1;
    while next + 1 < tokens.len() && tokens[next].is("::") && tokens[next + 1].is_word() {
        path.push(tokens[next + 1].text.clone());
        next += 2;
    }
    if path.len() < 2 { (Vec::new(), next) } else { (path, next) }
}

/// `pub(in crate::attempt)`
fn is_visibility(tokens: &[Token], at: usize) -> bool {
    at >= 3 && tokens[at - 1].is("in") && tokens[at - 2].is("(") && tokens[at - 3].is("pub")
}

/// All paths of a `use`, with the name that each gives to what it leads to.
fn use_tree(tokens: &[Token]) -> Vec<(Vec<String>, Option<String>)> {
    let mut path = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.is("{") {
            let inside = &tokens[at + 1..closing(tokens, at)];
            let branches = branches(inside).into_iter().flat_map(use_tree);
            return branches
                .map(|(branch, name)| {
                    let to_itself = branch.first().is_some_and(|first| first == "self");
                    let name = if to_itself { path.last().cloned() } else { name };
                    (path.iter().cloned().chain(branch.into_iter().skip(usize::from(to_itself))).collect(), name)
                })
                .collect();
        }
        if token.is("as") {
            return vec![(path, tokens.get(at + 1).map(|token| token.text.clone()))];
        }
        if token.is("*") {
            return vec![(path, None)];
        }
        if token.is_word() {
            path.push(token.text.clone());
        }
        at += 1;
    }
    let name = path.last().cloned();
    if path.is_empty() { Vec::new() } else { vec![(path, name)] }
}

/// What stands between the commas of this level.
fn branches(tokens: &[Token]) -> Vec<&[Token]> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < tokens.len() {
        if tokens[at].is("{") {
            at = closing(tokens, at);
        } else if tokens[at].is(",") {
            found.push(&tokens[start..at]);
            start = at + 1;
        }
        at += 1;
    }
    found.push(&tokens[start..]);
    found
}

/// The path from the crate's root; None if it leads elsewhere.
fn from_root(
    module: &Module,
    inline: usize,
    names: &BTreeMap<String, Vec<String>>,
    path: &[String],
) -> Option<Vec<String>> {
    let first = path.first()?;
    let (start, rest) = match first.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.path.clone(), &path[1..]),
        "super" => {
            let supers = path.iter().take_while(|word| *word == "super").count();
            let up = supers.saturating_sub(inline);
            let length = module.path.len().checked_sub(up)?;
            (module.path[..length].to_vec(), &path[supers..])
        }
        _ if module.children.contains(first) => (module.path.clone(), path),
        _ => (names.get(first)?.clone(), &path[1..]),
    };
    Some(start.into_iter().chain(rest.iter().cloned()).collect())
}

/// Modules that reach each other, largest cycle first, each in the order of the crate.
pub fn cycles(uses: &[BTreeMap<usize, usize>]) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..uses.len()).map(|from| reached(uses, from)).collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (from, reached) in reach.iter().enumerate() {
        if reached.contains(&from) && !found.iter().any(|cycle| cycle.contains(&from)) {
            found.push(reached.iter().copied().filter(|to| reach[*to].contains(&from)).collect());
        }
    }
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    found
}

fn reached(uses: &[BTreeMap<usize, usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        open.extend(uses[at].keys().filter(|to| found.insert(**to)));
    }
    found
}

/// A shortest way from a module back to itself, which is in a cycle.
pub fn shortest(uses: &[BTreeMap<usize, usize>], from: usize) -> Vec<usize> {
    let mut came: BTreeMap<usize, usize> = BTreeMap::new();
    let mut level = vec![from];
    while !level.is_empty() && !came.contains_key(&from) {
        let mut next = Vec::new();
        for at in level {
            for to in uses[at].keys().filter(|to| !came.contains_key(to)).copied().collect::<Vec<_>>() {
                came.insert(to, at);
                next.push(to);
            }
        }
        level = next;
    }
    let mut way = vec![from];
    let mut at = came.get(&from).copied();
    while let Some(place) = at.filter(|place| *place != from) {
        way.push(place);
        at = came.get(&place).copied();
    }
    way.push(from);
    way.reverse();
    way
}

/// The same graph by the first folder (or file) of each path, without the root.
pub fn folders(found: &Crate) -> (Vec<String>, Vec<BTreeMap<usize, usize>>) {
    let top = |place: usize| found.modules[place].path.first();
    let names: Vec<String> =
        (0..found.modules.len()).filter_map(top).cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let mut uses = vec![BTreeMap::new(); names.len()];
    let place = |name: &String| names.binary_search(name).ok();
    for (from, used) in found.uses.iter().enumerate() {
        for to in used.keys() {
            let ends = (top(from).and_then(place), top(*to).and_then(place));
            if let (Some(from), Some(to)) = ends
                && from != to
            {
                uses[from].insert(to, 0);
            }
        }
    }
    (names, uses)
}

#[cfg(test)]
mod tests {
    use super::{Crate, Module, cycles, declared, of, shortest, use_tree};
    use crate::lexer::tokens;
    use crate::source::without_tests;

    fn built(files: &[(&str, &str)]) -> Crate {
        let modules = files.iter().map(|(path, source)| {
            let tokens = without_tests(&tokens(source));
            let path = path.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
            Module { path, file: String::new(), children: declared(&tokens), tokens }
        });
        of(modules.collect())
    }

    /// "a b" for each module of a cycle in a crate of these files.
    fn cyclic(files: &[(&str, &str)]) -> Vec<String> {
        let found = built(files);
        let names =
            |cycle: Vec<usize>| cycle.into_iter().map(|at| found.modules[at].name()).collect::<Vec<_>>().join(" ");
        cycles(&found.uses).into_iter().map(names).collect()
    }

    #[test]
    fn a_use_has_a_path_for_each_of_its_branches() {
        let found = use_tree(&tokens("crate::{a::{self, B, c::*}, d::E as F}"));
        let found: Vec<String> =
            found.into_iter().map(|(path, name)| format!("{} {}", path.join("::"), name.unwrap_or_default())).collect();
        assert_eq!(found, ["crate::a a", "crate::a::B B", "crate::a::c ", "crate::d::E F"]);
    }

    #[test]
    fn two_modules_that_use_each_other_are_a_cycle() {
        assert_eq!(
            cyclic(&[("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "fn f() { super::a::g() }")]),
            ["a b"]
        );
        assert!(cyclic(&[("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "use std::a::B;")]).is_empty());
    }

    #[test]
    fn to_declare_a_child_is_no_use_and_to_call_it_is_one() {
        let child = ("a::c", "use super::A;");
        assert!(cyclic(&[("", "mod a;"), ("a", "mod c; struct A;"), child]).is_empty());
        assert_eq!(cyclic(&[("", "mod a;"), ("a", "mod c; struct A; fn f() { c::g() }"), child]), ["a a::c"]);
        assert_eq!(cyclic(&[("", "mod a;"), ("a", "mod c; pub use c::C; struct A;"), child]), ["a a::c"]);
    }

    #[test]
    fn a_path_through_a_parent_is_no_use_of_the_parent() {
        let files =
            [("", "mod a;"), ("a", "mod b; mod c; fn f() { b::g() }"), ("a::b", "use super::c::C;"), ("a::c", "")];
        assert!(cyclic(&files).is_empty());
    }

    #[test]
    fn a_module_that_was_imported_by_name_is_used_by_that_name() {
        let files = [
            ("", "mod a; mod b;"),
            ("a", "mod c;"),
            ("a::c", "use crate::b::B;"),
            ("b", "use crate::a; fn f() { a::c::g() }"),
        ];
        assert_eq!(cyclic(&files), ["a::c b"]);
    }

    #[test]
    fn tests_visibilities_and_inline_modules_are_no_uses() {
        let files = [
            ("", "mod a; mod b;"),
            ("a", "use crate::b::B; pub(in crate::a) fn f() {}"),
            ("b", "#[cfg(test)] mod tests { use crate::a::A; } mod i { use super::B; }"),
        ];
        assert!(cyclic(&files).is_empty());
    }

    #[test]
    fn an_exported_macro_is_used_where_it_is_defined() {
        let files = [
            ("", "mod a; mod log; fn f() { a::g() }"),
            ("a", "fn g() { crate::warning!(\"x\") }"),
            ("log", "#[macro_export] macro_rules! warning { () => {} }"),
        ];
        assert!(cyclic(&files).is_empty());
    }

    #[test]
    fn the_shortest_way_round_is_told() {
        let found = built(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::{a::A, c::C};"),
            ("c", "use crate::a::A;"),
        ]);
        let way: Vec<String> = shortest(&found.uses, 1).into_iter().map(|at| found.modules[at].name()).collect();
        assert_eq!(way, ["a", "b", "a"]);
    }
}
