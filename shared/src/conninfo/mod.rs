//! Where a server is and how to log in: libpq's conninfo dialect, resolved into a `Target`.
//!
//! `parse.rs` reads the two spellings (keywords and URIs) into pairs, `resolve` adds the PG* environment
//! and libpq's defaults and refuses by name what is not supported. Every process connects by a `Target`.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// One server, one login. Travels through cells, so it is plain data. `Debug` never shows the password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub place: Place,
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    pub options: Option<String>,
    pub connect_timeout_ms: u64,
}

/// How the socket is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The full path of the socket file, `/run/postgresql/.s.PGSQL.5432`.
    Unix { path: PathBuf },
    /// A host by name, by address, or by both (then the address is dialled, the name stays for messages and TLS).
    Tcp { host: String, address: Option<IpAddr>, port: u16 },
}
