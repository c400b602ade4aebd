//! The long command: makes the region, opens the control socket, starts the embedded server if one is wanted, and runs
//! the event loop.

use super::resolve::{unresolved, wanted};
use super::{environment, read_config};
use crate::base::{LauncherBase, Reloaded};
use crate::cli::{Cli, ConfigPlace};
use crate::control::control_socket::ControlSocket;
use crate::control::orders::Orders;
use crate::control::service_manager::ServiceManager;
use crate::embedded::Embedded;
use crate::embedded::own_server::OwnServer;
use crate::event_loop::{Launcher, Parts};
use nix::sys::signal::Signal;
use shared::config::{Config, Environment, Mistake, fixed_keys};
use shared::conninfo::Conninfo;
use shared::process::exit_code::launcher_status;
use shared::process::fault;
use shared::process::kernel_limits;
use shared::process::spawn::Spawner;
use shared::region::{ProcessKind, Region};
use shared::sys::signal::SignalPipe;
use shared::sys::title;
use std::path::PathBuf;
use std::time::Duration;

pub fn run(cli: &Cli) -> u8 {
    title::set("pgmill: launcher");
    shared::log::never_wait();
    let mut config = match read_config(&cli.place) {
        Ok(config) => config,
        Err(mistakes) => return log_mistakes(&mistakes),
    };
    for warning in &config.warnings {
        shared::warning!("config", warning = warning);
    }
    if config.max_workers == 0 {
        shared::info!("launcher exits: max_workers is 0, so no task may run");
        return launcher_status::ORDERLY;
    }
    let named = config.queues.iter().filter(|queue| !queue.is_every()).count();
    if (config.max_workers as usize) < named + 2 {
        shared::warning!(
            "max_workers is too small for all queues; the launcher, each queue and a worker need one each",
            max_workers = config.max_workers,
            queues = named,
        );
    }
    if (config.connections() as usize) < named + 2 {
        shared::warning!(
            "connections is too small for all queues; the launcher, each queue and a worker need one each",
            connections = config.connections(),
            queues = named,
        );
    }
    kernel_limits::raise();
    warn_of_limits(&config, named);
    match start(cli, &mut config) {
        Ok(launcher) => {
            if launcher.run() {
                launcher_status::ORDERLY
            } else {
                launcher_status::FAILED
            }
        }
        Err(Unstartable::Mistakes(mistakes)) => log_mistakes(&mistakes),
        Err(Unstartable::Failed(text)) => {
            shared::error!("launcher cannot start", error = text);
            launcher_status::FAILED
        }
        Err(Unstartable::CalledOff) => launcher_status::ORDERLY,
    }
}

/// What certainly does not fit; the rest is found out when it fails.
fn warn_of_limits(config: &Config, queues: usize) {
    let wanted = u64::from(config.max_workers).saturating_sub(1 + queues as u64);
    let files = kernel_limits::fit_files();
    if files.workers < wanted {
        shared::warning!(
            "max_workers exceeds the limit of open files: fewer tasks run at once; raise the limit (LimitNOFILE=), or lower max_workers",
            max_workers = config.max_workers,
            limit = files.limit,
            workers_that_fit = files.workers,
        );
    }
    if let Some(processes) = kernel_limits::fit_processes(queues as u64).filter(|fit| fit.workers < wanted) {
        shared::warning!(
            "max_workers exceeds the limit of processes: fewer tasks run at once; raise the limit (LimitNPROC=), or lower max_workers",
            max_workers = config.max_workers,
            limit = processes.limit,
            workers_that_fit = processes.workers,
        );
    }
}

enum Unstartable {
    Mistakes(Vec<Mistake>),
    Failed(String),
    /// A signal came while the embedded server was being made.
    CalledOff,
}

