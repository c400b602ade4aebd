//! Where each word of the region stands. Nothing but numbers, checked at compile time.

pub const MAGIC: u64 = u64::from_be_bytes(*b"pgmill\x00R");
/// Raised with every change of this file: an exec'd scheduler of another version compares it.
pub const LAYOUT_VERSION: u64 = 10;

pub const HEADER_MAGIC: usize = 0;
pub const HEADER_LAYOUT_VERSION: usize = 1;
pub const HEADER_LIMIT: usize = 2;
pub const HEADER_CONNECTIONS: usize = 3;
/// How many slots workers leave to schedulers that wait for one.
pub const HEADER_WANTED: usize = 4;
/// Until when, and by which session, this launcher leads, see `lease.rs`.
pub const HEADER_LEASE: usize = 5;
pub const HEADER_TERM: usize = 6;
/// On which server it leads, see `leader_server.rs`.
pub const HEADER_LEADER_SERVER: usize = 7;
pub const HEADER_LEADER_PROOF: usize = 8;
pub const HEADER_LEADER_PLACE: usize = 9;
pub const HEADER_LEADER_NAME: usize = 10;
/// Failed tasks, see `failure_count.rs`.
pub const HEADER_FAILURES: usize = HEADER_LEADER_NAME + TEXT_WORDS;
const HEADER_WORDS: usize = 128;

/// A limit of connects per server: its key, how many permits are open, then the permits.
pub const CONNECT_LIMITS: usize = 64;
pub const CONNECT_LIMIT_WORDS: usize = 8;
pub const CONNECT_LIMIT_KEY: usize = 0;
pub const CONNECT_LIMIT_WIDTH: usize = 1;
pub const CONNECT_LIMIT_PERMITS: usize = 2;
pub const CONNECT_PERMITS: usize = 4;

/// A slot: its word, then its status.
pub const SLOT_WORDS: usize = 128;
pub const SLOT_WORD: usize = 0;
pub const STATUS_GENERATION: usize = 1;
pub const STATUS_KIND: usize = 2;
pub const STATUS_STARTED_MS: usize = 3;
pub const STATUS_PARENT: usize = 4;
pub const STATUS_BACKEND: usize = 5;
pub const STATUS_TASK: usize = 6;
pub const STATUS_ATTEMPT: usize = 7;
pub const STATUS_BEAT: usize = 8;
pub const STATUS_PHASE: usize = 9;
pub const STATUS_REQUEST: usize = 10;
pub const STATUS_REQUEST_TASK: usize = 11;
pub const STATUS_REQUEST_ATTEMPT: usize = 12;
/// A queue's size, as its scheduler last saw it.
pub const STATUS_ROWS: usize = 13;
pub const STATUS_BYTES: usize = 14;
pub const STATUS_WANTS_SLOT: usize = 15;
/// The OID of the marker table in a scheduler's database.
pub const STATUS_MARKER: usize = 16;
/// The server that has closed a worker's connection without a word.
pub const STATUS_SEVERED: usize = 17;
/// In the same place, of a scheduler: the number that its session holds as a lock, see `db::server`; 0 without a session.
pub const STATUS_PROOF: usize = STATUS_SEVERED;
/// Two texts: what runs here (written by the parent), and why it waits (written by the process itself).
pub const STATUS_LABEL: usize = 18;
pub const STATUS_REASON: usize = 73;
/// One word of length and sequence, then the bytes.
pub const TEXT_WORDS: usize = 55;
pub const TEXT_BYTES: usize = (TEXT_WORDS - 1) * 8;

/// A cell is 4 KiB: its word, length, checksum, one spare, then the payload.
pub const CELL_WORDS: usize = 512;
pub const CELL_WORD: usize = 0;
pub const CELL_LENGTH: usize = 1;
pub const CELL_CHECKSUM: usize = 2;
pub const CELL_PAYLOAD: usize = 4;
pub const CELL_PAYLOAD_BYTES: usize = (CELL_WORDS - CELL_PAYLOAD) * 8;

