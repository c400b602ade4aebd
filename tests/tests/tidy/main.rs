//! Tidiness: what can be computed about the sources and documents themselves. No server is needed.
//!
//! Each test here is one check. It fails with one line per finding. `allowed.rs` lists findings that do not count, with the
//! reason; an entry that nothing needs fails too.
//!
//! | check | how it is computed |
//! |---|---|
//! | module cycles | `modules` reads each crate as a graph of files and says what a use is; `cycles` tells what it finds |
//! | lengths | `sizes`: files of more than 450 lines; functions of more than 80, in Rust unless they are tables; the two loops |
//! | places | `places`: the repository's top, `shared/src`, unsafe code, `println!` |
//! | documents | `module_lists` in READMEs, `links` between documents, `invariants` in ARCHITECTURE.md |
//! | names of tests | `selections`: in scripts and in the lists of `scripts/test` |
//!
//! `cargo test --test tidy counts -- --nocapture` prints numbers about the design (`counts`); with `PGMILL_TREE=FOLDER` those of
//! another checkout, an older one for instance.
#![forbid(unsafe_code)]

mod allowed;
mod counts;
mod cycles;
mod finding;
mod invariants;
mod lexer;
mod links;
mod module_lists;
mod modules;
mod places;
mod selections;
mod sizes;
mod source;
mod tree;

use finding::judge;
use tree::Tree;

#[test]
fn no_modules_of_a_crate_use_each_other_in_a_circle() {
    judge("module cycles", &cycles::module_cycles(&Tree::own()));
}

#[test]
fn no_file_has_more_than_450_lines() {
    judge("long files", &sizes::long_files(&Tree::own()));
}

#[test]
fn no_function_has_more_than_80_lines_unless_it_is_a_table() {
    judge("long functions", &sizes::long_functions(&Tree::own()));
    judge("tables", &sizes::unneeded_tables(&Tree::own()));
}

#[test]
fn no_function_in_sql_has_more_than_80_lines() {
    judge("long functions in SQL", &sizes::long_sql_functions(&Tree::own()));
}

#[test]
fn the_event_loops_are_implemented_in_one_file_each() {
    judge("impls of the loops", &sizes::impls_elsewhere(&Tree::own()));
}

#[test]
fn the_event_loops_have_at_most_15_fields() {
    judge("fields of the loops", &sizes::large_loops(&Tree::own()));
}

#[test]
fn the_top_of_the_repository_has_its_folders_and_nothing_else() {
    judge("entries at the top", &places::top_entries(&Tree::own()));
}

#[test]
fn the_top_of_shared_has_at_most_ten_entries() {
    judge("entries of shared", &places::shared_entries(&Tree::own()));
}

#[test]
fn unsafe_code_is_in_one_folder() {
    judge("unsafe code", &places::unsafe_code(&Tree::own()));
}

#[test]
fn only_commands_print() {
    judge("prints", &places::prints(&Tree::own()));
}

#[test]
fn readmes_list_the_modules_of_their_crates() {
    judge("module lists", &module_lists::module_lists(&Tree::own()));
}

#[test]
fn links_between_documents_lead_somewhere() {
    judge("links", &links::broken_links(&Tree::own()));
}

#[test]
fn files_that_documents_name_exist() {
    judge("named files", &links::missing_files(&Tree::own()));
}

#[test]
fn invariants_name_tests_that_exist() {
    judge("tests of invariants", &invariants::missing_tests(&Tree::own()));
    judge("untested invariants", &invariants::untested(&Tree::own()));
}

#[test]
fn tests_that_scripts_select_exist() {
    judge("selected tests", &selections::selections(&Tree::own()));
}

/// Prints the numbers; it fails only if they cannot be computed.
#[test]
fn counts() {
    let tree = std::env::var_os("PGMILL_TREE").map_or_else(Tree::own, |root| Tree::at(root.as_ref()));
    counts::counts(&tree).iter().for_each(|line| println!("{line}"));
}
