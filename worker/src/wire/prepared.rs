//! The prepared statements of one session: which texts the server has parsed, and under which names.

#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    texts: Vec<(String, bool)>,
    /// What all their names begin with.
    prefix: String,
    /// Changes when the server has lost them: their names are not used again.
    epoch: u32,
}

impl PreparedStatements {
    pub(super) fn of(backend: i32) -> PreparedStatements {
        PreparedStatements { prefix: format!("mill_{backend}_"), ..PreparedStatements::default() }
    }

    pub(super) fn index(&mut self, sql: &str) -> usize {
        self.texts.iter().position(|(text, _)| text == sql).unwrap_or_else(|| {
            self.texts.push((sql.to_owned(), false));
            self.texts.len() - 1
        })
    }

    pub(super) fn name(&self, index: usize) -> String {
        format!("{}{}_{index}", self.prefix, self.epoch)
    }

    /// The server has parsed it.
    pub(super) fn is_parsed(&self, index: usize) -> bool {
        self.texts[index].1
    }

    pub(super) fn set_parsed(&mut self, index: usize) {
        self.texts[index].1 = true;
    }

    /// What all their names begin with, and those of no other statements.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn forget(&mut self) {
        self.texts.iter_mut().for_each(|(_, parsed)| *parsed = false);
        self.epoch += 1;
    }
}
