//! What comes from outside, bent at random: configs, conninfos, the memory that processes share, orders in it.
//!
//! Seeds that are right are bent (bytes cut, doubled, changed, words exchanged), because text that is wrong from its
//! first byte never gets far. Small every day, large with PGMILL_FULL; a failure prints the smallest case. Messages of a
//! hostile server are bent in the worker's and the link's own tests, beside the readers.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::unistd::getpid;
use proptest::prelude::*;
use shared::config::Config;
use shared::conninfo::Conninfo;
use shared::process::order::{SchedulerOrder, WorkerOrder};
use shared::region::{CELL_PAYLOAD_BYTES, ProcessKind, Region};
use tests::sized;

/// In all seeds: nothing that is ever said may contain it.
const SECRET: &str = "hush-4711-hush";

const CONFIGS: [&str; 3] = [
    r#"{"connect": "host=db.example port=5432 user=mill password=hush-4711-hush sslmode=verify-full", "max_workers": 16,
        "poll": "1 s", "control": "mill.sock", "name": "mill", "defaults": {"max": 0, "timeout": "10 min"},
        "json": [{"data": "app"}, {"data": "billing", "user": "billing", "schema": "jobs", "sleep": 100,
        "connect": "passfile=x password='hush-4711-hush'"}]}"#,
    r#"[{"data": "app", "user": "u", "schema": "s", "table": "t", "sleep": 1000, "reset": "1 h", "run": 5}]"#,
    r#"{"connect": "postgresql://mill:hush-4711-hush@[::1]:5432,b:1/app?sslmode=disable", "json": []}"#,
];

const CONNINFOS: [&str; 4] = [
    "host=a,b port=1,2 user='me' password=hush-4711-hush dbname=x sslmode=require connect_timeout=5 options='-c a=b'",
    "postgresql://me:hush-4711-hush@host:5433,[::1]:1/app?connect_timeout=5&options=-c%20a%3Db&target_session_attrs=any",
    "host=/tmp user=u dbname='d b' passfile=/nowhere sslrootcert=system channel_binding=require password='hush-4711-hush'",
    "hostaddr=127.0.0.1 host=name service=none keepalives=0 tcp_user_timeout=5 password=hush-4711-hush",
];

#[derive(Debug, Clone)]
enum Bend {
    Cut { at: usize, count: usize },
    Double { at: usize, count: usize },
    Put { at: usize, text: String },
    Change { at: usize, byte: u8 },
}

fn bends() -> impl Strategy<Value = Vec<Bend>> {
    let words = prop::sample::select(vec![
        "\0",
        "'",
        "\"",
        "\\",
        "\\u0000",
        "\\ud800",
        "{",
        "[[[[[[[[",
        "]",
        "}",
        ",",
        ":",
        "=",
        "%00",
        "%zz",
        "@",
        "/",
        "?",
        "&",
        "é",
        "-1",
        "1e999",
        "99999999999999999999",
        "null",
        "true",
        " ",
        "\n",
        "../../../../etc/passwd",
        "password=",
        "\u{2028}",
        "json",
        "service=",
        "host=",
    ]);
    let bend = prop_oneof![
        (any::<usize>(), 1..40usize).prop_map(|(at, count)| Bend::Cut { at, count }),
        (any::<usize>(), 1..40usize).prop_map(|(at, count)| Bend::Double { at, count }),
        (any::<usize>(), words).prop_map(|(at, text)| Bend::Put { at, text: text.to_owned() }),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Bend::Change { at, byte }),
    ];
    prop::collection::vec(bend, 0..6)
}

