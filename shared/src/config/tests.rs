//! The rules of the config file, each as a sentence, and the properties that hold for any text at all.
//!
//! Beside `mod.rs` because they see the walk as a whole; single values and the file itself are tested where they
//! live. When a rule changes, the test whose name says the rule changes with it.

use super::{Config, Mistake, QueueConfig, Settings};
use crate::conninfo::Place;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop, prop_oneof, proptest};
use std::path::Path;

const EXAMPLE: &str = include_str!("../../../mill.example.json");

fn parse(text: &str) -> Result<Config, Vec<Mistake>> {
    Config::parse(text, Path::new("/etc/mill"), &|_| None)
}

fn config(text: &str) -> Config {
    parse(text).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"))
}

fn told(text: &str) -> Vec<String> {
    parse(text).expect_err(text).iter().map(Mistake::to_string).collect()
}

fn only_queue(text: &str) -> QueueConfig {
    config(text).queues.remove(0)
}

#[test]
fn the_example_is_valid_and_needs_no_superuser() {
    let config = config(EXAMPLE);
    assert_eq!(config.warnings, Vec::<String>::new());
    let users: Vec<_> = config.queues.iter().map(|queue| queue.user.as_str()).collect();
    assert_eq!(users, ["app_tasks", "billing", "reports"]);
    assert_eq!(config.queues[1].settings.sleep_ms, 100);
    assert_eq!(config.queues[2].defaults.timeout.as_deref(), Some("2 hour"));
    assert_eq!(config.queues[1].defaults.timeout.as_deref(), Some("10 min"));
    assert!(!config.queues[2].enabled);
}

#[test]
fn every_key_has_a_default() {
    let empty = config("{}");
    assert_eq!((empty.max_workers, empty.poll_ms, empty.name.as_str()), (16, 1_000, "mill"));
    assert_eq!(empty.control, Path::new("/etc/mill/mill.sock"));
    let queue = &empty.queues[0];
    assert_eq!((queue.identity(), queue.user.as_str()), (("postgres", "public", "task"), "postgres"));
    assert_eq!((queue.enabled, &queue.settings, queue.place.as_str()), (true, &Settings::default(), "json[0]"));
    assert_eq!(Config::without_file(&|_| None).unwrap().queues, empty.queues);
}