/// What a worker leaves about a pooled connection, see `connection_receipt.rs`.
pub const RECEIPT_MARK: usize = 0;
pub const RECEIPT_STATUS: usize = 1;
pub const RECEIPT_UNREAD: usize = 2;
pub const RECEIPT_ASKED: usize = 3;
pub const RECEIPT_ANSWERED: usize = 4;
const RECEIPT_WORDS: usize = 8;

/// The result that a worker leaves to its parent, see `result_slot.rs`: 2 KiB.
pub const RESULT_MARK: usize = 0;
pub const RESULT_TASK: usize = 1;
pub const RESULT_ATTEMPT: usize = 2;
pub const RESULT_FLAGS: usize = 3;
pub const RESULT_OUTPUT_BYTES: usize = 4;
pub const RESULT_ERROR_BYTES: usize = 5;
pub const RESULT_TEXTS: usize = 8;
const RESULT_WORDS: usize = 256;
pub const RESULT_TEXT_BYTES: usize = (RESULT_WORDS - RESULT_TEXTS) * 8;

/// A live worker's batch, see `batch.rs`: its word, a copy of it when it stood still for too long, then id and attempt
/// of each task.
pub const BATCH_TASKS: usize = 16;
pub const BATCH_WORD: usize = 0;
pub const BATCH_SLOW: usize = 1;
pub const BATCH_LIST: usize = 2;
const BATCH_WORDS: usize = 40;
/// In the same place, of a scheduler: when its groups were last looked at from the beginning, and how far they have got, see
/// `rescan.rs`.
pub const RESCANS: usize = BATCH_LIST;
pub const RESCAN_PLACES: usize = 16;

const _: () = assert!(RESCANS + 2 * RESCAN_PLACES <= BATCH_WORDS);
const _: () = assert!(BATCH_LIST + 2 * BATCH_TASKS <= BATCH_WORDS);
const _: () = assert!(CELL_WORDS * 8 == 4096);
const _: () = assert!(RECEIPT_ANSWERED < RECEIPT_WORDS);
const _: () = assert!(SLOT_WORDS * 8 == 1024);
const _: () = assert!(STATUS_LABEL + TEXT_WORDS == STATUS_REASON && STATUS_REASON + TEXT_WORDS == SLOT_WORDS);
const _: () = assert!(HEADER_LEADER_NAME + TEXT_WORDS <= HEADER_WORDS);
const _: () = assert!(CONNECT_LIMIT_PERMITS + CONNECT_PERMITS <= CONNECT_LIMIT_WORDS);
const SLOTS_START: usize = HEADER_WORDS + CONNECT_LIMITS * CONNECT_LIMIT_WORDS;

/// Header, connect limits, slots, cells, connection receipts, results, batches, and a word for each connection of the
/// budget of connections.
pub const fn total_words(limit: u32, connections: u32) -> usize {
    connection_start(limit, connections)
}

pub const fn connect_limit_start(index: usize) -> usize {
    HEADER_WORDS + index * CONNECT_LIMIT_WORDS
}

pub const fn slot_start(index: u32) -> usize {
    SLOTS_START + index as usize * SLOT_WORDS
}

pub const fn cell_start(limit: u32, index: u32) -> usize {
    SLOTS_START + limit as usize * SLOT_WORDS + index as usize * CELL_WORDS
}

pub const fn connection_start(limit: u32, index: u32) -> usize {
    batch_start(limit, limit) + index as usize
}

pub const fn batch_start(limit: u32, index: u32) -> usize {
    result_start(limit, limit) + index as usize * BATCH_WORDS
}

pub const fn receipt_start(limit: u32, index: u32) -> usize {
    cell_start(limit, limit) + index as usize * RECEIPT_WORDS
}

pub const fn result_start(limit: u32, index: u32) -> usize {
    receipt_start(limit, limit) + index as usize * RESULT_WORDS
}
