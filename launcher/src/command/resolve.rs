//! The queues of a config with their logins, and mistakes that are known only together with the environment.

use crate::limits::LEARNT_BYTES;
use crate::queue::wanted::{Origin, WantedQueue};
use shared::config::{Config, Environment, Mistake, QueueConfig};
use shared::conninfo::ConninfoError;
use shared::process::order::{WaitFor, encode};
use shared::region::CELL_PAYLOAD_BYTES;
use std::path::PathBuf;

/// Logins that cannot be resolved, and queues whose parameters are too long.
pub fn unresolved(config: &Config, environment: Environment<'_>) -> Vec<Mistake> {
    let general =
        config.target(environment).err().map(|error| Mistake { place: "connect".into(), text: error.to_string() });
    let queues = config.queues.iter().filter_map(|queue| match wanted(config, queue, environment) {
        Err(error) => Some(Mistake { place: queue.place.clone(), text: error.to_string() }),
        Ok(wanted) => untellable(config, &wanted),
    });
    let mut mistakes: Vec<Mistake> = general.into_iter().chain(queues).collect();
    mistakes.dedup();
    mistakes
}

/// A queue with its login and all parameters of its scheduler.
pub fn wanted(
    config: &Config,
    queue: &QueueConfig,
    environment: Environment<'_>,
) -> Result<WantedQueue, ConninfoError> {
    let target = config.queue_target(queue, environment)?;
    let installer = config.installer(queue, &target, environment);
    let versions = config.versions.clone().unwrap_or_else(beside_us);
    let (remotes, launcher) = (config.remotes.clone(), config.name.clone());
    Ok(WantedQueue {
        config: queue.clone(),
        target,
        installer,
        versions,
        remotes,
        launcher,
        refusal: None,
        as_owner: false,
    })
}

/// Where the programs of other versions are, unless the config names a folder: beside this one.
fn beside_us() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(&own).join("versions")
}

/// The parameters of a scheduler must fit into its cell.
fn untellable(config: &Config, wanted: &WantedQueue) -> Option<Mistake> {
    let longest = WaitFor { message: Some((i32::MAX, u32::MAX)), marker: true };
    let length = encode(&wanted.order(Origin::Named, longest, true)).len() + LEARNT_BYTES;
    if length <= CELL_PAYLOAD_BYTES {
        return None;
    }
    let too_much = length - CELL_PAYLOAD_BYTES;
    let (place, advice) = if config.remotes.is_empty() {
        (wanted.config.place.clone(), "shorten its connect")
    } else {
        ("remotes".to_owned(), "name fewer remotes or shorten them; a scheduler receives all of them")
    };
    Some(Mistake {
        place,
        text: format!(
            "parameters exceed the limit by {too_much} bytes together with {}; {advice}",
            wanted.config.place
        ),
    })
}