#[test]
fn the_environment_says_who_serves_when_no_queue_is_given() {
    let environment = |name: &str| (name == "PGUSER").then(|| "alice".to_owned());
    let without_file = Config::without_file(&environment).unwrap();
    assert_eq!((without_file.queues[0].data.as_str(), without_file.queues[0].user.as_str()), ("postgres", "alice"));
    let parse = |text| Config::parse(text, Path::new("/"), &environment).unwrap();
    assert_eq!(parse("{}").queues[0].user, "alice");
    assert_eq!(parse(r#"{"connect":"user=mill"}"#).queues[0].user, "mill");
    assert_eq!(parse(r#"[{"data":"app"}]"#).queues[0].user, "app");
}

#[test]
fn a_bare_array_is_read_as_pg_task_does() {
    let queue =
        only_queue(r#"[{"data":"app","user":"x","schema":"s","table":"t","sleep":100,"reset":"1 hour","run":5}]"#);
    assert_eq!((queue.identity(), queue.user.as_str()), (("app", "s", "t"), "x"));
    let wanted = Settings { sleep_ms: 100, run: 5, ..Settings::default() };
    assert_eq!(queue.settings, wanted);
}

#[test]
fn an_omitted_user_or_database_comes_from_the_other_or_from_connect() {
    let table = [
        (r#"[{}]"#, "postgres", "postgres"),
        (r#"[{"data":"app"}]"#, "app", "app"),
        (r#"[{"user":"me"}]"#, "me", "me"),
        (r#"[{"data":"app","user":"me"}]"#, "app", "me"),
        (r#"{"connect":"user=mill","json":[{"data":"app"}]}"#, "app", "mill"),
        (r#"{"connect":"user=mill","json":[{}]}"#, "postgres", "mill"),
        (r#"{"connect":"user=mill"}"#, "postgres", "mill"),
        (r#"{"json":[{"user":"me"}],"connect":"user=mill"}"#, "me", "me"),
        (r#"{"connect":"user=mill","json":[{"data":"app","connect":"user=own"}]}"#, "app", "own"),
        (r#"{"connect":"host=db","json":[{"data":"app"}]}"#, "app", "app"),
    ];
    for (text, data, user) in table {
        let queue = only_queue(text);
        assert_eq!((queue.data.as_str(), queue.user.as_str()), (data, user), "{text}");
    }
}

#[test]
fn defaults_apply_to_all_queues_and_a_queue_overrides_them() {
    let config = config(
        r#"{"json":[{"data":"a"},{"data":"b","sleep":5,"max":2}],"defaults":{"sleep":"2 s","max":1,"group":"g"}}"#,
    );
    let seen: Vec<_> = config.queues.iter().map(|queue| (queue.settings.sleep_ms, queue.defaults.max)).collect();
    assert_eq!(seen, [(2_000, Some(1)), (5, Some(2))]);
    assert!(config.queues.iter().all(|queue| queue.defaults.group.as_deref() == Some("g")));
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_place() {
    let text = r#"{"max_workers":5000,"poll":"soon","nmae":"x","control":7,"name":"",
        "defaults":{"sleeep":1,"timeout":"x"},
        "json":[{"data":"a","sleeep":1},7,{"data":"","user":5},{"data":"b","sleep":0,"enabled":"yes"}]}"#;
    let places: Vec<_> = parse(text).unwrap_err().into_iter().map(|mistake| mistake.place).collect();
    let wanted = [
        "max_workers",
        "poll",
        "nmae",
        "control",
        "name",
        "defaults.sleeep",
        "defaults.timeout",
        "json[0].sleeep",
        "json[1]",
        "json[2].data",
        "json[2].user",
        "json[3].sleep",
        "json[3].enabled",
    ];
    assert_eq!(places, wanted);
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_or_with_where_it_belongs() {
    assert_eq!(told(r#"[{},{},{"sleeep":1}]"#), [r#"json[2].sleeep: unknown key; did you mean "sleep"?"#]);
    assert_eq!(told(r#"{"max_wrokers":1}"#), [r#"max_wrokers: unknown key; did you mean "max_workers"?"#]);
    assert_eq!(told(r#"{"zzzzzz":1}"#), ["zzzzzz: unknown key"]);
    assert_eq!(told(r#"{"//me:hush@host":1}"#), ["(a key of 14 characters): unknown key"]);
    for (text, word) in [
        (r#"{"sleep":1}"#, "\"defaults\""),
        (r#"{"data":"a"}"#, "a queue"),
        (r#"{"defaults":{"user":"a"}}"#, "a queue"),
        (r#"[{"password":"s3cret"}]"#, "\"connect\""),
        (r#"[{"max_workers":1}]"#, "beside \"json\""),
    ] {
        let told = told(text).concat();
        assert!(told.contains("it belongs") && told.contains(word) && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn a_star_means_every_database_and_names_no_user_unless_it_is_told() {
    let config =
        config(r#"{"connect":"user=mill","max_workers":10,"operators":"ops","probe":"5 s","json":[{"data":"*"}]}"#);
    let queue = &config.queues[0];
    assert!(queue.is_every() && queue.user.is_empty());
    let target = config.queue_target(queue, &|_| None).unwrap();
    assert_eq!((target.user.as_str(), target.database.as_str()), ("mill", "postgres"));
    assert_eq!((config.operators.as_deref(), config.probe_ms), (Some("ops"), 5_000));
    // found databases can be as many as there are slots
    assert_eq!(config.connections(), 10 + 2 * 10 + 2);
    let named = only_queue(r#"[{"data":"*","user":"other","connect":"host=/tmp"}]"#);
    assert_eq!(named.user, "other");
    // the launcher's own login is no user of tasks; what the queue's connect names is
    let own = only_queue(r#"[{"data":"*","connect":"user=other"}]"#);
    assert_eq!(own.user, "other");
}

#[test]
fn remotes_are_named_conninfos_that_stand_for_themselves() {
    let config = config(r#"{"remotes":{"reporting":"host=db user=app password=s3cret"},"json":[]}"#);
    assert!(config.has_password() && !format!("{config:?}").contains("s3cret"));
    for (text, word) in [
        (r#"{"remotes":[]}"#, "remotes: found an array, want an object"),
        (r#"{"remotes":{"a":1}}"#, "remotes.a: found a whole number"),
        (r#"{"remotes":{"a=b":"host=x user=y"}}"#, "reads like a conninfo"),
        (r#"{"remotes":{"a":"user=y password=s3cret"}}"#, "remotes.a: remote has no host"),
        (r#"{"remotes":{"a":"host=x password=s3cret"}}"#, "remotes.a: remote has no user"),
        (r#"{"remotes":{"a":"host=x user=y hots=z"}}"#, "did you mean \"host\"?"),
        (r#"{"remotes":{"a":"host=x user=y","a":"host=x user=y"}}"#, "remotes.a: appears twice"),
    ] {
        let told = told(text).concat();
        assert!(told.contains(word) && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn a_key_that_stands_twice_is_a_mistake() {
    assert_eq!(told(r#"{"name":"a","name":"b"}"#), ["name: appears twice"]);
    assert_eq!(told(r#"[{"data":"a","data":"a"}]"#), ["json[0].data: appears twice"]);
    let older = "json[0].lend: appears twice: it is an older name of pool";
    assert_eq!(told(r#"[{"pool":true,"lend":true}]"#), [older]);
    assert_eq!(told(r#"{"defaults":{"max":1,"max":1}}"#), ["defaults.max: appears twice"]);
}

#[test]
fn a_syntax_error_is_named_by_line_and_column() {
    assert_eq!(told("[\n {},\n]"), ["line 3 column 1: trailing comma"]);
    assert!(told("[{} // x\n]").concat().contains("JSON has no comments"));
    assert!(told(&"[".repeat(100_000)).concat().contains("nested deeper than 64"));
    assert!(told("").concat().starts_with("line 1 column 0: EOF"));
    assert_eq!(told("7"), ["file: found a whole number, want an array of queues or an object"]);
    assert_eq!(told(r#"{"json":{}}"#), ["json: found an object, want an array of queues"]);
}

#[test]
fn a_byte_order_mark_is_tolerated() {
    assert_eq!(config("\u{feff}[{\"data\":\"a\"}]").queues.len(), 1);
}

#[test]
fn equal_queues_collapse_and_different_ones_are_mistakes_at_both_places() {
    let same = config(r#"[{"data":"a"},{"data":"b"},{"data":"a","user":"a","table":"task"}]"#);
    assert_eq!(same.queues.len(), 2);
    assert_eq!(same.warnings, ["json[2] repeats json[0]: the queue is served once"]);
    let user = told(r#"[{"data":"a"},{"data":"a","user":"b"}]"#);
    assert_eq!(user[0], "json[0]: serves public.task in a, which json[1] serves with another user");
    assert_eq!(user[1], "json[1]: serves public.task in a, which json[0] serves with another user");
    let settings = told(r#"[{"data":"a"},{"data":"a","sleep":5}]"#);
    assert!(settings.len() == 2 && settings[1].ends_with("with other settings"), "{settings:?}");
    assert_eq!(config(r#"[{"data":"a"},{"data":"a","table":"t"},{"data":"a","schema":"s"}]"#).queues.len(), 3);
}

#[test]
fn names_are_limited_in_length_and_content() {
    let long = "x".repeat(64);
    for name in [long.as_str(), "", "a\\u0000b"] {
        for key in ["data", "user", "schema", "table"] {
            let told = told(&format!(r#"[{{"{key}":"{name}"}}]"#));
            assert!(told.len() == 1 && told[0].starts_with(&format!("json[0].{key}: ")), "{told:?}");
        }
    }
}

#[test]
fn no_workers_and_no_queues_are_legal() {
    assert_eq!(config(r#"{"max_workers":0}"#).max_workers, 0);
    let empty = config("[]");
    assert!(empty.queues.is_empty() && empty.warnings[0].contains("nothing is served"));
}

#[test]
fn paths_count_from_the_files_folder_and_sockets_are_short() {
    assert_eq!(config(r#"{"control":"x.sock"}"#).control, Path::new("/etc/mill/x.sock"));
    assert_eq!(config(r#"{"control":"/run/x.sock"}"#).control, Path::new("/run/x.sock"));
    let long = told(&format!(r#"{{"control":"/{}"}}"#, "x".repeat(107)));
    assert!(long[0].starts_with("control: ") && long[0].contains("108 bytes"), "{long:?}");
    assert_eq!(told(r#"{"control":""}"#), ["control: is empty; want a path"]);
}

#[test]
fn an_unusable_connect_is_a_mistake_where_it_stands_and_told_once() {
    let told = told(
        r#"{"connect":"sslcrl=x","json":[{"data":"a","connect":"requirepeer=x"},{"data":"b","connect":"port=1"}]}"#,
    );
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("connect: sslcrl is not supported"), "{told:?}");
    assert!(told[1].starts_with("json[0].connect: requirepeer is not supported"), "{told:?}");
}

#[test]
fn a_bad_environment_is_a_mistake_that_names_the_variable() {
    let environment = |name: &str| (name == "PGSSLMODE").then(|| "maybe".to_owned());
    let mistakes = Config::parse("[]", Path::new("/"), &environment).unwrap_err();
    assert!(mistakes[0].text.starts_with("PGSSLMODE has a value"), "{mistakes:?}");
    assert!(Config::without_file(&environment).is_err());
}

#[test]
fn a_service_names_the_login_of_queues_and_the_launchers_database() {
    let folder = std::env::temp_dir().join(format!("mill-config-service-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(".pg_service.conf"), "[s]\nhost=/tmp\nuser=login\ndbname=maintenance\n").unwrap();
    let home = folder.display().to_string();
    let environment = |name: &str| (name == "HOME").then(|| home.clone());
    let config = Config::parse(r#"{"connect":"service=s","json":[{"data":"a"}]}"#, Path::new("/"), &environment);
    let config = config.unwrap();
    assert_eq!((config.queues[0].user.as_str(), config.queues[0].data.as_str()), ("login", "a"));
    assert_eq!(config.target(&environment).unwrap().database, "maintenance");
    assert_eq!(config.queue_target(&config.queues[0], &environment).unwrap().database, "a");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_budget_of_connections_grows_with_workers_and_rows_unless_told() {
    assert_eq!(config(r#"{"max_workers":4,"json":[{"data":"a"},{"data":"b"}]}"#).connections(), 10);
    assert_eq!(config(r#"{"connections":7}"#).connections(), 7);
    assert!(told(r#"{"connections":1}"#)[0].starts_with("connections: "));
}

#[test]
fn a_queues_connect_may_not_contradict_the_queue() {
    let told = told(r#"[{"data":"a","user":"u","connect":"user=v dbname=b"}]"#);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("json[0].connect: its ")), "{told:?}");
    config(r#"[{"data":"a","user":"u","connect":"user=u dbname=a"}]"#);
}

#[test]
fn a_queue_logs_in_as_its_user_over_the_general_connect() {
    let config = config(
        r#"{"connect":"host=/tmp port=6 user=mill password=p","json":[{"data":"a","user":"u","connect":"port=7"}]}"#,
    );
    let target = config.queue_target(&config.queues[0], &|_| None).unwrap();
    assert_eq!(target.places[0], Place::Unix { path: "/tmp/.s.PGSQL.7".into() });
    assert_eq!((target.user.as_str(), target.database.as_str()), ("u", "a"));
    let own = config.target(&|_| None).unwrap();
    assert_eq!((own.user.as_str(), own.database.as_str()), ("mill", "postgres"));
    let named = config.target(&|name| (name == "PGDATABASE").then(|| "m".to_owned())).unwrap();
    assert_eq!(named.database, "m");
}

#[test]
fn nothing_that_is_shown_shows_a_password() {
    let config = config(r#"{"connect":"password=s3cret","json":[{"connect":"password=s3cret"}]}"#);
    assert!(!format!("{config:?}").contains("s3cret") && config.has_password());
    let told = told(r#"{"connect":"password=s3cret hots=x","json":[{"connect":"postgres://u:s3cret@a@b"}]}"#);
    assert!(told.len() == 2 && !told.concat().contains("s3cret"), "{told:?}");
}

#[test]
fn a_flood_of_mistakes_is_counted_not_told() {
    let queues: Vec<_> = (0..300).map(|_| "7").collect();
    let told = told(&format!("[{}]", queues.join(",")));
    assert_eq!((told.len(), told[100].as_str()), (101, "file: and 200 more mistakes"));
    let many = format!("[{}{{}}]", "{},".repeat(5_000));
    assert!(parse(&many).unwrap_err()[0].text.contains("5001 queues, more than 4096"));
}

#[test]
fn an_older_name_of_a_key_is_accepted() {
    for text in [r#"[{"lend":false}]"#, r#"[{"pool":false}]"#, r#"{"defaults":{"lend":false},"json":[{}]}"#] {
        assert!(!parse(text).unwrap().queues[0].settings.pool, "{text}");
    }
}

#[test]
fn a_key_with_strange_characters_is_shown_on_one_line() {
    let told = told("{\"a\\nb\\u001b\":1}");
    assert!(!told[0].contains(char::is_control), "{told:?}");
}

/// Trees that look like configs: known and unknown keys, right and wrong values.
fn trees() -> BoxedStrategy<serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,8}".prop_map(Into::into),
        "[0-9]{1,3} ?(ms|s|min|month|kB)".prop_map(Into::into),
        "(host|user|password|port)=[a-z0-9' ]{0,5}".prop_map(Into::into),
    ];
    let key = "data|user|schema|table|connect|enabled|sleep|timeout|max|json|defaults|control|name|poll|[a-z]{1,8}";
    leaf.prop_recursive(5, 48, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
    .boxed()
}

proptest! {
    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn any_tree_is_either_a_config_or_has_mistakes(tree in trees(), queues in prop::collection::vec(trees(), 0..4)) {
        for text in [tree.to_string(), serde_json::json!({"json": queues}).to_string()] {
            if let Err(mistakes) = parse(&text) {
                assert!(!mistakes.is_empty());
                assert!(mistakes.iter().all(|mistake| !mistake.place.is_empty() && !mistake.text.is_empty()));
            }
        }
    }

    #[test]
    fn a_truncated_config_is_always_a_syntax_error(end in 0..EXAMPLE.trim_end().len()) {
        assert!(told(&EXAMPLE[..end])[0].starts_with("line "));
    }

    #[test]
    fn a_config_with_one_byte_changed_is_survived(at in 0..EXAMPLE.len(), byte in 1u8..127) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = parse(&String::from_utf8(bytes).unwrap());
    }
}
