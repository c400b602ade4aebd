//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs SQL asynchronously, on time, again and again, and in the right order, for any PostgreSQL, from outside it.
///
/// Without a subcommand it runs in the foreground and logs to stderr: one scheduler per queue of the config, one worker
/// per task. Users speak to it by SQL:
///
///     INSERT INTO task (input) VALUES ('SELECT now()');
///     SELECT id, state, output, error FROM task;
///
/// Signals: TERM lets running tasks finish (a second TERM cancels them), INT cancels them and plans them again, QUIT
/// leaves at once, HUP reads the config again.
#[derive(Debug, Parser)]
#[command(name = "launcher", version = shared::VERSION, after_help = EXAMPLES, verbatim_doc_comment)]
pub struct Cli {
    #[command(flatten)]
    pub place: ConfigPlace,

    /// How log lines are written.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,

    /// The least important lines that are written.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

const EXAMPLES: &str = "\
Examples:
  launcher --embedded ./mill-data         a private PostgreSQL, made on the spot
  launcher                                database postgres by the PG* environment
  launcher --config mill.json             the queues of a config file
  launcher check --config mill.json       says every mistake at once
  launcher status --config mill.json      what runs, what waits, and why
  launcher status --embedded ./mill-data  the same for a launcher that was started so
  launcher fsck app                       are tasks, jobs and slots in order?
  launcher stop app --config mill.json    end the schedulers of database app (start, restart)
  launcher install app                    the catalog and the task table, before anything runs

Exit status: 0 orderly end; 78 mistakes in the config; 3 (status, start, stop, restart) no launcher to ask; 4 (status) it
answers and serves nothing; 1 anything else, also if the output cannot be written.";

const CHECK_EXAMPLES: &str = "\
Examples:
  launcher check --config mill.json       what is wrong with this file?
  launcher check                          and with the PG* environment, for a start without a file?

  launcher check --connect --config ..    and may every login do what it has to?

Nothing is changed, and nothing connected to without --connect. A mistake is named by its place:

  mill.json: json[2].sleeep: unknown key; did you mean \"sleep\"?";

const STATUS_EXAMPLES: &str = "\
Examples:
  launcher status --config mill.json            for people
  launcher status --config mill.json --json     for programs: slots.used, slots.holders, databases
  launcher status --embedded ./mill-data        of a launcher that was started so
  launcher status --wait 60 --config mill.json  after a start: until it serves

Ready means: it serves at least one queue, or stands by for a leader that it sees. Else the first line is NOT SERVING with
the reason. Queues that are not served beside others have their reason in their own line.

Exit status: 0 ready, 4 not serving, 3 no launcher answers, 78 mistakes in the config.";

const FSCK_EXAMPLES: &str = "\
Examples:
  launcher fsck app --config mill.json          as the login of the config's connect
  SELECT * FROM mill.fsck();                    the same in SQL, for a single check

It checks twice, a second apart, and prints what was wrong both times.

Exit status: 0 everything adds up, 78 mistakes in the config, 1 anything else.";

const ORDER_EXAMPLES: &str = "\
Examples:
  launcher stop app --config mill.json     before something that pgmill should stay away from
  launcher start app --config mill.json    afterwards

The same by SQL, from any database that has the catalog: SELECT mill.stop('app'), mill.start('app').

Started means served: the scheduler of every queue of the database has its session and claims tasks. If that takes more
than nine seconds, the reason is printed.

Exit status: 0 done, 1 not done (and why), 3 no launcher answers, 78 mistakes in the config.";

const INSTALL_EXAMPLES: &str = "\
Examples:
  launcher install app --config mill.json       as the login of the config's connect
  launcher install app --owner dba              the catalog of another role than the queue's user
  launcher install --print | psql -d app        by hand, as any role that may create in the database

The catalog belongs to the user of the queue: of public.task, else of the first queue of that database.
The login of connect must be a member of that role. Without a queue it belongs to the database's owner. A queue's first start does the
same if its user may. What is there already stays as it is. The owner and the next step are printed.

Exit status: 0 done (or done before), 78 mistakes in the config, 1 anything else; then nothing was changed.";

const UPGRADE_EXAMPLES: &str = "\
Examples:
  launcher upgrade app --config mill.json       as the login of the config's connect
  launcher upgrade --print 0.1.0 | psql -d app  by hand, as the catalog's owner
  {\"data\": \"app\", \"upgrade\": \"auto\"}          in the config: at the next start, without a command

Schedulers of the database stop when it begins and go on when it is committed or rolled back.

Exit status: 0 done (or done before), 78 mistakes in the config, 1 anything else; then nothing was changed.";

const UNINSTALL_EXAMPLES: &str = "\
Examples:
  launcher uninstall app --config mill.json     as the login of the config's connect
  SELECT mill.uninstall();                      the same in SQL, as the catalog's owner

Exit status: 0 done (or there was none), 78 mistakes in the config, 1 anything else; then nothing was changed.";
const IMPORT_EXAMPLES: &str = "\
Examples:
  launcher import pg_cron --database app --dry-run            what would become of each job of cron.job in app
  launcher import pg_cron --database app                      and do it, in one transaction
  launcher import pg_cron --database app --from postgres      cron.job stands in another database
  launcher import pg_cron --database app --paused             to look at them first, then: UPDATE mill.job SET scheduled = true
  launcher import pg_cron --database app --run-as-queue-user  jobs of other roles too are active at once

A job runs as the user of its queue here. One that ran as another role in pg_cron comes in paused and is named; check
it, then: UPDATE mill.job SET scheduled = true WHERE id = ...

pg_cron's own rows stay as they are; a job that is active in both runs twice. What is in mill.job already is not
touched, so a second run does nothing.

Exit status: 0 done (what was left is said with its reason), 78 mistakes in the config, 1 anything else; then nothing
was changed.";

const SQL_EXAMPLES: &str = "\
Examples:
  launcher sql                                  every statement, what it is for, and who sends it
  launcher sql claim_walk                       one of them, for public.task
  launcher sql claim_walk --config mill.json    the same for the first queue of the config

A statement that is sent in several forms is printed in each of them. {oid} stands for the OID of the table, {user} for that of
the queue's user. Where a statement has the keys 1, 2 of a lock, each session of a scheduler draws two numbers.

Exit status: 0 done, 2 no statement has that name, 78 mistakes in the config.";

const FLOW_EXAMPLES: &str = "\
Examples:
  launcher export etl --config mill.json > etl.json           a flow with its jobs, timers and edges
  launcher apply etl.json --config mill.json                  the same again, or changed; what is missing is removed
  launcher graph etl --config mill.json | dot -Tsvg > etl.svg
  launcher graph etl --at '2026-01-01 03:00+01' --svg         its state at one logical time

Exit status: 0 done, 78 mistakes in the config, 1 anything else; then nothing was changed.";

/// Which launcher is meant: the one that runs, or is to run, with these.
#[derive(Args, Clone, Debug)]
pub struct ConfigPlace {
    /// The config: a JSON array of queues as in pg_task.json, or an object with connect, max_workers, json and so on.
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Make and supervise a private PostgreSQL in DIR and run on it: nothing else is needed to try it out.
    #[arg(long, value_name = "DIR", global = true)]
    pub embedded: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Read the config and say every mistake in it, with its place. Exit 0 if there is none, else 78.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Also log in, as the launcher and as every queue's user, and say which rights are missing (exit 1 if any is),
        /// and which other roles may INSERT into each queue.
        #[arg(long)]
        connect: bool,
    },
    /// Let the schedulers of a database run. Exit 0 once its queues are served.
    #[command(after_help = ORDER_EXAMPLES)]
    Start { database: String },
    /// End the schedulers of a database; its tasks are planned again. Exit 0 once they are gone. Lasts until `start`, or
    /// until the launcher is started again.
    #[command(after_help = ORDER_EXAMPLES)]
    Stop { database: String },
    /// End the schedulers of a database and start them anew. Exit 0 once its queues are served.
    #[command(after_help = ORDER_EXAMPLES)]
    Restart { database: String },
    /// Ask the running launcher: slots and who holds them, queues and their states, why something waits.
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// The whole answer as JSON.
        #[arg(long)]
        json: bool,
        /// Wait up to SECONDS until the launcher is there and ready, and no queue is just starting.
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
    },
    /// Do the counters and runs of a database agree? Every difference is printed as a sentence; nothing is changed.
    #[command(after_help = FSCK_EXAMPLES)]
    Fsck { database: String },
    /// Make the catalog mill and the task table public.task in a database, in one transaction.
    #[command(after_help = INSTALL_EXAMPLES)]
    Install {
        /// The database; not needed with --print.
        #[arg(required_unless_present = "print")]
        database: Option<String>,
        /// The role that the catalog is to belong to; the user of the queue unless told.
        #[arg(long, value_name = "ROLE", conflicts_with = "print")]
        owner: Option<String>,
        /// Only print the SQL.
        #[arg(long)]
        print: bool,
    },
    /// Bring the catalog mill of a database to the version of this program, in one transaction.
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
    /// Make a flow what a JSON document says: its jobs, timers and edges, in one transaction.
    #[command(after_help = FLOW_EXAMPLES)]
    Apply {
        /// The document; - is the standard input.
        file: PathBuf,
        /// The database; not needed where the config has only one.
        #[arg(long, value_name = "DATABASE")]
        database: Option<String>,
    },
    /// Write a flow as a document that apply takes.
    #[command(after_help = FLOW_EXAMPLES)]
    Export {
        flow: String,
        /// The database; not needed where the config has only one.
        #[arg(long, value_name = "DATABASE")]
        database: Option<String>,
    },
    /// Draw a flow in the language of Graphviz, coloured by its state at one logical time.
    #[command(after_help = FLOW_EXAMPLES)]
    Graph {
        flow: String,
        /// The database; not needed where the config has only one.
        #[arg(long, value_name = "DATABASE")]
        database: Option<String>,
        /// The logical time; the newest one if none is given.
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// As SVG, drawn by Graphviz' program dot.
        #[arg(long)]
        svg: bool,
    },
    /// Print a statement that pgmill sends, as it is sent; without a name, list all of them. Nothing is connected to.
    #[command(after_help = SQL_EXAMPLES)]
    Sql {
        /// Its path, or the name of its file.
        name: Option<String>,
    },
    /// Take over the schedules of another program as jobs; says per schedule what it did and what it could not.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import {
        source: ImportSource,
        #[command(flatten)]
        options: ImportOptions,
    },
}

/// Whose schedules are imported.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ImportSource {
    /// The table cron.job of the extension pg_cron
    #[value(name = "pg_cron")]
    PgCron,
}

#[derive(Args, Clone, Debug)]
pub struct ImportOptions {
    /// The database whose mill.job they go to.
    #[arg(long, value_name = "DATABASE")]
    pub database: String,
    /// The database that has them, if it is another one.
    #[arg(long, value_name = "DATABASE")]
    pub from: Option<String>,
    /// The task table that they run in, as schema.table; the only one there is, else public.task.
    #[arg(long, value_name = "TABLE")]
    pub queue: Option<String>,
    /// The zone that their schedules are meant in, instead of what cron.timezone says.
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// All of them paused.
    #[arg(long)]
    pub paused: bool,
    /// Jobs of other roles run as the user of their queue, and are not paused for that.
    #[arg(long)]
    pub run_as_queue_user: bool,
    /// Say what would be done, and change nothing.
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
