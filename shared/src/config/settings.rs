//! What a row may set: the scheduler's own settings, and the defaults of the task table's columns.
//!
//! `read.rs` fills them key by key, first from `defaults`, then from the row; both travel to the scheduler in its
//! cell. What can go wrong: a value of the wrong kind or out of range, told as text; the caller knows the place.

use super::json::Json;
use super::value;
use serde::{Deserialize, Serialize};

const DAY_MS: u64 = 86_400_000;
const KEEP_MS: u64 = 100 * 366 * DAY_MS;
/// Milliseconds in PostgreSQL's settings are 32-bit numbers: almost 25 days.
const LONGEST_MS: u64 = i32::MAX as u64;
/// A field of a PostgreSQL row ends at 1 GB.
const LARGEST_OUTPUT: u64 = 1 << 30;

/// How one scheduler works. A `pg_task.*` setting in the database may still override them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The poll, when no bell rings.
    pub sleep_ms: u64,
    /// How often to look for hung tasks.
    pub reset_ms: u64,
    /// Rows taken at once; 0 takes none.
    pub limit: u32,
    /// Tasks running at once in this table.
    pub run: u32,
    /// How long a worker may take to read its parameters, and running tasks to finish at shutdown.
    pub close_ms: u64,
    /// Bytes of output kept per task.
    pub output_limit: u64,
    /// Empty polls before the poll is stretched.
    pub idle: u32,
    /// Rows handled at once: taken, and their workers forked, in one go.
    pub fetch: u32,
    /// The longest pause before a dead scheduler is started again.
    pub restart_ms: u64,
    /// Finished tasks older than this are deleted; none by default.
    pub keep_ms: Option<u64>,
    /// Workers may inherit a connection that an earlier one has left clean.
    pub lend: bool,
    /// Live workers may take several short tasks at once. Off unless asked for.
    pub batch: bool,
    /// The commit of a task's end waits for the disk.
    pub synchronous_commit: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sleep_ms: 1_000,
            reset_ms: 3_600_000,
            limit: 1_000,
            run: u32::MAX,
            close_ms: 60_000,
            output_limit: 64 << 20,
            idle: 60,
            fetch: 100,
            restart_ms: 300_000,
            keep_ms: None,
            lend: true,
            batch: true,
            synchronous_commit: true,
        }
    }
}

impl Settings {
    pub(super) const KEYS: [&'static str; 13] = [
        "sleep",
        "reset",
        "limit",
        "run",
        "close",
        "output_limit",
        "idle",
        "fetch",
        "restart",
        "keep",
        "lend",
        "batch",
        "synchronous_commit",
    ];

