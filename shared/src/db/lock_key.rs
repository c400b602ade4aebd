//! Advisory lock keys: all of them come from here, and never change between versions.
//!
//! Two-int keys, the first = 0x6D690000 + kind. Users of advisory locks should keep away from that range.

const BASE: i32 = 0x6D69_0000;

/// One launcher per (server, name): second key hashtext(name), in the maintenance database.
pub const LEADER: i32 = BASE + 1;
/// One scheduler per queue: second key the table's OID, in its own database.
pub const QUEUE: i32 = BASE + 2;
/// The wake-up lock: held by the scheduler while it sleeps, second key the table's OID, in its own database.
pub const WAKE_UP: i32 = BASE + 3;
/// Held by the session that runs a task, for `why` and monitoring: second key hashtext(table OID || ':' || id). It is
/// no proof, because the task's own SQL can drop it.
pub const TASK: i32 = BASE + 4;
/// Whoever makes or changes our objects in a database: second key 0, in its own database.
pub const INSTALL: i32 = BASE + 5;
/// The one scheduler of a database that keeps its timers, tokens and commands: second key 0, in its own database.
pub const GRAPH: i32 = BASE + 6;
/// Shared by everything that moves tokens of a flow, held alone by what pauses, clears or counts: second key hashtext(flow).
pub const FLOW: i32 = BASE + 10;
/// Held by a scheduler that finds no free slot, so that `why` returns it: second key the table's OID.
pub const NO_SLOT: i32 = BASE + 7;
/// The same while as many tasks run as `run` allows.
pub const RUN_REACHED: i32 = BASE + 13;
/// The same while `limit` is 0.
pub const LIMIT_ZERO: i32 = BASE + 14;
/// Held by a scheduler whose workers get no connection, so that `why` can say so: second key the table's OID.
pub const NO_CONNECTION: i32 = BASE + 8;
/// Held by a scheduler that cannot reach the remote of a task, so that `why` can say so: second key as of `TASK`.
pub const UNKNOWN: i32 = BASE + 9;

/// Shared by every session with which a launcher's schedulers hold queues: second key hashtext(the launcher's name).
pub const LAUNCHER: i32 = BASE + 11;
/// Shared by the same: second key the server process of the session by which that launcher led.
pub const TERM: i32 = BASE + 12;

/// A message of a user: second key the OID of the database that is meant, in the sender's own database, held by the
/// sender's transaction. `NUMBER_STEP` times a number of the sender's choice, 0 to 255, is added.
pub const MESSAGE_START: i32 = BASE + 0x10;
pub const MESSAGE_STOP: i32 = BASE + 0x11;
pub const MESSAGE_RESTART: i32 = BASE + 0x12;
/// The launcher's answer to a message: second key the sender's server process, in the maintenance database, with the
/// message's number.
pub const ANSWER_TRUE: i32 = BASE + 0x20;
pub const ANSWER_FALSE: i32 = BASE + 0x21;
pub const ANSWER_REFUSED: i32 = BASE + 0x22;
pub const NUMBER_STEP: i32 = 0x100;
/// What is left of a message's or an answer's first key without its number.
pub const KIND_MASK: i32 = !0xFF00;

/// Whether a first key is in the range of those above.
pub const fn is_ours(key: i32) -> bool {
    key >> 16 == BASE >> 16
}

/// The number that a message or an answer carries.
pub const fn number_of(key: i32) -> i32 {
    key >> 8 & 0xFF
}

/// A key with a number.
pub const fn numbered(kind: i32, number: i32) -> i32 {
    kind + NUMBER_STEP * number
}

/// A random number as the two keys of a lock, by which sessions see that they are on one server.
pub fn halves(proof: i64) -> (i32, i32) {
    ((proof >> 32) as i32, proof as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_changes_no_kind_and_no_range() {
        for kind in [MESSAGE_START, MESSAGE_STOP, MESSAGE_RESTART, ANSWER_TRUE, ANSWER_FALSE, ANSWER_REFUSED] {
            for number in [0, 1, 255] {
                let key = numbered(kind, number);
                assert_eq!((key & KIND_MASK, number_of(key)), (kind, number));
                assert_eq!(key >> 16, BASE >> 16);
            }
        }
    }
}
