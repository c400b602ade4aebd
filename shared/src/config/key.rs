//! Every key of the config but the settings of `settings.rs`: where it may stand, what holds without it, and whether a reload
//! suffices. Reading, the hints at a mistyped key and the tables in docs/reference.md go by these lists.

use super::json::Json;
use super::{ColumnDefaults, Settings};

#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub name: &'static str,
    /// What holds without it, as JSON; empty if that follows from other things.
    built_in: &'static str,
    /// SIGHUP suffices for a new value. Otherwise the launcher has to be started again.
    reloads: bool,
}

const fn reloaded(name: &'static str, built_in: &'static str) -> Key {
    Key { name, built_in, reloads: true }
}

const fn fixed(name: &'static str, built_in: &'static str) -> Key {
    Key { name, built_in, reloads: false }
}

/// They stand beside `json`, for all queues.
pub(super) const GENERAL: &[Key] = &[
    reloaded("connect", ""),
    fixed("name", r#""mill""#),
    fixed("max_workers", "16"),
    fixed("connections", ""),
    fixed("poll", r#""1 s""#),
    fixed("probe", r#""60 s""#),
    fixed("control", ""),
    reloaded("operators", ""),
    reloaded("versions", ""),
    reloaded("defaults", ""),
    reloaded("remotes", ""),
    reloaded("json", ""),
];

/// They stand in a queue of `json`, with any setting.
pub(super) const QUEUE: &[Key] = &[
    reloaded("data", ""),
    reloaded("user", ""),
    reloaded("schema", r#""public""#),
    reloaded("table", r#""task""#),
    reloaded("connect", ""),
    reloaded("enabled", "true"),
    reloaded("upgrade", r#""never""#),
];

/// Older names, which are accepted as well.
const ALIASES: &[(&str, &str)] = &[("lend", "pool")];

/// The present name of a key.
pub(super) fn current(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

impl Key {
    pub fn built_in(&self) -> Option<Json> {
        Json::parse(self.built_in).ok()
    }
}

pub(super) fn is_general(key: &str) -> bool {
    GENERAL.iter().any(|own| own.name == key)
}

pub(super) fn is_of_queue(key: &str) -> bool {
    QUEUE.iter().any(|own| own.name == key)
}

pub(super) fn is_setting(key: &str) -> bool {
    settings().any(|own| own == key)
}

/// What a queue or `defaults` may set.
pub(super) fn settings() -> impl Iterator<Item = &'static str> {
    Settings::KEYS.iter().chain(ColumnDefaults::KEYS).copied()
}

/// The general keys for whose new value the launcher has to be started again.
pub fn fixed_keys() -> impl Iterator<Item = &'static str> {
    GENERAL.iter().filter(|key| !key.reloads).map(|key| key.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = include_str!("../../../docs/reference.md");

    /// The cells of the rows of a section's tables.
    fn rows(section: &str) -> Vec<Vec<&'static str>> {
        let (_, rest) = REFERENCE.split_once(&format!("\n## {section}\n")).expect("the section");
        let lines = rest.split("\n## ").next().unwrap_or_default().lines();
        let cells =
            lines.filter_map(|line| line.strip_prefix("| ")).map(|line| line.split('|').map(str::trim).collect());
        cells.collect()
    }

    /// A value as the reference shows it.
    fn shown(json: Option<Json>) -> String {
        match json {
            None => String::new(),
            Some(Json::Text(text)) => text,
            Some(Json::Integer(number)) => number.to_string(),
            Some(Json::Bool(value)) => value.to_string(),
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_reference_has_every_key_of_the_config_with_its_default() {
        let rows = rows("Config");
        let documented: Vec<&[&str]> = rows.iter().map(|row| &row[..3]).collect();
        let general =
            GENERAL.iter().map(|key| vec![key.name.to_owned(), shown(key.built_in()), yes(key.reloads).to_owned()]);
        let head = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let mut wanted = vec![head(["key", "default", "HUP"])];
        wanted.extend(general);
        let of_queues: Vec<_> = QUEUE.iter().map(|key| vec![key.name.to_owned(), shown(key.built_in())]).collect();
        assert!(QUEUE.iter().all(|key| key.reloads));
        assert_eq!(documented[..wanted.len()], wanted);
        let documented: Vec<&[&str]> = rows[wanted.len() + 1..].iter().map(|row| &row[..2]).collect();
        assert_eq!(documented, of_queues);
    }

    fn yes(value: bool) -> &'static str {
        if value { "yes" } else { "no" }
    }

    #[test]
    fn the_reference_has_every_setting_with_its_default_and_what_overrides_it() {
        let rows = rows("Settings");
        for (key, overrides) in Settings::OVERRIDES {
            let row = rows.iter().find(|row| row[1] == *key).unwrap_or_else(|| panic!("{key} is not documented"));
            assert_eq!(row[0], overrides.join(", "), "{key}");
            let default = match row[2] {
                // no number of tasks says so, and no length of time
                "unlimited" | "off" => continue,
                "true" | "false" => Json::Bool(row[2] == "true"),
                text => text.parse().map_or_else(|_| Json::Text(text.to_owned()), Json::Integer),
            };
            let mut settings = Settings::default();
            assert_eq!(settings.set(key, &default), Ok(true), "{key}");
            assert_eq!(settings, Settings::default(), "{key} is {} unless told", row[2]);
        }
        let columns = format!("pg_task.{}", ColumnDefaults::KEYS.join(", "));
        assert_eq!((rows[1][0], rows[1][1]), (columns.as_str(), "the same names"));
        assert_eq!(rows.len(), 2 + Settings::KEYS.len());
    }
}
