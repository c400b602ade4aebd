//! Every timeout and limit of this crate, each with its reason. A module that needs one imports it from here.

use std::time::Duration;

// Sessions.

/// How long a server may take for a statement of ours, unless told otherwise.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a closing session may take to send its last message.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a worker asks again for its permit to connect: soon at first, since a connect is short.
pub const CONNECT_PERMIT_PAUSE: Duration = Duration::from_millis(1);
pub const LONGEST_CONNECT_PERMIT_PAUSE: Duration = Duration::from_millis(100);
/// The largest number that statement_timeout takes.
pub const LONGEST_TIMEOUT_MS: i64 = i32::MAX as i64;
/// The longest name of a group that is written into a statement which stays prepared.
pub const LONGEST_GROUP_BYTES: usize = 4096;
/// More cancels in a row than these, while the session is set up, are a time limit of the role's.
pub const SETUP_TRIES: usize = 3;

// Batches.

/// The time that the tasks of one batch may take together: they are kept from other workers as long.
pub const BATCH_SPAN: Duration = Duration::from_millis(20);
/// The rest of a batch goes back when one of its tasks takes longer.
pub const SLOW_TASK: Duration = Duration::from_millis(50);
/// Under this mean a second input may be on the wire behind the one that runs.
pub const SHORT_TASK: Duration = Duration::from_millis(1);
/// So many of the last tasks make the mean.
pub const MEASURED_TASKS: usize = 8;
/// The mean of fewer tasks says little.
pub const FEW_TASKS: usize = 2;
/// The size of the first batch, after one task, however short that was.
pub const FIRST_BATCH: usize = 4;
/// So much output is kept before it is recorded.
pub const KEPT_BYTES: usize = 1 << 20;
/// How long the first ends of a batch may take to be recorded while the next task runs.
pub const EARLY_RECORD_TIMEOUT: Duration = Duration::from_secs(30);

// Claims.

/// How long a worker may look past rows that were committed before its scan start, if others of its group claim too.
pub const SCAN_START_LIFE: Duration = Duration::from_secs(1);
/// So many of its own ended tasks a worker walks over sooner than the server plans another statement.
pub const WALKED_TASKS: u32 = 100;

// A running task.

/// Notices of one task that reach the log.
pub const LOGGED_NOTICES: usize = 100;
/// More errors than this from one input are no server's: they are not kept.
pub const KEPT_ERRORS: usize = 8;
/// A task of this duration gets its watchdog: most have ended before, and threads cost as much as they.
pub const WATCHDOG_DELAY: Duration = Duration::from_millis(3);
/// The server's own statement_timeout comes first: its error text is the familiar one.
pub const TIMEOUT_GRACE: Duration = Duration::from_millis(250);
/// A server that has not yet begun to read the statement ignores a cancel: it is sent once more after this time. Not more
/// often, because a statement may catch it and clean up.
pub const CANCEL_AGAIN: Duration = Duration::from_millis(300);
/// How long a cancelled statement may take to end before its backend is terminated.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the backend is terminated before the worker closes the socket of a server that does not react.
pub const TERMINATIONS: usize = 3;
/// How long the connection for a cancel may take.
pub const CANCEL_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The watchdog's threads call little.
pub const WATCHDOG_STACK_BYTES: usize = 128 * 1024;
/// A worker of this age is likely to wait for long: it releases the memory that waiting does not need.
pub const SHED_AGE: Duration = Duration::from_millis(500);

// Recording.

/// How long the end of a task may wait: for a lock that a user holds on its row, for deferred constraints of an atomic
/// task. Only a server that never answers is left so late.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(12 * 3600);
/// How often a waiting worker looks whether it has to give its task back.
pub const INTERRUPT_PERIOD: Duration = Duration::from_millis(50);
/// A deadlock or a late cancel is worth another try of the transaction; more of them in a row are not bad luck.
pub const TRANSACTION_TRIES: usize = 5;
/// Pauses between two tries of a record that the server cannot take now.
pub const RECORD_PAUSE: Duration = Duration::from_millis(200);
pub const LONGEST_RECORD_PAUSE: Duration = Duration::from_secs(5);
/// Refusals that pass by themselves (a deadlock, a lock that was not given, a late cancel) are tried again at once so often.
pub const QUICK_TRIES: u32 = 3;
/// From so many refusals for a missing right on the plainest form is tried too.
pub const RIGHTS_TRIES: u32 = 3;
/// The pause after an attempt of an atomic task that the server could not commit. It doubles with each attempt.
pub const UNDONE_PAUSE: Duration = Duration::from_millis(200);
pub const LONGEST_UNDONE_PAUSE: Duration = Duration::from_secs(5);
/// The server may lack the memory for a result of this size only, and for so long that it gets a shorter one.
pub const LARGE_RESULT_BYTES: usize = 16 << 20;
pub const LARGE_RESULT_TIMEOUT: Duration = Duration::from_secs(600);
/// So much of an error is in the plainest form of a record.
pub const PLAINEST_BYTES: usize = 2000;
/// How long the result of a task on a remote waits for our own server to come back, and how often it looks.
pub const HOME_TIMEOUT: Duration = Duration::from_secs(600);
pub const HOME_PAUSE: Duration = Duration::from_millis(500);

// The wire.

/// Receive buffer: most messages fit, and an idle worker stays small.
pub const INBOX_BYTES: usize = 16 * 1024;
/// How much a long body grows by before its next bytes have arrived.
pub const GROW_BYTES: usize = 256 * 1024;
/// The longest message that a server sends: 1 GiB, and a little for its framing.
pub const LONGEST_RECEIVED_BYTES: usize = (1 << 30) + 1024;
/// The longest message that a server reads (its MaxAllocSize less one), length word included.
pub const LONGEST_SENT_BYTES: usize = 0x3fff_fffe;
/// Below this a copy costs less than one more entry in the vector of a system call.
pub const BORROWED_FROM_BYTES: usize = 4096;
/// As many entries as one system call gets.
pub const SENT_ENTRIES: usize = 16;
/// No answer to a statement of ours is longer than the longest value that a server can hold.
pub const ANSWER_BYTES: usize = 1 << 30;
/// What a row and a value cost besides their bytes.
pub const ROW_BYTES: usize = 256;
/// The other messages that a server may send while it answers a statement of ours; one that sends more never answers.
pub const OTHER_MESSAGES: usize = 100_000;
/// The same for the setup and the reset before an input.
pub const SETUP_MESSAGES: usize = 10_000;
/// The longest error or notice kept; the rest of a longer one is skipped. Also the longest of all messages that are neither
/// rows nor COPY data.
pub const LONGEST_NOTICE_BYTES: usize = 1 << 20;
/// Parameters are few and short; what goes beyond is not kept.
pub const LONGEST_PARAMETER_BYTES: usize = 64 * 1024;
pub const MOST_PARAMETERS: usize = 256;
/// How long a server may take to close the connection after it reported that it will.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the worker waits for the last message of a server after a write to it has failed.
pub const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// No message of a login is longer.
pub const LOGIN_BYTES: usize = 64 * 1024;
/// A longer first error is in truth the bare text with which a server without memory for a process refuses.
pub const LONGEST_LOGIN_ERROR_BYTES: usize = 30_000;
/// No login takes more questions of the server than SCRAM.
pub const LOGIN_ROUNDS: usize = 8;
/// So much of such a text is kept.
pub const BARE_TEXT_BYTES: usize = 1000;
