//! Advisory lock keys: all of them come from here, and never change between versions.
//!
//! Two-int keys, the first = 0x6D690000 + kind. Users of advisory locks should keep away from that range.

const BASE: i32 = 0x6D69_0000;

/// One launcher per (server, name): second key hashtext(name), in the maintenance database.
pub const LEADER: i32 = BASE + 1;
/// One scheduler per queue: second key the table's OID, in its own database.
pub const QUEUE: i32 = BASE + 2;
/// The bell: held by the scheduler while it sleeps, second key the table's OID, in its own database.
pub const BELL: i32 = BASE + 3;
/// Held by the session that runs a task, for `why` and monitoring: second key hashtext(table OID || ':' || id). It is
/// no proof, because the task's own SQL can drop it.
pub const TASK: i32 = BASE + 4;
/// Whoever makes or changes our objects in a database: second key 0, in its own database.
pub const INSTALL: i32 = BASE + 5;
/// Held by a scheduler that finds no free slot, or may use none by its run and limit, so that `why` can say so: second key the table's OID.
pub const NO_SLOT: i32 = BASE + 7;
/// Held by a scheduler whose workers get no connection, so that `why` can say so: second key the table's OID.
pub const NO_CONNECTION: i32 = BASE + 8;
/// Held by a scheduler that cannot reach the remote of a task, so that `why` can say so: second key as of `TASK`.
pub const UNKNOWN: i32 = BASE + 9;
