//! PURE. What it means, by its SQLSTATE, that the server has refused a statement of ours.
//!
//! A task has run, and its end cannot be recorded: whether that will pass, whether another form of the record may be accepted,
//! or whether there is no row any more decides what becomes of the result. A statement that failed because the disk is full
//! says nothing about the task.

/// The kinds of refusal that call for different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The machine: no space, no memory, no connection, shutting down, read-only. It passes; the statement is sent again.
    Machine,
    /// The link broke: whether the statement took effect is not known.
    Unknown,
    /// Another transaction was in the way. It may pass at once.
    Transient,
    /// A prepared statement, or what we know of the table, is out of date.
    Stale,
    /// These values, or a rule of the table's owner.
    Data,
    /// A right is missing, or an object is not as it was.
    Rights,
    /// There is no table any more, or no database.
    Gone,
}

impl Refusal {
    /// `cached_plan`: the message speaks of a cached plan, which has the code of many other things.
    pub fn of(code: &str, cached_plan: bool) -> Refusal {
        let class = code.get(..2).unwrap_or_default();
        match (code, class) {
            ("57P01" | "57P02" | "57P03" | "57P05" | "25006" | "XX001" | "XX002", _) | (_, "53" | "58" | "28") => {
                Refusal::Machine
            }
            (_, "08") => Refusal::Unknown,
            ("55P03" | "55006" | "57014" | "25P03" | "25P04", _) | (_, "40") => Refusal::Transient,
            ("26000" | "42P05" | "42703" | "42804", _) => Refusal::Stale,
            ("0A000", _) if cached_plan => Refusal::Stale,
            ("42P01" | "57P04", _) | (_, "3D") => Refusal::Gone,
            ("428C9" | "0A000", _) | (_, "22" | "23" | "54" | "P0" | "38" | "39") => Refusal::Data,
            _ => Refusal::Rights,
        }
    }

    /// Nothing is wrong with the task or its row.
    pub fn passes(self) -> bool {
        matches!(self, Refusal::Machine | Refusal::Unknown | Refusal::Transient)
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn every_code_of_the_table_has_its_kind() {
        let table: [(Refusal, &[&str]); 7] = [
            (
                Refusal::Machine,
                &[
                    "53100", "53200", "53300", "53400", "58030", "58P01", "57P01", "57P02", "57P03", "57P05", "25006",
                    "XX001", "XX002", "28P01", "28000",
                ],
            ),
            (Refusal::Unknown, &["08006", "08P01"]),
            (Refusal::Transient, &["40001", "40P01", "55P03", "55006", "57014", "25P03", "25P04"]),
            (Refusal::Stale, &["26000", "42P05", "42703", "42804"]),
            (
                Refusal::Data,
                &[
                    "22021", "22P05", "22001", "23505", "23514", "54000", "54001", "428C9", "P0001", "P0004", "38001",
                    "39000", "0A000",
                ],
            ),
            (Refusal::Rights, &["42501", "42P17", "42883", "42601", "XX000", "", "é", "F0000"]),
            (Refusal::Gone, &["42P01", "57P04", "3D000"]),
        ];
        for (kind, codes) in table {
            for code in codes {
                assert_eq!(Refusal::of(code, false), kind, "{code}");
            }
        }
        assert_eq!(Refusal::of("0A000", true), Refusal::Stale);
    }
}
