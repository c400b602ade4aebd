//! Every timeout and limit of this crate, each with its reason. A module that needs one imports it from here.

use shared::limits::SILENCE_MS;
use std::time::Duration;

// The launcher's own server.

/// How long the server may take for an answer. After that the connection is closed: these queries read a few rows of
/// system catalogs, and a server that does not answer them in this time is gone.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often pg_locks is read. A sender of a message waits for one such read, and a DROP DATABASE waits five seconds
/// for our sessions.
pub const WATCH_PERIOD: Duration = Duration::from_millis(200);
/// The read of pg_locks also proves that this launcher leads, so it may not take longer than the silence after which
/// the server ends the session.
pub const WATCH_TIMEOUT: Duration = Duration::from_millis(SILENCE_MS);
/// How often missing roles and databases are looked for: a person creates them, and waits for this.
pub const PROVISION_PERIOD: Duration = Duration::from_secs(10);
/// CREATE DATABASE copies files.
pub const PROVISION_TIMEOUT: Duration = Duration::from_secs(120);
/// Queues of one database that "*" may find: anybody with CREATE can make task tables.
pub const FOUND_QUEUES_MAX: i64 = 256;

// The leader lock.

/// The first pause after a lost connection; it doubles up to the last one.
pub const RECONNECT_FIRST: Duration = Duration::from_millis(100);
pub const RECONNECT_LAST: Duration = Duration::from_secs(1);
/// How often a standby launcher asks for the lock: a part of the five seconds of a takeover.
pub const STANDBY_PERIOD: Duration = Duration::from_millis(300);
/// How often the launcher asks for the lock while its own former session is being ended: that takes milliseconds.
pub const FORMER_PERIOD: Duration = Duration::from_millis(100);
/// How long the schedulers of a leader that has lost its session go on: most reconnects take less, and each restart of
/// a scheduler interrupts its tasks.
pub const REGAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after its session was lost a leader's processes go on as before: most reconnects take less.
pub const LEASE_DOUBT: Duration = Duration::from_millis(300);

// Messages.

/// When a message is answered "false" although it may still succeed: its sender returns after five seconds.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_millis(4500);
/// Messages of all senders together; the server has only some thousands of locks.
pub const MESSAGES_MAX: usize = 1024;
/// Messages of one session: anybody can take thousands of locks, and must not exclude other senders.
pub const MESSAGES_PER_SESSION_MAX: usize = 64;

// The life of a queue.

/// How long a scheduler waits for a slot until that is logged. A pass of another scheduler reserves all free slots for
/// a moment.
pub const NO_SLOT_TIMEOUT: Duration = Duration::from_secs(2);
/// A scheduler that could not be forked is forked again after this.
pub const FORK_RETRY: Duration = Duration::from_secs(1);
/// A scheduler whose loop has not counted a beat for this long is killed. Its loop wakes every five seconds.
pub const BEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// A scheduler that a message ends: how long until its workers' sessions are ended through the server, until its own
/// is, and until the process is killed. Two seconds in all, because the sender of the message waits for five.
pub const END_TASKS_AFTER: Duration = Duration::from_millis(500);
pub const END_SESSION_AFTER: Duration = Duration::from_millis(500);
pub const KILL_AFTER: Duration = Duration::from_secs(1);
/// Between the steps of every other end. No session is ended through the server then: the scheduler plans its tasks
/// again first.
pub const END_STEP: Duration = Duration::from_secs(2);
/// Deaths after useful work cost nothing, unless there are more than this many within the window; then each start
/// waits.
pub const DEATHS_MAX: usize = 5;
pub const DEATHS_WINDOW: Duration = Duration::from_secs(10);
pub const DEATHS_PAUSE: Duration = Duration::from_secs(1);
/// The first pause after a scheduler that failed before its first claim; it doubles up to the queue's setting
/// "restart".
pub const RESTART_FIRST: Duration = Duration::from_secs(1);
/// A scheduler that has run for this long begins with the first pause again.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(10 * 60);
/// The end of the launcher waits this much longer than its schedulers' own time to finish.
pub const STOP_MARGIN: Duration = Duration::from_secs(5);
/// Orphans reaped in one pass; the next pass reaps the rest.
pub const REAP_MAX: usize = 4096;

// The control socket.

/// The longest request: its longest part is the name of a database.
pub const REQUEST_MAX_BYTES: usize = 4096;
/// Open connections: each is a descriptor of a process that must not run out of them.
pub const CALLERS_MAX: usize = 32;
/// After this a connection is closed, answered or not.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// When an order is answered "not done" although it may still succeed: the command gives up after ten seconds.
pub const ORDER_TIMEOUT: Duration = Duration::from_secs(9);
/// How often the socket file is compared with the bound socket, and a failed accept is tried again.
pub const SOCKET_CHECK_PERIOD: Duration = Duration::from_secs(1);

// Commands of the operator.

/// How long `status`, `start`, `stop` and `restart` wait for the running launcher.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How often `status --wait` asks.
pub const STATUS_PERIOD: Duration = Duration::from_millis(50);
/// How long `install` and commands like it may take in the database: they may wait for locks of a running scheduler.
pub const INSTALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A migration may rewrite large tables.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long each login of `check --connect` may take.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// `fsck` reports only differences that it finds twice: a transaction may commit between two of its queries.
pub const FSCK_PAUSE: Duration = Duration::from_secs(1);
/// Room in a cell for what a process learns on its way and passes on.
pub const LEARNT_BYTES: usize = 64;

// The embedded server.

/// How long initdb may take on a slow disk.
pub const INITDB_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a start of the server may take until that is logged.
pub const SERVER_START_TIMEOUT: Duration = Duration::from_secs(60);
/// Sessions of a killed server hold its memory for a moment, and the next server refuses to start.
pub const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a starting server is looked at.
pub const STARTUP_PERIOD: Duration = Duration::from_millis(20);
/// Looks between two starts while the predecessor's sessions go.
pub const LOOKS_BEFORE_RETRY: u32 = 10;
/// Pauses between restarts of a server that dies; they double, and begin anew after a minute of service.
pub const SERVER_RESTART_FIRST: Duration = Duration::from_secs(1);
pub const SERVER_RESTART_LAST: Duration = Duration::from_secs(30);
pub const SERVER_HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// A larger server log is put aside at the start.
pub const SERVER_LOG_MAX_BYTES: u64 = 10 * 1024 * 1024;
/// How much of its end is read, and shown, when the server does not start.
pub const SERVER_LOG_TAIL_BYTES: u64 = 4096;
pub const SERVER_LOG_TAIL_LINES: usize = 8;
/// A socket's path has room for 108 bytes, the closing zero included.
pub const SOCKET_PATH_MAX: usize = 107;
