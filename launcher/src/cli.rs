//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs SQL tasks for any PostgreSQL, from outside the server: asynchronously, on a schedule, in the
/// order of a graph.
///
/// Without a subcommand it runs in the foreground and logs to stderr. It starts one scheduler per
/// queue of the config and one worker per task. Users insert rows:
///
///     INSERT INTO task (input) VALUES ('SELECT now()');
///     SELECT id, state, output, error FROM task;
///
/// Signals: TERM lets running tasks finish (a second TERM cancels them), INT cancels them and plans
/// them again, QUIT exits at once, HUP reloads the config.
#[derive(Debug, Parser)]
#[command(name = "launcher", version = shared::VERSION, after_help = EXAMPLES, verbatim_doc_comment)]
pub struct Cli {
    #[command(flatten)]
    pub place: ConfigPlace,

    /// The format of log lines.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,

    /// The lowest level that is logged.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

const EXAMPLES: &str = "\
Examples:
  launcher --embedded ./mill-data         create a private PostgreSQL and serve it
  launcher                                serve the database postgres, by the PG* environment
  launcher --config mill.json             serve the queues of a config file
  launcher check --config mill.json       print every mistake of the config
  launcher status --config mill.json      print running tasks, queues and their reasons
  launcher status --embedded ./mill-data  the same for a launcher that was started with --embedded
  launcher fsck app                       check tasks, jobs and slots for consistency
  launcher stop app --config mill.json    stop the schedulers of database app (also: start, restart)
  launcher install app                    create the catalog and the task table, before the first start

Exit status: 0 success; 78 mistakes in the config; 3 (status, start, stop, restart) no launcher is running; 4 (status)
the launcher is running and serves no queue; 1 any other error, also if the output cannot be written.";

const CHECK_EXAMPLES: &str = "\
Examples:
  launcher check --config mill.json       check the file
  launcher check                          check the PG* environment, for a start without a file
  launcher check --connect --config ..    also log in, and check the rights of every login

It changes nothing. Without --connect it connects to nothing. Each mistake is printed with its place:

