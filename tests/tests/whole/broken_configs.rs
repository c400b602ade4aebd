//! Configs that nobody should write: each is refused with its place, and one that is read again leaves the old one in force.

use crate::odd::{no_panic, short};
use serde_json::Value;
use tests::{Cluster, Signal, Supervisor, Workdir, sized};

/// Texts that are no config, with a word of what is wrong with each.
fn broken_configs() -> Vec<(Vec<u8>, &'static str)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let rows = |count: usize| (0..count).map(|n| format!(r#"{{"data":"d{n}"}}"#)).collect::<Vec<_>>().join(",");
    vec![
        (text(""), "line 1 column"),
        (text("null"), "found null"),
        (text("42"), "want an array of queues or an object"),
        (text("\"json\""), "want an array of queues or an object"),
        (vec![0xff, 0xfe, b'[', 0, b']', 0], "not UTF-8"),
        (b"[\0]".to_vec(), "line 1 column"),
        (vec![0; 10_000], "line 1 column"),
        (text(&"[".repeat(3_000_000)), "nested deeper than 64"),
        (text(&"{\"json\":".repeat(500_000)), "nested deeper than 64"),
        (vec![b' '; 17 << 20], "has more than 16 MiB"),
        (text(&format!("[{}]", rows(5_000))), "has 5000 queues, more than 4096"),
        (text(&format!("[{}]", "1,".repeat(2_000_000) + "1")), ""),
        (text(&format!(r#"{{"name":"{}"}}"#, "x".repeat(1_000_000))), "a name has at most 63"),
        (text(&format!(r#"{{"{}":1}}"#, "k".repeat(1_000_000))), "unknown key"),
        (text(r#"{"max_workers":1e400}"#), ""),
        (text(r#"{"max_workers":-1}"#), "want a whole number"),
        (text(r#"{"max_workers":99999999999999999999999999}"#), ""),
        (text(r#"[{"sleep":"1 fortnight of moons"}]"#), "json[0].sleep"),
        (text(r#"[{"repeat":"99999999999 years"}]"#), "json[0].repeat"),
        (text(r#"{"json":[],"json":[]}"#), "appears twice"),
        (text(r#"{"connect":"host='never ends"}"#), "never ends"),
        (text(r#"{"connect":"postgresql://a:b@[::1"}"#), "not a valid URI"),
        (text(r#"{"remotes":{"":"host=a user=b"}}"#), "name of 0 bytes"),
        (text("[{\"data\":\"\u{0}\"}]"), "line 1"),
        (text(r#"[{"data":"a\u0000b"}]"#), "NUL"),
        (text("[{\"data\":\"\\ud800\"}]"), "line 1"),
    ]
}

#[test]
fn broken_huge_deep_and_truncated_configs_are_refused_with_their_place() {
    let workdir = Workdir::new();
    let path = workdir.home().join("mill.json");
    let place = path.display().to_string();
    let write = |bytes: &[u8]| std::fs::write(&path, bytes).expect("write a config");
    for (bytes, words) in broken_configs() {
        write(&bytes);
        let ended = workdir.run(&["check", "--config", &place]);
        let shown = short(&String::from_utf8_lossy(&bytes));
        assert_eq!(ended.code, Some(78), "{shown}: {}", ended.all());
        assert!(ended.all().contains(words), "{shown}: {}", ended.all());
        assert!(!ended.all().contains("panic") && ended.all().len() < 100_000, "{shown}");
    }
    // every way to cut the example short, and random damage: never a panic, never a config that means something else
    let example = include_bytes!("../../../mill.example.json");
    let length = example.trim_ascii_end().len();
    for end in (0..length).step_by(sized(37, 1)) {
        write(&example[..end]);
        let ended = workdir.run(&["check", "--config", &place]);
        assert_eq!(ended.code, Some(78), "cut at {end}: {}", ended.all());
    }
    for n in 0..sized(20, 500) {
        let mut damaged = example.to_vec();
        for k in 0..3 {
            let at = (n * 7_919 + k * 104_729) % damaged.len();
            damaged[at] = damaged[at].wrapping_add((n % 251) as u8 + 1);
        }
        write(&damaged);
        let ended = workdir.run(&["check", "--config", &place]);
        assert!(matches!(ended.code, Some(0 | 78)) && !ended.all().contains("panic"), "damage {n}: {}", ended.all());
    }
}

#[test]
fn a_broken_config_read_again_leaves_the_old_one_in_force() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let good = std::fs::read_to_string(supervisor.config().expect("a config")).expect("its text");
    let count =
        || supervisor.log().lines().iter().filter(|line| line.contains("the former one stays in force")).count();
    for (n, (bytes, _)) in broken_configs().into_iter().enumerate() {
        std::fs::write(supervisor.config().expect("a config"), &bytes).expect("write a config");
        supervisor.signal(Signal::SIGHUP);
        supervisor.eventually("it is refused", || count() > n);
        let id = database.insert("SELECT 1");
        assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    }
    supervisor.rewrite_config(&good);
    supervisor.signal(Signal::SIGHUP);
    supervisor.eventually("a good one counts again", || supervisor.log_contains("config reloaded"));
    assert_eq!(supervisor.schedulers().len(), 1);
    no_panic(&supervisor);
    let status: Value = supervisor.status().expect("it answers");
    assert!(status.is_object());
}
