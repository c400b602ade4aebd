//! What a queue may set: the scheduler's own settings, and the defaults of the task table's columns.
//!
//! `read.rs` fills them key by key, first from `defaults`, then from the queue; both travel to the scheduler in its
//! cell. What can go wrong: a value of the wrong kind or out of range, told as text; the caller knows the place.

use super::json::Json;
use super::value;
use crate::limits::{KEEP_MS_MAX, OUTPUT_BYTES_MAX, SERVER_MS_MAX, WAIT_MS_MAX};
use serde::{Deserialize, Serialize};

/// Declares `Settings`: per setting what it is, its key in the config, its type and built-in value, how a value is read and
/// within which bounds, and the settings of the server that override it (a later one wins).
macro_rules! settings {
    ($($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $built_in:expr, $read:expr, $server:expr;)*) => {
        /// How one scheduler works. A `pg_task.*` setting in the database may still override them.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Settings {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($field: $built_in,)* }
            }
        }

        impl Settings {
            pub(super) const KEYS: &[&str] = &[$($key,)*];
            /// By key, the settings of the server that override it.
            pub(super) const OVERRIDES: &[(&str, &[&str])] = &[$(($key, &$server),)*];

            /// Takes a key that is one of ours; `Ok(false)` if it is not.
            pub(super) fn set(&mut self, key: &str, json: &Json) -> Result<bool, String> {
                match key {
                    $($key => {
                        let read: fn(&Json) -> Result<$type, String> = $read;
                        self.$field = read(json)?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

settings! {
    /// The poll, when no notification comes.
    "sleep" sleep_ms: u64 = 1_000, |json| value::duration_ms(json, 1..=WAIT_MS_MAX), ["pg_task.sleep"];
    /// How often to look for hung tasks.
    "reset" reset_ms: u64 = 3_600_000, |json| value::duration_ms(json, 1..=SERVER_MS_MAX), ["pg_task.reset"];
    /// Rows claimed at once; 0 takes none.
    "limit" limit: u32 = 1_000, |json| value::integer(json, 0..=i32::MAX as u32), ["pg_task.limit"];
    /// Tasks running at once in this table.
    "run" run: u32 = u32::MAX, |json| value::integer(json, 1..=u32::MAX), ["pg_task.run"];
    /// How long a worker may take to read its parameters, and running tasks to finish at shutdown.
    "close" close_ms: u64 = 60_000, |json| value::duration_ms(json, 1..=WAIT_MS_MAX), ["pg_work.close"];
    /// Bytes of output kept per task.
    "output_limit" output_limit: u64 = 64 << 20, |json| value::size_bytes(json, 1..=OUTPUT_BYTES_MAX), [];
    /// Empty polls before the poll is stretched.
    "idle" idle: u32 = 60, |json| value::integer(json, 0..=i32::MAX as u32), ["pg_task.idle", "pg_work.idle"];
    /// Rows handled at once: taken, and their workers forked, in one go.
    "fetch" fetch: u32 = 100, |json| value::integer(json, 1..=1000), ["pg_work.fetch", "pg_task.fetch"];
    /// The longest pause before a dead scheduler is started again.
    "restart" restart_ms: u64 = 300_000, |json| value::duration_ms(json, 1..=SERVER_MS_MAX), [];
    /// Finished tasks older than this are deleted; none by default.
    "keep" keep_ms: Option<u64> = None, |json| value::duration_ms(json, 1..=KEEP_MS_MAX).map(Some), ["pg_task.keep"];
    /// Workers inherit pooled connections.
    "pool" pool: bool = true, value::boolean, [];
    /// Live workers may take several short tasks at once.
    "batch" batch: bool = true, value::boolean, [];
    /// The commit of a task's end waits for the disk.
    "synchronous_commit" synchronous_commit: bool = true, value::boolean, [];
}

impl Settings {
    /// The settings of the server that override ours, a later one of the same key before an earlier one.
    pub fn server_settings() -> impl Iterator<Item = &'static str> {
        Settings::OVERRIDES.iter().flat_map(|(_, names)| names.iter().copied())
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

/// Declares `ColumnDefaults`: per column its type here, and how a value of the config is read.
macro_rules! column_defaults {
    ($($column:ident: $type:ty, $read:expr;)*) => {
        /// Defaults of columns of the task table; `None` leaves the built-in one. Intervals are texts that PostgreSQL's
        /// interval input takes on every supported server.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct ColumnDefaults {
            $(pub $column: Option<$type>,)*
        }

        impl ColumnDefaults {
            pub(crate) const KEYS: &[&str] = &[$(stringify!($column),)*];

            /// Takes a key that is one of ours; `Ok(false)` if it is not.
            pub(super) fn set(&mut self, key: &str, json: &Json) -> Result<bool, String> {
                match key {
                    $(stringify!($column) => {
                        let read: fn(&Json) -> Result<$type, String> = $read;
                        self.$column = Some(read(json)?);
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// The value of a column as text, if the config has one.
            pub fn get(&self, column: &str) -> Option<String> {
                match column {
                    $(stringify!($column) => self.$column.as_ref().map(ToString::to_string),)*
                    _ => None,
                }
            }
        }
    };
}

column_defaults! {
    active: String, |json| value::interval(json, false);
    live: String, |json| value::interval(json, true);
    repeat: String, |json| value::interval(json, true);
    timeout: String, |json| value::interval(json, true);
    count: i32, |json| value::integer(json, 0..=i32::MAX);
    max: i32, |json| value::integer(json, i32::MIN..=i32::MAX);
    delete: bool, value::boolean;
    drift: bool, value::boolean;
    header: bool, value::boolean;
    save: bool, value::boolean;
    string: bool, value::boolean;
    delimiter: String, value::one_byte;
    escape: String, value::one_byte;
    quote: String, value::one_byte;
    group: String, value::short_text;
    null: String, value::short_text;
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