  mill.json: json[2].sleeep: unknown key; did you mean \"sleep\"?";

const STATUS_EXAMPLES: &str = "\
Examples:
  launcher status --config mill.json            for people
  launcher status --config mill.json --json     for programs: slots.used, slots.holders, databases
  launcher status --embedded ./mill-data        for a launcher that was started with --embedded
  launcher status --wait 60 --config mill.json  after a start: wait until it serves

Ready means: the launcher serves at least one queue, or stands by for a leader that it sees. Otherwise the first line is
NOT SERVING with the reason. If only some queues are not served, the reason is in the line of each.

Exit status: 0 ready, 4 not serving, 3 no launcher is running, 78 mistakes in the config.";

const FSCK_EXAMPLES: &str = "\
Examples:
  launcher fsck app --config mill.json          as the login of the config's connect
  SELECT * FROM mill.fsck();                    the same in SQL, a single check

It checks twice, a second apart, and prints the problems that it found both times.

Exit status: 0 no problem found, 78 mistakes in the config, 1 problems found, or any other error.";

const ORDER_EXAMPLES: &str = "\
Examples:
  launcher stop app --config mill.json     before maintenance of the database
  launcher start app --config mill.json    afterwards

The same in SQL, from any database that has the catalog: SELECT mill.stop('app'), mill.start('app').

Started means served: the scheduler of every queue of the database has its session and claims tasks. If that takes more
than nine seconds, the command prints the reason and fails.

Exit status: 0 done, 1 not done (the reason is printed), 3 no launcher is running, 78 mistakes in the config.";

const INSTALL_EXAMPLES: &str = "\
Examples:
  launcher install app --config mill.json       as the login of the config's connect
  launcher install app --owner dba              the catalog belongs to dba, not to the queue's user
  launcher install --print | psql -d app        by hand, as any role that may create in the database

The catalog belongs to the user of the queue that serves public.task, else to the user of the first queue of that
database. The login of connect must be a member of that role. If the config has no queue of the database, the catalog
belongs to the owner of the database. The first start of a queue does the same, if its user may. Existing objects are
not changed. The command prints the owner and the next step.

Exit status: 0 done (or done before), 78 mistakes in the config, 1 any other error; then nothing was changed.";

const UPGRADE_EXAMPLES: &str = "\
Examples:
  launcher upgrade app --config mill.json       as the login of the config's connect
  launcher upgrade --print 0.1.0 | psql -d app  by hand, as the catalog's owner
  {\"data\": \"app\", \"upgrade\": \"auto\"}          in the config: at the next start, without a command

Schedulers of the database stop when the upgrade begins. New ones start when it is committed or rolled back.

Exit status: 0 done (or done before), 78 mistakes in the config, 1 any other error; then nothing was changed.";

const UNINSTALL_EXAMPLES: &str = "\
Examples:
  launcher uninstall app --config mill.json     as the login of the config's connect
  SELECT mill.uninstall();                      the same in SQL, as the catalog's owner

Exit status: 0 done (or there was none), 78 mistakes in the config, 1 any other error; then nothing was changed.";
const IMPORT_EXAMPLES: &str = "\
Examples:
  launcher import pg_cron --database app --dry-run            print what would be done with each job of cron.job in app
  launcher import pg_cron --database app                      import the jobs, in one transaction
  launcher import pg_cron --database app --from postgres      cron.job is in another database
  launcher import pg_cron --database app --paused             then check them, and UPDATE mill.job SET scheduled = true
  launcher import pg_cron --database app --run-as-queue-user  jobs of other roles are active at once, too

A job runs as the user of its queue. A job that ran as another role in pg_cron is imported paused, and printed. Check
it, then: UPDATE mill.job SET scheduled = true WHERE id = ...

The rows of pg_cron are not changed: a job that is active in both runs twice. Existing rows of mill.job are not changed,
so a second import does nothing.

Exit status: 0 done (jobs that were not imported are printed with the reason), 78 mistakes in the config, 1 any other
error; then nothing was changed.";

const SQL_EXAMPLES: &str = "\
Examples:
  launcher sql                                  list all statements with their purpose and sender
  launcher sql claim_walk                       print one of them, for public.task
  launcher sql claim_walk --config mill.json    the same for the first queue of the config

A statement that is sent in several forms is printed in each form. {oid} is the OID of the table, {user} the OID of the
queue's user. Where a statement has the lock keys 1, 2, each session of a scheduler draws two random numbers.

Exit status: 0 done, 2 no statement has that name, 78 mistakes in the config.";

const FLOW_EXAMPLES: &str = "\
Examples:
  launcher export etl --config mill.json > etl.json           write a flow with its jobs, timers and edges
  launcher apply etl.json --config mill.json                  create or change it; jobs that the file lacks are deleted
  launcher graph etl --config mill.json | dot -Tsvg > etl.svg
  launcher graph etl --at '2026-01-01 03:00+01' --svg         its state at one logical time

Exit status: 0 done, 78 mistakes in the config, 1 any other error; then nothing was changed.";

/// Which launcher is meant: the one that runs, or is to run, with these.
#[derive(Args, Clone, Debug)]
pub struct ConfigPlace {
    /// The config: a JSON array of queues as in pg_task.json, or an object with connect, max_workers, json and so on.
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Use the private PostgreSQL in DIR. Without a subcommand, create it if needed, and start and supervise it.
    #[arg(long, value_name = "DIR", global = true)]
    pub embedded: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Read the config and print every mistake with its place. Exit 0 if there is none, else 78.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Also log in as the launcher and as the user of each queue. Print the missing rights (exit 1 if any), and the
        /// other roles that may INSERT into each queue.
        #[arg(long)]
        connect: bool,
    },
    /// Start the schedulers of a database. Exit 0 once its queues are served.
    #[command(after_help = ORDER_EXAMPLES)]
    Start { database: String },
    /// Stop the schedulers of a database; its tasks are planned again. Exit 0 once they have ended. It lasts until
    /// `start`, or until the launcher restarts.
    #[command(after_help = ORDER_EXAMPLES)]
    Stop { database: String },
    /// Stop the schedulers of a database and start new ones. Exit 0 once its queues are served.
    #[command(after_help = ORDER_EXAMPLES)]
    Restart { database: String },
    /// Print the state of the running launcher: slots, connections, queues with their reasons, running tasks.
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Print everything as JSON.
        #[arg(long)]
        json: bool,
        /// Wait up to SECONDS until the launcher is running and ready, and no queue is starting.
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
    },
    /// Check the tasks and jobs of a database for consistency. Print each problem as a sentence; change nothing.
    #[command(after_help = FSCK_EXAMPLES)]
    Fsck { database: String },
    /// Create the catalog mill and the task table public.task in a database, in one transaction.
    #[command(after_help = INSTALL_EXAMPLES)]
    Install {
        /// The database; not needed with --print.
        #[arg(required_unless_present = "print")]
        database: Option<String>,
        /// The owner of the catalog; by default the user of the queue.
        #[arg(long, value_name = "ROLE", conflicts_with = "print")]
        owner: Option<String>,
        /// Only print the SQL.
        #[arg(long)]
        print: bool,
    },
    /// Upgrade the catalog mill of a database to the version of this program, in one transaction.
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade {
        /// The database; not needed with --print.
        #[arg(required_unless_present = "print")]
        database: Option<String>,
        /// Only print the SQL, for a catalog of version FROM.
        #[arg(long, value_name = "FROM")]
        print: Option<String>,
    },
    /// Drop the catalog mill of a database; task tables and their rows stay.
    #[command(after_help = UNINSTALL_EXAMPLES)]
    Uninstall { database: String },
    /// Create or change a flow from a JSON document: its jobs, timers and edges, in one transaction.
    #[command(after_help = FLOW_EXAMPLES)]
    Apply {
        /// The document; - for standard input.
        file: PathBuf,
        /// The database; not needed where the config has only one.
        #[arg(long, value_name = "DATABASE")]
        database: Option<String>,
    },
    /// Print a flow as a document for apply.
    #[command(after_help = FLOW_EXAMPLES)]
    Export {
        flow: String,
        /// The database; not needed where the config has only one.
        #[arg(long, value_name = "DATABASE")]
        database: Option<String>,
    },
    /// Print a flow in the language of Graphviz, coloured by its state at one logical time.
    #[command(after_help = FLOW_EXAMPLES)]
    Graph {
        flow: String,
        /// The database; not needed where the config has only one.
        #[arg(long, value_name = "DATABASE")]
        database: Option<String>,
        /// The logical time; by default the newest one.
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Print SVG, drawn by the program dot of Graphviz.
        #[arg(long)]
        svg: bool,
    },
    /// Print a statement as pgmill sends it; without a name, list all statements. It connects to nothing.
    #[command(after_help = SQL_EXAMPLES)]
    Sql {
        /// Its path, or its file name.
        name: Option<String>,
    },
    /// Import the schedules of another program as jobs; print for each schedule what was done, or why it was not.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import {
        source: ImportSource,
        #[command(flatten)]
        options: ImportOptions,
    },
}