    /// Takes a key that is one of ours; `Ok(false)` if it is not.
    pub(super) fn set(&mut self, key: &str, json: &Json) -> Result<bool, String> {
        match key {
            "sleep" => self.sleep_ms = value::duration_ms(json, 1..=DAY_MS)?,
            "reset" => self.reset_ms = value::duration_ms(json, 1..=LONGEST_MS)?,
            "limit" => self.limit = value::integer(json, 0..=i32::MAX as u32)?,
            "run" => self.run = value::integer(json, 1..=u32::MAX)?,
            "close" => self.close_ms = value::duration_ms(json, 1..=DAY_MS)?,
            "output_limit" => self.output_limit = value::size_bytes(json, 1..=LARGEST_OUTPUT)?,
            "idle" => self.idle = value::integer(json, 0..=i32::MAX as u32)?,
            "fetch" => self.fetch = value::integer(json, 1..=1000)?,
            "restart" => self.restart_ms = value::duration_ms(json, 1..=LONGEST_MS)?,
            "lend" => self.lend = value::boolean(json)?,
            "batch" => self.batch = value::boolean(json)?,
            "synchronous_commit" => self.synchronous_commit = value::boolean(json)?,
            "keep" => self.keep_ms = Some(value::duration_ms(json, 1..=KEEP_MS)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A setting of the server, the database or the role, which wins over the config: `pg_task.sleep` and the like.
    /// Numbers are milliseconds where a duration is meant. Err: the value is not to be used, and why.
    pub fn set_from_server(&mut self, name: &str, text: &str) -> Result<(), String> {
        let key = name.split_once('.').map_or(name, |(_, key)| key);
        let json = match text.parse::<u64>() {
            Ok(number) => Json::Integer(number.into()),
            Err(_) => Json::Text(text.to_owned()),
        };
        self.set(key, &json).map(|_| ()).map_err(|why| format!("{name} = \"{text}\": {why}"))
    }
}

/// Defaults of columns of the task table; `None` leaves the built-in one. Intervals are texts that PostgreSQL's
/// interval input takes on every supported server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnDefaults {
    pub active: Option<String>,
    pub live: Option<String>,
    pub repeat: Option<String>,
    pub timeout: Option<String>,
    pub count: Option<i32>,
    pub max: Option<i32>,
    pub delete: Option<bool>,
    pub drift: Option<bool>,
    pub header: Option<bool>,
    pub save: Option<bool>,
    pub string: Option<bool>,
    pub delimiter: Option<String>,
    pub escape: Option<String>,
    pub quote: Option<String>,
    pub group: Option<String>,
    pub null: Option<String>,
}

impl ColumnDefaults {
    pub(super) const KEYS: [&'static str; 16] = [
        "active",
        "live",
        "repeat",
        "timeout",
        "count",
        "max",
        "delete",
        "drift",
        "header",
        "save",
        "string",
        "delimiter",
        "escape",
        "quote",
        "group",
        "null",
    ];

    /// Takes a key that is one of ours; `Ok(false)` if it is not.
    pub(super) fn set(&mut self, key: &str, json: &Json) -> Result<bool, String> {
        match key {
            "active" => self.active = Some(value::interval(json, false)?),
            "live" => self.live = Some(value::interval(json, true)?),
            "repeat" => self.repeat = Some(value::interval(json, true)?),
            "timeout" => self.timeout = Some(value::interval(json, true)?),
            "count" => self.count = Some(value::integer(json, 0..=i32::MAX)?),
            "max" => self.max = Some(value::integer(json, i32::MIN..=i32::MAX)?),
            "delete" => self.delete = Some(value::boolean(json)?),
            "drift" => self.drift = Some(value::boolean(json)?),
            "header" => self.header = Some(value::boolean(json)?),
            "save" => self.save = Some(value::boolean(json)?),
            "string" => self.string = Some(value::boolean(json)?),
            "delimiter" => self.delimiter = Some(value::one_byte(json)?),
            "escape" => self.escape = Some(value::one_byte(json)?),
            "quote" => self.quote = Some(value::one_byte(json)?),
            "group" => self.group = Some(value::short_text(json)?),
            "null" => self.null = Some(value::short_text(json)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{ColumnDefaults, Json, Settings};

    #[test]
    fn every_listed_key_is_taken_and_no_other() {
        for key in Settings::KEYS {
            let values = [Json::Integer(5), Json::Bool(true)];
            assert!(values.iter().any(|value| Settings::default().set(key, value) == Ok(true)), "{key}");
            assert!(Settings::default().set(key, &Json::Null).is_err(), "{key}");
        }
        for key in ColumnDefaults::KEYS {
            let values = [Json::Integer(5), Json::Bool(true), Json::Text("x".into())];
            let taken = values.iter().any(|value| ColumnDefaults::default().set(key, value) == Ok(true));
            assert!(taken && ColumnDefaults::default().set(key, &Json::Null).is_err(), "{key}");
        }
        assert_eq!(Settings::default().set("max", &Json::Null), Ok(false));
        assert_eq!(ColumnDefaults::default().set("sleep", &Json::Null), Ok(false));
    }

    #[test]
    fn the_limits_of_the_settings_are_kept() {
        for (key, number, fine) in [
            ("sleep", 0, false),
            ("sleep", 1, true),
            ("sleep", 86_400_000, true),
            ("sleep", 86_400_001, false),
            ("limit", 0, true),
            ("run", 0, false),
            ("run", i128::from(u32::MAX), true),
            ("output_limit", 1 << 30, true),
            ("output_limit", (1 << 30) + 1, false),
        ] {
            assert_eq!(Settings::default().set(key, &Json::Integer(number)).is_ok(), fine, "{key} {number}");
        }
    }

    #[test]
    fn a_task_may_not_expire_before_it_starts() {
        assert!(ColumnDefaults::default().set("active", &Json::Integer(0)).is_err());
        assert_eq!(ColumnDefaults::default().set("timeout", &Json::Integer(0)), Ok(true));
        assert!(ColumnDefaults::default().set("count", &Json::Integer(-1)).is_err());
        assert_eq!(ColumnDefaults::default().set("max", &Json::Integer(-1)), Ok(true));
    }

    #[test]
    fn settings_and_defaults_travel_as_json() {
        let mut columns = ColumnDefaults::default();
        assert_eq!(columns.set("timeout", &Json::Text("10 min".into())), Ok(true));
        let text = serde_json::to_string(&(Settings::default(), columns.clone())).unwrap();
        let back: (Settings, ColumnDefaults) = serde_json::from_str(&text).unwrap();
        assert_eq!(back, (Settings::default(), columns));
    }
}
