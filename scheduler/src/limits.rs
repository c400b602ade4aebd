//! Every timeout and limit of this crate, each with its reason. A module that needs one imports it from here.

use std::time::Duration;

// The session that serves the queue.

/// How long the server may take for an answer. After that the connection is closed: a server that is alive answers these
/// queries in milliseconds, and a dead one must not hold the queue.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait of the event loop: the heartbeat in the slot status must go on.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// How often the scheduler looks for the catalog, at most: one that is gone stops the queue.
pub const MARKER_PERIOD: Duration = Duration::from_secs(1);
/// How long the repair of a table may take: it may build an index of a large table.
pub const REPAIR_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

// Claims.

/// How long ends of workers and reset connections wait for the answer of a claim-only pass, which takes about as long.
/// Nothing could be done with them before, and each would wake the event loop.
pub const CLAIM_WAIT: Duration = Duration::from_millis(3);
/// Under steady load a full pass runs this often; passes in between only claim.
pub const FULL_PASS_PERIOD: Duration = Duration::from_millis(50);
/// How often the queue is measured and old rows are deleted, at most.
pub const MEASURE_PERIOD: Duration = Duration::from_secs(60);
/// Pauses between passes while workers cannot begin: a cause that lasts must not fork without end.
pub const FAILED_START_FIRST: Duration = Duration::from_millis(200);
pub const FAILED_START_LAST: Duration = Duration::from_secs(5);
/// How long the wake-up lock stays unarmed after a notification that led to nothing. It doubles up to the poll interval.
pub const QUIET_FIRST: Duration = Duration::from_millis(20);
/// How long a pass waits while all slots are taken: the end of a worker starts one at once.
pub const FULL_PAUSE: Duration = Duration::from_millis(50);
/// How long a claim-only pass is not followed by a full one: tasks that follow one another in their group are often as
/// short. Longer while the wake-up lock is armed: other startable rows notify then.
pub const LINGER: Duration = Duration::from_millis(10);
pub const LINGER_ARMED: Duration = Duration::from_millis(50);
/// How often a row is read again that waits for the end of its own earlier attempt: that end sends no notification.
pub const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between polls of an idle queue.
pub const LONGEST_POLL: Duration = Duration::from_secs(60);
/// How soon one more worker is allowed after a fork failed.
pub const RAISE_PAUSE: Duration = Duration::from_secs(10);
/// Of failed forks one is logged in this time.
pub const FORK_LOG_PAUSE: Duration = Duration::from_secs(60);
/// Below this many descriptors they are counted before each pass; counting reads /proc.
pub const ENOUGH_FILES: u64 = 64;
pub const ENOUGH_FILES_PER_WORKER: u64 = 4;
/// Descriptors left for sessions that come and go beside the tasks.
pub const SPARE_FILES: u64 = 1;
/// The longest input that a fork hands to a worker; a longer one is read by the worker itself.
pub const LONGEST_INPUT_BYTES: i32 = 64 * 1024;
/// Up to this many slots the short walk is enough.
pub const FEW_SLOTS: usize = 8;
/// Groups read in one go; with more of them a cursor goes round.
pub const GROUPS_PER_PASS: i32 = 1000;
/// Up to this many groups their heads are read without a walk before.
pub const FEW_GROUPS: usize = 32;
/// Candidates over all groups in one go.
pub const CANDIDATES: usize = 4000;
/// Rounds of expiry in one pass: a backlog of expired rows is worked off in several passes.
pub const EXPIRY_ROUNDS: usize = 4;
/// A login states no longer name of a group; a longer one comes with the task.
pub const LONGEST_GROUP_NAME: usize = 256;

// Attempts.

/// How long a worker that was asked to cancel may take before it is killed.
pub const CANCEL_TIMEOUT: Duration = Duration::from_millis(700);
/// How often a row is read again whose backend still lives.
pub const SETTLE_PAUSE: Duration = Duration::from_millis(50);
/// Reads that only cancel the backend; later ones terminate it.
pub const CANCEL_TRIES: u32 = 4;
/// How long the scheduler waits for a backend that may belong to another session: far longer than the server takes to end a
/// session whose client is gone.
pub const DOUBT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often claimed rows are read that nobody runs, at least.
pub const SWEEP_PERIOD: Duration = Duration::from_secs(20);
/// How long tasks of a batch wait whose rows another transaction has locked.
pub const RETURN_PAUSE: Duration = Duration::from_millis(50);
/// How long a result waits whose own worker could not be started or could not record it.
pub const RECORD_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A result may wait for others this share of the time that tasks take, but not longer than `LONGEST_GATHERING`. One
/// transaction costs the server mostly the same for one and for eight.
pub const GATHERING_SHARE: u32 = 8;
pub const LONGEST_GATHERING: Duration = Duration::from_millis(4);
/// How fast the mean of the time that tasks take follows the last ones.
pub const MEAN_MEMORY: u32 = 16;
/// Forks that follow one another so closely are of tasks that come and go.
pub const STEADY_FORKS: Duration = Duration::from_millis(50);

// Tasks on remotes.

/// Searches that connect at the same time; the others wait for their turn.
pub const REMOTE_SEARCHES: usize = 16;
/// How long a remote may take for an answer.
pub const REMOTE_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon a session on a remote that still lives is searched again.
pub const REMOTE_PAUSE: Duration = Duration::from_millis(50);
/// Pauses between tries to reach a remote.
pub const REMOTE_RETRY_FIRST: Duration = Duration::from_millis(500);
pub const REMOTE_RETRY_LAST: Duration = Duration::from_secs(30);

// The connection pool.

/// How often, and how long, one connection is reused: a backend's caches grow with what it has run.
pub const POOL_USES: u32 = 1_000;
pub const POOL_LIFETIME: Duration = Duration::from_secs(600);
/// How many connections are kept.
pub const POOL_SIZE: usize = 16;
/// How long a server may take to reset a connection.
pub const RESET_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection whose reset takes longer is not reserved for a claim meanwhile.
pub const RESET_SOON: Duration = Duration::from_millis(3);
/// How long a server may take to close its end after a Terminate message.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the scheduler asks whether a terminated backend is gone.
pub const CLOSE_PAUSE: Duration = Duration::from_millis(50);
/// No answer to the statements of a reset is longer.
pub const RESET_ANSWER_BYTES: usize = 64 * 1024;
