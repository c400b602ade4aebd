//! A way that is cut, not closed: no end of a connection is told, neither to us nor to the server. A second host,
//! made of a network namespace, loses its cable in the middle of a task.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::{Cluster, Supervisor};

/// A host of its own behind a cable that can be pulled.
struct Host {
    name: String,
    cable: String,
}

const SERVER: &str = "10.213.77.1";

impl Host {
    /// None where that may not be made: only root makes namespaces.
    fn new() -> Option<Host> {
        let number = std::process::id();
        let host = Host { name: format!("mill{number}"), cable: format!("mill{number}a") };
        let far = format!("mill{number}b");
        let steps = [
            format!("netns add {}", host.name),
            format!("link add {} type veth peer name {far} netns {}", host.cable, host.name),
            format!("addr add {SERVER}/30 dev {}", host.cable),
            format!("link set {} up", host.cable),
            format!("-n {} addr add 10.213.77.2/30 dev {far}", host.name),
            format!("-n {} link set {far} up", host.name),
            format!("-n {} link set lo up", host.name),
        ];
        steps.iter().all(|step| ip(step)).then_some(host)
    }

    fn pull(&self) {
        assert!(ip(&format!("link set {} down", self.cable)), "pull the cable");
    }

    fn plug(&self) {
        assert!(ip(&format!("link set {} up", self.cable)), "plug the cable in");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.cable));
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_cut_cable_is_noticed_on_both_sides_within_seconds_and_the_task_runs_again() {
    let Some(host) = Host::new() else {
        tests::skip("a cut cable", "no network namespace may be made from here");
        return;
    };
    let cluster =
        Cluster::configure().tcp().setting("listen_addresses", "*").hba("host all all 10.213.77.0/30 trust").start();
    let database = cluster.database();
    let place = format!("host={SERVER} port={}", cluster.server().port);
    let supervisor = Supervisor::bare()
        .in_namespace(&host.name)
        .key("connect", json!(format!("{place} user={}", database.login())))
        .queue(json!({"data": database.name(), "user": database.owner()}))
        .start();
    let id = database.insert("SELECT pg_sleep(300)");
    supervisor.eventually("it runs", || database.task(id).is_some_and(|row| row["state"] == "WORK"));

    host.pull();
    let began = Instant::now();
    supervisor
        .wait("the scheduler notices")
        .within(Duration::from_secs(20))
        .until(|| supervisor.log_contains("queue waits"));
    let noticed = began.elapsed();
    supervisor
        .wait("the server notices that all three are gone")
        .within(Duration::from_secs(20))
        .until(|| database.sessions().is_empty());
    eprintln!("noticed after {noticed:?} here, {:?} on the server", began.elapsed());

    database.run(&format!("UPDATE public.task SET input = 'SELECT 1' WHERE id = {id}"));
    host.plug();
    let row = supervisor.wait("it runs again").within(Duration::from_secs(60)).until(|| database.finished(id));
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()));
}
