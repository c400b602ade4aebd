//! Every timeout and limit of this crate, each with its reason. A module that needs one imports it from here. What the layout of
//! the region limits is in `region/layout.rs`.

use std::time::Duration;

// The config.

/// PostgreSQL cuts longer names, and a cut name is another name. Names of `remotes` follow the same rule.
pub const NAME_BYTES_MAX: usize = 63;
/// A column default stands in the text of ALTER TABLE and in the cell of every scheduler.
pub const DEFAULT_BYTES_MAX: usize = 256;
/// 4,096 queues with long conninfos fit; an endless file ends here.
pub const CONFIG_BYTES_MAX: u64 = 16 << 20;
/// Reading is recursive, and must not overflow the stack.
pub const JSON_DEPTH_MAX: usize = 64;
/// Each value costs memory many times its length in the file.
pub const JSON_VALUES_MAX: usize = 500_000;
/// More mistakes than a person reads at once are counted, not listed.
pub const MISTAKES_MAX: usize = 100;
/// As many as there can be slots.
pub const QUEUES_MAX: usize = 4_096;
/// Longer words are no misspelling of any of ours, and the comparison takes the square of the length.
pub const MISTYPED_LETTERS_MAX: usize = 64;
/// A launcher that reads the list of databases less often than each hour looks broken.
pub const POLL_MS_MAX: u64 = 3_600_000;
/// The longest poll, and the longest wait for running tasks at shutdown: a day.
pub const WAIT_MS_MAX: u64 = 86_400_000;
/// Milliseconds in PostgreSQL's settings are 32-bit numbers: almost 25 days.
pub const SERVER_MS_MAX: u64 = i32::MAX as u64;
/// A hundred years fit into every timestamp that is computed from it.
pub const KEEP_MS_MAX: u64 = 100 * 366 * 86_400_000;
/// A field of a PostgreSQL row ends at 1 GB.
pub const OUTPUT_BYTES_MAX: u64 = 1 << 30;
/// Ten thousand years: more than anybody waits, and small enough for every server's interval input.
pub const INTERVAL_MONTHS_MAX: u64 = 120_000;
/// The same in days.
pub const INTERVAL_DAYS_MAX: u64 = 3_652_500;
/// Nine decimals are more than a microsecond needs.
pub const INTERVAL_DECIMALS_MAX: usize = 9;

// Logins.

/// More servers than anybody names; the list travels in a cell.
pub const PLACES_MAX: usize = 16;
/// sockaddr_un holds 108 bytes, the last one is a NUL.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// More than anybody writes by hand; an endless file ends here.
pub const PASSFILE_BYTES_MAX: u64 = 1 << 20;
/// Per address, unless the conninfo has connect_timeout: a server under load answers within seconds, and the next
/// address waits.
pub const CONNECT_TIMEOUT_MS: u64 = 10_000;
/// More than any honest conninfo of a task has.
pub const REMOTE_CONNINFO_BYTES_MAX: usize = 8192;
/// However long the conninfo of a task would wait for one address: its worker has a slot meanwhile.
pub const REMOTE_CONNECT_MS_MAX: u64 = 60_000;
/// The same for all addresses together.
pub const REMOTE_CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// As many different TLS settings as one process keeps: it has its queue's server and a few remotes.
pub const TLS_SETTINGS_MAX: usize = 4;
/// A bundle of all public authorities has a quarter of a megabyte; an endless file ends here.
pub const CERTIFICATES_BYTES_MAX: u64 = 16 << 20;

// Links to servers.

/// How often a link that waits for its place in the connection budget looks again: the longer it has waited, the less
/// often.
pub const BUDGET_PAUSE_FIRST: Duration = Duration::from_millis(20);
/// And at least so often: a place that is free is used within half a second.
pub const BUDGET_PAUSE_LAST: Duration = Duration::from_millis(500);
/// How long the second connection of a probe may take; no answer is no proof of anything.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// As much as one link reads before the event loop serves the others.
pub const DRIVE_BYTES_MAX: usize = 1 << 20;
/// And in one call.
pub const READ_BYTES: usize = 64 << 10;
/// Everything up to the greeting: a handful of short messages.
pub const LOGIN_BYTES_MAX: usize = 1 << 20;
/// One answer, up to its ReadyForQuery.
pub const ANSWER_BYTES_MAX: usize = 48 << 20;
/// What a message costs besides its bytes once the library has taken it apart.
pub const MESSAGE_OVERHEAD_BYTES: usize = 256;
/// Any other single message: an error can quote what a user wrote.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Descriptions of columns and parameters.
pub const DESCRIPTION_BYTES_MAX: usize = 1 << 20;
/// A reported setting.
pub const PARAMETER_BYTES_MAX: usize = 64 << 10;
/// Settings that are reported: about twenty in PostgreSQL 18.
pub const PARAMETERS_MAX: usize = 256;
/// Notices, notifications and settings in one period; a server that sends more keeps the event loop busy.
pub const UNASKED_BYTES_MAX: usize = 32 << 20;
/// That period.
pub const UNASKED_PERIOD: Duration = Duration::from_secs(10);

// Statements and the catalog.

/// How many rows the short and the long walk of a claim look at: eight per slot that may be filled.
pub const CLAIM_WALKS: [usize; 2] = [64, 800];
/// How long anything of ours waits for a lock that another session holds: everybody else queues behind us meanwhile.
pub const LOCK_TIMEOUT: &str = "2s";
/// The catalog is sent in pieces of at least this size: a session keeps room for the longest message that it has sent.
pub const CATALOG_PIECE_BYTES: usize = 4096;
/// How often an upgrade waits anew for a lock that another session holds.
pub const UPGRADE_TRIES: u32 = 5;

// Processes.

/// How long cancelled tasks may take to be planned again. Then the process exits.
pub const CANCEL_TIMEOUT: Duration = Duration::from_millis(1800);
/// What one write may carry and still be whole on a pipe.
pub const LOG_LINE_BYTES_MAX: usize = 4096;
/// How long a line waits for room: whoever reads the log must not stop the event loop.
pub const LOG_TIMEOUT: Duration = Duration::from_millis(100);
/// Failed tasks that all processes of a launcher log within the period: enough to see what fails. A queue may fail thousands
/// a second, and the rest is counted.
pub const FAILURES_LOGGED: u32 = 20;
pub const FAILURES_PERIOD: Duration = Duration::from_secs(10);

// The leader lock.

/// After this much silence the server ends the leader's session.
pub const SILENCE_MS: u64 = 3_000;
/// How long a leader leads after the last proof.
pub const LEASE: Duration = Duration::from_millis(2_000);
/// From the end of the lease to the end of the sessions: both together are what the server waits.
pub const LET_GO: Duration = Duration::from_millis(SILENCE_MS - 2_000);

// Claims of workers.

/// So often one worker of a group looks from the beginning of the waiting rows.
pub const RESCAN_PERIOD: Duration = Duration::from_millis(200);