fn start(cli: &Cli, config: &mut Config) -> Result<Launcher, Unstartable> {
    let unstartable = |what: &str, error: &dyn std::fmt::Display| Unstartable::Failed(format!("{what}: {error}"));
    let handled = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR2, Signal::SIGCHLD];
    let mut signals =
        SignalPipe::open(&handled).map_err(|error| unstartable("cannot set up signal handling", &error))?;
    fault::attach();
    // Workers of a scheduler that died become our children.
    nix::sys::prctl::set_child_subreaper(true).map_err(|error| unstartable("cannot become a subreaper", &error))?;
    let embedded = match &cli.place.embedded {
        Some(dir) => Some(start_server(dir.clone(), &mut signals)?),
        None => None,
    };
    // Only now: it may lie in the embedded server's folder.
    let control = ControlSocket::open(&config.control).map_err(|error| Unstartable::Failed(error.to_string()))?;
    let server = match &embedded {
        Some(server) => {
            Some(Conninfo::parse(&server.conninfo()).map_err(|error| unstartable("embedded server", &error))?)
        }
        None => None,
    };
    connect_to(config, server.as_ref());
    let Reloaded { target, queues, operators } =
        logins(config, &environment(&cli.place)).map_err(Unstartable::Mistakes)?;
    let connections = config.connections();
    let region = Region::with_connections(config.max_workers, connections)
        .map_err(|error| unstartable("cannot create the shared memory", &error))?;
    let slot = own_slot(&region).ok_or_else(|| Unstartable::Failed("no slot is free for the launcher".into()))?;
    let spawner =
        Spawner::open(&region, slot, ["launcher.before_fork", "launcher.after_fork", "launcher.after_transfer"])
            .map_err(|error| unstartable("cannot create a pipe", &error))?;
    shared::info!(
        "launcher started",
        version = shared::VERSION,
        name = config.name,
        queues = queues.len(),
        control = config.control.display(),
    );
    let place = cli.place.clone();
    let fixed = Fixed::of(config);
    Ok(Launcher::new(Parts {
        base: LauncherBase {
            region,
            name: config.name.clone(),
            target,
            poll: Duration::from_millis(config.poll_ms),
            probe: Duration::from_millis(config.probe_ms),
            operators,
            reload: Box::new(move || reload(&place, server.as_ref(), &fixed)),
        },
        spawner,
        signals,
        orders: Orders::new(control),
        server: OwnServer::new(embedded),
        manager: ServiceManager::from_environment(&|name| std::env::var(name).ok()),
        queues,
    }))
}

fn start_server(dir: PathBuf, signals: &mut SignalPipe) -> Result<Embedded, Unstartable> {
    shared::info!("embedded server is starting", dir = dir.display());
    let mut called_off = false;
    let started = Embedded::start_unless(&dir, &mut || {
        let stop = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT];
        called_off |= signals.received().iter().any(|signal| stop.contains(signal));
        called_off
    });
    match started {
        Ok(server) => {
            shared::info!(
                "embedded server started",
                pid = server.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                major = server.major(),
                user = server.user(),
                adopted = server.adopted(),
                connect = server.conninfo(),
            );
            Ok(server)
        }
        Err(_) if called_off => Err(Unstartable::CalledOff),
        Err(error) => Err(Unstartable::Failed(error.in_full())),
    }
}

/// With an embedded server everything goes there; hosts of the config do not count.
fn connect_to(config: &mut Config, server: Option<&Conninfo>) {
    if let Some(server) = server {
        config.connect = server.over(&config.connect);
    }
}

fn own_slot(region: &Region) -> Option<shared::region::SlotHandle> {
    let slots = region.slots();
    let slot = slots.reserve()?;
    slots.slot_status(slot).open(ProcessKind::Launcher, slot.index(), 0, "");
    slots.transfer(slot, nix::unistd::getpid()).ok()?;
    Some(slot)
}

/// The launcher's own login and those of the queues.
fn logins(config: &Config, environment: Environment<'_>) -> Result<Reloaded, Vec<Mistake>> {
    let mistakes = unresolved(config, environment);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let target = config
        .target(environment)
        .map_err(|error| vec![Mistake { place: "connect".into(), text: error.to_string() }])?;
    let queues = config.queues.iter().filter_map(|queue| wanted(config, queue, environment).ok());
    Ok(Reloaded { target, queues: queues.collect(), operators: config.operators.clone() })
}

/// Settings that a running launcher keeps when the config is read again.
#[derive(Debug, PartialEq)]
struct Fixed {
    name: String,
    max_workers: u32,
    connections: Option<u32>,
    poll_ms: u64,
    probe_ms: u64,
    control: PathBuf,
}

impl Fixed {
    fn of(config: &Config) -> Fixed {
        let Config { name, max_workers, connections, poll_ms, probe_ms, control, .. } = config.clone();
        Fixed { name, max_workers, connections, poll_ms, probe_ms, control }
    }
}

fn reload(place: &ConfigPlace, server: Option<&Conninfo>, fixed: &Fixed) -> Option<Reloaded> {
    let config = read_config(place);
    let read = config.and_then(|mut config| {
        if Fixed::of(&config) != *fixed {
            let keys: Vec<&str> = fixed_keys().collect();
            let (last, first) = keys.split_last().unwrap_or((&"", &[]));
            shared::warning!(format!("config keys {} and {last} take effect at the next start", first.join(", ")));
        }
        connect_to(&mut config, server);
        logins(&config, &environment(place))
    });
    read.map_err(|mistakes| log_mistakes(&mistakes)).ok()
}

fn log_mistakes(mistakes: &[Mistake]) -> u8 {
    for mistake in mistakes {
        shared::error!("config has a mistake", place = mistake.place, text = mistake.text);
    }
    launcher_status::BAD_CONFIG
}
