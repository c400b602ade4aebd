//! Advisory lock keys: all of them come from here, and never change between versions.
//!
//! Two-int keys, the first = 0x6D690000 + kind. Users of advisory locks should keep away from that range.

const BASE: i32 = 0x6D69_0000;

/// One launcher per (server, name): second key hashtext(name), in the maintenance database.
pub const LEADER: i32 = BASE + 1;
/// One scheduler per queue: second key the table's OID, in its own database.
pub const QUEUE: i32 = BASE + 2;
/// Whoever makes or changes our objects in a database: second key 0, in its own database.
pub const INSTALL: i32 = BASE + 5;
