//! The partial indexes that a task table needs, and which of those found are the same. PURE.
//!
//! An index is known by the columns that the server's catalog names for it. Texts of the server vary with the settings of a
//! role; an index that is not recognized would be built again at every start.

use crate::table::shape::Index;
use shared::db::identifier::quoted;

/// An index of the claim.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexPlace {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    predicate: &'static str,
    /// The columns of the predicate that are none of the key.
    pub beside: &'static [&'static str],
    /// What the server's spelling of the predicate contains, and what it does not.
    says: &'static [&'static str],
    not: &'static str,
}

pub static INDEXES: [IndexPlace; 6] = [
    IndexPlace {
        name: "group",
        columns: &["hash", "max DESC", "priority DESC", "id"],
        predicate: "state = 'PLAN' AND NOT held",
        beside: &["held", "state"],
        says: &["'PLAN'", "NOT held"],
        not: "'TAKE'",
    },
    IndexPlace {
        name: "order",
        columns: &["max DESC", "priority DESC", "id"],
        predicate: "state = 'PLAN' AND NOT held",
        beside: &["held", "state"],
        says: &["'PLAN'", "NOT held"],
        not: "'TAKE'",
    },
    IndexPlace {
        name: "running",
        columns: &["hash"],
        predicate: "state IN ('TAKE', 'WORK')",
        beside: &["state"],
        says: &["'TAKE'", "'WORK'"],
        not: "'PLAN'",
    },
    IndexPlace {
        name: "held",
        columns: &["plan"],
        predicate: "state = 'PLAN' AND held AND job IS NULL",
        beside: &["held", "job", "state"],
        says: &["'PLAN'", "held", "job IS NULL"],
        not: "NOT held",
    },
    IndexPlace {
        name: "job",
        columns: &["job", "id"],
        predicate: "job IS NOT NULL",
        beside: &[],
        says: &["job IS NOT NULL"],
        not: "'PLAN'",
    },
    IndexPlace {
        name: "run",
        columns: &["run"],
        predicate: "run IS NOT NULL",
        beside: &[],
        says: &["run IS NOT NULL"],
        not: "'PLAN'",
    },
];

impl IndexPlace {
    /// Is this the index? Its columns are compared as the catalog has them; of the predicate's text only the constants count.
    pub fn is(&self, index: &Index) -> bool {
        let mut wanted: Vec<&str> =
            self.columns.iter().map(|column| column.split(' ').next().unwrap_or(column)).collect();
        wanted.extend(self.beside);
        let same_columns =
            wanted.len() == index.uses.len() && wanted.iter().all(|name| index.uses.iter().any(|used| used == name));
        index.columns == self.columns
            && same_columns
            && self.says.iter().all(|word| index.predicate.contains(word))
            && !index.predicate.contains(self.not)
    }

    /// `(columns) WHERE predicate`
    pub fn definition(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| match column.split_once(' ') {
                Some((name, direction)) => format!("{} {direction}", quoted(name)),
                None => quoted(column),
            })
            .collect();
        format!("({}) WHERE {}", columns.join(", "), self.predicate)
    }
}
