//! Settings that change how the server writes names, numbers, times and strings, set for the role of a queue: the table stays
//! as it is however often the queue starts, and a task finds what its role has set.

use std::time::Duration;

use serde_json::json;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::asking::{all, one, set_for_owner};

/// Name and value, far from what our statements expect.
const SETTINGS: [(&str, &str); 10] = [
    ("quote_all_identifiers", "on"),
    ("standard_conforming_strings", "off"),
    ("escape_string_warning", "off"),
    ("backslash_quote", "off"),
    ("DateStyle", "German, DMY"),
    ("IntervalStyle", "sql_standard"),
    ("TimeZone", "Asia/Kolkata"),
    ("extra_float_digits", "-15"),
    ("bytea_output", "escape"),
    ("xmlbinary", "hex"),
];

/// Everything that hangs on the table, as the catalog has it.
fn objects(database: &Database) -> Vec<String> {
    all(
        database,
        "SELECT concat_ws(' ', 'index', i.indexrelid, i.indkey, pg_get_indexdef(i.indexrelid)) FROM pg_index i WHERE i.indrelid = 'public.task'::regclass
         UNION ALL SELECT concat_ws(' ', 'trigger', g.oid, g.tgname, g.tgfoid, g.tgtype) FROM pg_trigger g WHERE g.tgrelid = 'public.task'::regclass
         UNION ALL SELECT concat_ws(' ', 'default', d.oid, d.adnum, pg_get_expr(d.adbin, d.adrelid)) FROM pg_attrdef d WHERE d.adrelid = 'public.task'::regclass
         UNION ALL SELECT concat_ws(' ', 'constraint', k.oid, k.conname, k.contype) FROM pg_constraint k WHERE k.conrelid = 'public.task'::regclass
         ORDER BY 1",
    )
}

/// What a session of the role finds.
fn shown(names: &[&str]) -> String {
    names.iter().map(|name| format!("current_setting('{name}')")).collect::<Vec<_>>().join(" || ';' || ")
}

fn launch(database: &Database) -> Supervisor<'_> {
    // its text has all that a literal must have quoted
    Supervisor::of(database)
        .row_key("null", r"it's \N")
        .row_key("sleep", "1 hour")
        .arg("--log-level")
        .arg("debug")
        .start()
}

#[test]
fn settings_of_a_role_that_change_the_servers_texts_change_no_table_and_no_task() {
    let database = Cluster::shared().database();
    for (name, value) in SETTINGS {
        set_for_owner(&database, name, value);
    }
    let first = launch(&database);
    first.finished(&database, database.insert("SELECT 1"));
    let made = objects(&database);
    assert!(made.iter().filter(|line| line.starts_with("index")).count() == 7, "{made:#?}");
    drop(first);
    let names: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
    let expected: String = {
        let mut client = database.connect();
        client.query_one(&format!("SELECT {}", shown(&names)), &[]).expect("the role's settings").get(0)
    };
    assert!(expected.starts_with("on;off;off;off;German, DMY;sql_standard;"), "{expected}");
    for _ in 0..2 {
        let mill = launch(&database);
        // own connection and pooled, in batches, atomic: all find the role's settings
        let input = format!("SELECT {}", shown(&names));
        let plain: Vec<i64> = (0..3).map(|_| database.insert(&input)).collect();
        let live: Vec<i64> =
            (0..12).map(|_| database.insert_with(&input, "live = '1 minute', group = 'live'")).collect();
        let atomic = database.insert_with(&input, "atomic = true, group = 'atomic'");
        for id in plain.iter().chain(&live).chain([&atomic]) {
            let row = mill.finished(&database, *id);
            assert_eq!((&row["state"], &row["output"]), (&json!("DONE"), &json!(expected)), "{row}");
        }
        steadily("nothing is changed", Duration::from_millis(700), || {
            !mill.log_contains("table repaired") && !mill.log_contains("column defaults changed")
        });
        assert_eq!(objects(&database), made, "{}", mill.describe());
    }
    assert_eq!(one::<String>(&database, "SELECT \"null\" FROM public.task LIMIT 1"), r"it's \N");
}
