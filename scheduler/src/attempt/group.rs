//! The group of a task, as the claim reads it. Tasks of one group and one remote count together against `max`.

use crate::limits::LONGEST_GROUP_NAME;

/// As the database has it, whatever its encoding.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    pub name: Vec<u8>,
    pub remote: Option<Vec<u8>>,
}

impl Group {
    /// What a login can state of it: ASCII, which is the same in every encoding.
    pub fn plain_name(&self) -> Option<String> {
        let name = std::str::from_utf8(&self.name).ok().filter(|name| name.is_ascii());
        name.filter(|name| self.remote.is_none() && name.len() <= LONGEST_GROUP_NAME).map(str::to_owned)
    }
}