fn bent(seed: &str, bends: &[Bend]) -> String {
    let mut bytes = seed.as_bytes().to_vec();
    for bend in bends {
        let length = bytes.len().max(1);
        match bend {
            Bend::Cut { at, count } => {
                let from = at % length;
                bytes.drain(from.min(bytes.len())..(from + count).min(bytes.len()));
            }
            Bend::Double { at, count } => {
                let from = (at % length).min(bytes.len());
                let part = bytes[from..(from + count).min(bytes.len())].to_vec();
                bytes.splice(from..from, part);
            }
            Bend::Put { at, text } => {
                let from = (at % length).min(bytes.len());
                bytes.splice(from..from, text.bytes());
            }
            Bend::Change { at, byte } => {
                if let Some(place) = bytes.get_mut(at % length) {
                    *place = *byte;
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn config() -> ProptestConfig {
    // The memory of what failed before is the repository's business, not this run's.
    ProptestConfig { cases: sized(400, 200_000), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_bent_config_is_a_config_or_has_mistakes_and_tells_no_secret(seed in 0..CONFIGS.len(), bends in bends()) {
        let text = bent(CONFIGS[seed], &bends);
        let nothing = |_: &str| None;
        match Config::parse(&text, Path::new("/etc/mill"), &nothing) {
            Ok(config) => {
                let _ = config.target(&nothing);
                for row in &config.queues {
                    let _ = config.queue_target(row, &nothing);
                }
                // Bent, it may have become the value of something that is no secret.
                if bends.is_empty() {
                    let shown = format!("{config:?}");
                    prop_assert!(!shown.contains(SECRET));
                }
            }
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    prop_assert!(!mistake.to_string().contains(SECRET), "{mistake}");
                }
            }
        }
    }

    #[test]
    fn a_bent_conninfo_is_a_target_or_refused_and_tells_no_secret(seed in 0..CONNINFOS.len(), bends in bends()) {
        let text = bent(CONNINFOS[seed], &bends);
        let environment = |name: &str| (name == "PGUSER").then(|| "somebody".to_owned());
        let said = match Conninfo::parse(&text) {
            Ok(conninfo) => {
                // A secret that was bent into another keyword's value is none any more.
                let target = conninfo.resolve(&environment);
                let moved = Conninfo::keywords().any(|word| {
                    !matches!(word, "password" | "sslpassword") && conninfo.get(word).is_some_and(|value| value.contains(SECRET))
                });
                if moved { String::new() } else { format!("{conninfo} {conninfo:?} {target:?}") }
            }
            Err(error) => error.to_string(),
        };
        prop_assert!(!said.contains(SECRET), "{text}: {said}");
    }

    #[test]
    fn an_order_of_any_bytes_is_an_order_or_unreadable(bytes in prop::collection::vec(any::<u8>(), 0..300), bends in bends()) {
        let _ = serde_json::from_slice::<WorkerOrder>(&bytes);
        let text = bent(r#"{"target":{},"schema":"public","table":"task","task":1,"attempt":1,"output_limit":5}"#, &bends);
        let _ = serde_json::from_str::<WorkerOrder>(&text);
        let _ = serde_json::from_str::<SchedulerOrder>(&text);
    }

    /// Whoever writes where he should not: nobody panics, and nobody runs an order that was not meant.
    #[test]
    fn a_region_with_stray_bytes_never_runs_a_wrong_order(
        payload in prop::collection::vec(any::<u8>(), 0..CELL_PAYLOAD_BYTES),
        strays in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..24)), 0..40),
    ) {
        let region = Region::create(2).unwrap();
        let slot = region.slots().reserve().unwrap();
        let ticket = region.fill(slot, &payload).unwrap();
        let status = region.slots().slot_status(slot);
        status.open(ProcessKind::Worker, 0, 1, "label");
        let memory = File::from(region.as_fd().try_clone_to_owned().unwrap());
        let size = memory.metadata().unwrap().len() as usize;
        // the head is written once, before anybody else is there
        for (place, bytes) in &strays {
            memory.write_at(bytes, (64 + place.index(size - 64 - bytes.len())) as u64).unwrap();
        }
        if let Ok(read) = region.accept(ticket) {
            prop_assert_eq!(read, payload);
        }
        let _ = region.accept_published(slot.index());
        for holder in region.slots().holders() {
            let status = region.slots().slot_status(holder.handle);
            let _ = (status.kind(), status.phase(), status.label(), status.reason(), status.running(), status.requested());
            let _ = (status.started_ms(), status.parent(), status.beat(), status.size(), status.wants_slot());
        }
        let _ = (region.connections(), region.take_connection_permit(), region.take_connect_permit(1), region.slots().used(), region.cells_in_use());
        region.free(ticket);
        region.sweep(getpid());
        let _ = region.slots().reserve();
    }
}