/// The program whose schedules are imported.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ImportSource {
    /// The table cron.job of the extension pg_cron
    #[value(name = "pg_cron")]
    PgCron,
}

#[derive(Args, Clone, Debug)]
pub struct ImportOptions {
    /// The database whose mill.job receives them.
    #[arg(long, value_name = "DATABASE")]
    pub database: String,
    /// The database with cron.job, if it is another one.
    #[arg(long, value_name = "DATABASE")]
    pub from: Option<String>,
    /// The task table that they run in, as schema.table; by default the only one, else public.task.
    #[arg(long, value_name = "TABLE")]
    pub queue: Option<String>,
    /// The time zone of their schedules, instead of cron.timezone.
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Import all of them paused.
    #[arg(long)]
    pub paused: bool,
    /// Run jobs of other roles as the user of their queue, without a pause.
    #[arg(long)]
    pub run_as_queue_user: bool,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// time, level, process, message, key=value
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
}

impl From<LogFormat> for shared::log::LineFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => shared::log::LineFormat::Text,
            LogFormat::Json => shared::log::LineFormat::Json,
        }
    }
}

impl From<LogLevel> for shared::log::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => shared::log::Level::Error,
            LogLevel::Warning => shared::log::Level::Warning,
            LogLevel::Info => shared::log::Level::Info,
            LogLevel::Debug => shared::log::Level::Debug,
        }
    }
}
