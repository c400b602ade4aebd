//! Module cycles, told so that one can be followed by hand.

use crate::finding::Finding;
use crate::modules::{Crate, cycles, folders, read, shortest};
use crate::tree::Tree;

/// Crates whose modules have no cycles: all that are part of the program.
fn checked(tree: &Tree) -> Vec<String> {
    tree.crates().into_iter().filter(|name| name != "tests").collect()
}

pub fn module_cycles(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in checked(tree) {
        let all = read(tree, &name);
        let cycles = cycles(&all.uses);
        if !cycles.is_empty() {
            let told: Vec<String> = cycles.iter().map(|cycle| told(&all, cycle)).collect();
            found.push(Finding::new(name.as_str(), format!("has module cycles: {}", told.join("; "))));
        }
    }
    found
}

/// "3 modules use each other: a, b, c (the shortest way round: a uses b in line 3, b uses a in line 5)"
fn told(all: &Crate, cycle: &[usize]) -> String {
    let names: Vec<String> = cycle.iter().map(|at| all.modules[*at].name()).collect();
    let ways = cycle.iter().map(|at| shortest(&all.uses, *at));
    let way = ways.min_by_key(Vec::len).unwrap_or_default();
    let step = |pair: &[usize]| {
        let line = all.uses[pair[0]].get(&pair[1]).copied().unwrap_or(0);
        format!("{}:{line} uses {}", all.modules[pair[0]].file, all.modules[pair[1]].name())
    };
    let way: Vec<String> = way.windows(2).map(step).collect();
    format!("{} modules use each other: {} (the shortest way round: {})", cycle.len(), names.join(", "), way.join(", "))
}

/// Per crate: how many modules, how many cycles with how many modules, and the same between its folders.
pub fn summary(tree: &Tree) -> Vec<String> {
    let line = |name: String| {
        let all = read(tree, &name);
        let cycles = cycles(&all.uses);
        let (folders, between) = folders(&all);
        let cyclic = crate::modules::cycles(&between);
        let listed: Vec<String> = cyclic
            .iter()
            .map(|cycle| cycle.iter().map(|at| folders[*at].as_str()).collect::<Vec<_>>().join(" "))
            .collect();
        format!(
            "{name}: {} modules, {} cycles with {} modules; {} folders and files at its top, {} cycles between them{}{}",
            all.modules.len(),
            cycles.len(),
            cycles.iter().map(Vec::len).sum::<usize>(),
            folders.len(),
            cyclic.len(),
            if cyclic.is_empty() { "" } else { ": " },
            listed.join("; "),
        )
    };
    checked(tree).into_iter().map(line).collect()
}
