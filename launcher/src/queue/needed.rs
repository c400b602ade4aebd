//! What a queue needs on the server before its scheduler can log in. `server::provision` looks for it and creates it.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    pub role: String,
    pub database: String,
}

/// What came of it: None when all is there, else why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provided {
    pub needed: Needed,
    pub missing: Option<String>,
}
