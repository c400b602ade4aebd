//! From pairs to a `Target`: the service file below them, then the PG* environment, then libpq's defaults.
//!
//! Called when a config is read and by its check. The environment comes in as a function, so that tests
//! (and remote tasks, which must not see ours) bring their own. What can go wrong: values that are none, keywords
//! that this version does not honour (refused by name, `keyword.rs`), a socket path too long for the system.
//! Where the environment is to blame, the error names the variable.

use super::keyword::{self, KEYWORDS, Keyword, Rule};
use super::parse::unknown;
use super::{
    ChannelBinding, Conninfo, ConninfoError, Keepalive, Place, Root, SessionAttributes, Target, Tls, TlsMode,
    TlsVersion, service,
};
use crate::limits::{CONNECT_TIMEOUT_MS, PLACES_MAX, SOCKET_PATH_BYTES_MAX};
use std::net::IpAddr;
use std::path::PathBuf;

/// Debian's libpq looks for the server's socket here.
pub(super) const SOCKET_FOLDER: &str = "/var/run/postgresql";
const PORT: u16 = 5432;

/// A value and the name under which it was found, for messages.
struct NamedValue {
    name: &'static str,
    value: String,
}

struct Lookup<'a> {
    pairs: &'a Conninfo,
    service: Conninfo,
    environment: &'a dyn Fn(&str) -> Option<String>,
    home: Option<PathBuf>,
}

impl Conninfo {
    /// The server and login that these pairs mean. `connect_timeout` is 10 s unless given (0 and less mean not
    /// given, since nothing here waits for ever; 1 counts as 2, as in libpq).
    pub fn resolve(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Target, ConninfoError> {
        self.resolve_or(environment, None)
    }

    /// The same with another database than the user's where none is named.
    pub fn resolve_or(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
        database: Option<&str>,
    ) -> Result<Target, ConninfoError> {
        if self.pairs.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            return Err(ConninfoError::Nul);
        }
        if let Some((name, _)) = self.pairs.iter().find(|(name, _)| keyword::find(name).is_none()) {
            return Err(unknown(name));
        }
        let lookup = Lookup::new(self, environment)?;
        for keyword in KEYWORDS {
            lookup.judge(keyword)?;
        }
        let user = match lookup.value("user") {
            Some(user) => user,
            None => system_user()?,
        };
        let password = lookup.value("password");
        let places = lookup.places()?;
        let tls = lookup.tls()?.filter(|_| places.iter().any(|place| matches!(place, Place::Tcp { .. })));
        Ok(Target {
            places,
            shuffle: lookup.one_of("load_balance_hosts", &[("disable", false), ("random", true)])?.unwrap_or_default(),
            attributes: lookup.one_of("target_session_attrs", &SESSION_ATTRIBUTES)?.unwrap_or_default(),
            passfile: if password.is_some() { None } else { lookup.file("passfile", ".pgpass") },
            password,
            database: lookup.value("dbname").or(database.map(str::to_owned)).unwrap_or_else(|| user.clone()),
            options: lookup.value("options"),
            connect_timeout_ms: lookup.connect_timeout_ms()?,
            keepalive: lookup.keepalive()?,
            tls,
            channel_binding: lookup.one_of("channel_binding", &CHANNEL_BINDINGS)?.unwrap_or_default(),
            prefer: None,
            late_settings: false,
            foreign: false,
            user,
        })
    }
}

impl Conninfo {
    /// The user that is written, or that the service names; not the environment's.
    pub fn user(&self, environment: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let nothing = |name: &str| environment(name).filter(|_| name != "PGUSER");
        Lookup::new(self, &nothing).ok()?.value("user")
    }
}

const SESSION_ATTRIBUTES: [(&str, SessionAttributes); 6] = [
    ("any", SessionAttributes::Any),
    ("read-write", SessionAttributes::ReadWrite),
    ("read-only", SessionAttributes::ReadOnly),
    ("primary", SessionAttributes::Primary),
    ("standby", SessionAttributes::Standby),
    ("prefer-standby", SessionAttributes::PreferStandby),
];

const CHANNEL_BINDINGS: [(&str, ChannelBinding); 3] =
    [("disable", ChannelBinding::Disable), ("prefer", ChannelBinding::Prefer), ("require", ChannelBinding::Require)];

const TLS_MODES: [(&str, Option<TlsMode>); 6] = [
    ("disable", None),
    ("allow", Some(TlsMode::Allow)),
    ("prefer", Some(TlsMode::Prefer)),
    ("require", Some(TlsMode::Require)),
    ("verify-ca", Some(TlsMode::VerifyCa)),
    ("verify-full", Some(TlsMode::VerifyFull)),
];

/// None: older than we speak.
const TLS_VERSIONS: [(&str, Option<TlsVersion>); 4] =
    [("TLSv1", None), ("TLSv1.1", None), ("TLSv1.2", Some(TlsVersion::V1_2)), ("TLSv1.3", Some(TlsVersion::V1_3))];

impl<'a> Lookup<'a> {
    fn new(pairs: &'a Conninfo, environment: &'a dyn Fn(&str) -> Option<String>) -> Result<Lookup<'a>, ConninfoError> {
        let mut lookup = Lookup { pairs, service: Conninfo::default(), environment, home: home(environment) };
        if let Some(name) = lookup.value("service") {
            let system = environment("PGSYSCONFDIR").filter(|folder| !folder.is_empty());
            lookup.service = service::find(&name, lookup.value("servicefile"), lookup.home.as_deref(), system)?;
        }
        Ok(lookup)
    }
    /// What was written, else the service's, else the environment's; an empty text hides those below it and means the
    /// default.
    fn find(&self, keyword: &Keyword) -> Option<NamedValue> {
        let written = self.pairs.get(keyword.name).or_else(|| self.service.get(keyword.name));
        let found = match (written, keyword.variable) {
            (Some(value), _) => NamedValue { name: keyword.name, value: value.to_owned() },
            (None, Some(variable)) => NamedValue { name: variable, value: (self.environment)(variable)? },
            (None, None) => return None,
        };
        (!found.value.is_empty()).then_some(found)
    }

    fn named(&self, name: &str) -> Option<NamedValue> {
        keyword::find(name).and_then(|keyword| self.find(keyword))
    }

    fn value(&self, name: &str) -> Option<String> {
        self.named(name).map(|found| found.value)
    }

    /// A value that is one of a few words; None if it is not given.
    fn one_of<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, ConninfoError> {
        let Some(found) = self.named(name) else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == found.value) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(bad_value(found.name, &format!("one of {}", words.join(", "))))
            }
        }
    }

    fn judge(&self, keyword: &Keyword) -> Result<(), ConninfoError> {
        let Some(NamedValue { name, value }) = self.find(keyword) else { return Ok(()) };
        match keyword.rule {
            Rule::Taken | Rule::Ignored => Ok(()),
            Rule::Refused { instead } => Err(ConninfoError::NotSupported { what: name.to_owned(), instead }),
            Rule::Only { fine, .. } if fine.contains(&value.as_str()) => Ok(()),
            Rule::Only { refused, instead, .. } if refused.contains(&value.as_str()) => {
                Err(ConninfoError::NotSupported { what: format!("{name}={value}"), instead })
            }
            Rule::Only { fine, .. } => Err(bad_value(name, &format!("one of {}", fine.join(", ")))),
        }
    }

    /// A file that was named, else the one in the home folder.
    fn file(&self, name: &str, in_home: &str) -> Option<PathBuf> {
        match self.value(name) {
            Some(path) => Some(PathBuf::from(path)),
            None => self.home.as_ref().map(|home| home.join(in_home)),
        }
    }

    /// Parallel lists, as in libpq: as many addresses as hosts, one port for all or one for each.
    fn places(&self) -> Result<Vec<Place>, ConninfoError> {
        let (host, address, port) = (self.named("host"), self.named("hostaddr"), self.named("port"));
        let list = |found: &Option<NamedValue>| -> Vec<String> {
            found.as_ref().map(|found| found.value.split(',').map(str::to_owned).collect()).unwrap_or_default()
        };
        let (hosts, addresses, ports) = (list(&host), list(&address), list(&port));
        let count = hosts.len().max(addresses.len()).max(1);
        if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
            return Err(ConninfoError::Unmatched { name: "hostaddr", count: addresses.len(), hosts: hosts.len() });
        }
        if ports.len() > 1 && ports.len() != count {
            return Err(ConninfoError::Unmatched { name: "port", count: ports.len(), hosts: count });
        }
        if count > PLACES_MAX {
            return Err(bad_value("host", &format!("at most {PLACES_MAX} servers")));
        }
        let name_of = |found: &Option<NamedValue>| found.as_ref().map_or("", |found| found.name);
        (0..count)
            .map(|index| {
                let given = |list: &[String], index: usize| list.get(index).filter(|text| !text.is_empty()).cloned();
                let number = given(&ports, if ports.len() == 1 { 0 } else { index });
                let names = (name_of(&address), name_of(&port));
                place(given(&hosts, index), given(&addresses, index), number, names)
            })
            .collect()
    }

    fn tls(&self) -> Result<Option<Tls>, ConninfoError> {
        let root = match self.file("sslrootcert", ".postgresql/root.crt") {
            Some(path) if path.as_os_str() == "system" => Root::System,
            Some(path) => Root::File(path),
            None => Root::Nobody,
        };
        let mode = match self.one_of("sslmode", &TLS_MODES)? {
            Some(mode) => mode,
            None if root == Root::System => Some(TlsMode::VerifyFull),
            None => Some(TlsMode::Prefer),
        };
        if root == Root::System && mode.is_some() && mode != Some(TlsMode::VerifyFull) {
            let name = self.named("sslmode").map_or("sslmode", |found| found.name);
            return Err(bad_value(name, "verify-full, since sslrootcert is system"));
        }
        let oldest = self.one_of("ssl_min_protocol_version", &TLS_VERSIONS)?;
        let newest = self.one_of("ssl_max_protocol_version", &TLS_VERSIONS)?;
        let Some(mode) = mode else { return Ok(None) };
        if mode == TlsMode::VerifyFull && !self.every_host_has_a_name() {
            return Err(ConninfoError::NoName);
        }
        let key = self.value("sslkey");
        if key.as_ref().is_some_and(|key| key.contains(':')) {
            let instead = "name a file";
            return Err(ConninfoError::NotSupported { what: "a key of an engine in sslkey".to_owned(), instead });
        }
        if newest == Some(None) || newest.flatten() < oldest.flatten() && newest.is_some() {
            return Err(bad_value("ssl_max_protocol_version", "TLSv1.2 or TLSv1.3, and not less than the least"));
        }
        let certificate = match self.value("sslcertmode").as_deref() {
            Some("disable") => None,
            _ => self.file("sslcert", ".postgresql/postgresql.crt"),
        };
        Ok(Some(Tls {
            mode,
            revoked: self.home.as_ref().map(|home| home.join(".postgresql/root.crl")).filter(|_| root != Root::System),
            root,
            key: certificate.as_ref().and_then(|_| self.file("sslkey", ".postgresql/postgresql.key")),
            certificate,
            sni: self.one_of("sslsni", &[("0", false), ("1", true)])?.unwrap_or(true),
            oldest: oldest.flatten().unwrap_or(TlsVersion::V1_2),
            newest: newest.flatten().unwrap_or(TlsVersion::V1_3),
        }))
    }

    fn every_host_has_a_name(&self) -> bool {
        let hosts = self.value("host").unwrap_or_default();
        self.value("hostaddr").is_none()
            || hosts.split(',').all(|host| !host.is_empty() && !host.starts_with(['/', '@']))
    }

    fn connect_timeout_ms(&self) -> Result<u64, ConninfoError> {
        match self.number("connect_timeout")? {
            Some(seconds @ 1..) => Ok(u64::from(seconds.unsigned_abs().max(2)) * 1_000),
            _ => Ok(CONNECT_TIMEOUT_MS),
        }
    }

    fn keepalive(&self) -> Result<Keepalive, ConninfoError> {
        let usual = Keepalive::default();
        // 0 and less mean the default, which is ours
        let number = |name, usual| {
            Ok(self
                .number(name)?
                .and_then(|value| u32::try_from(value).ok())
                .filter(|value| *value > 0)
                .unwrap_or(usual))
        };
        Ok(Keepalive {
            on: self.number("keepalives")? != Some(0),
            idle_s: number("keepalives_idle", usual.idle_s)?.min(32_767),
            interval_s: number("keepalives_interval", usual.interval_s)?.min(32_767),
            count: number("keepalives_count", usual.count)?.min(127),
            user_timeout_ms: number("tcp_user_timeout", usual.user_timeout_ms)?,
        })
    }

    fn number(&self, name: &str) -> Result<Option<i32>, ConninfoError> {
        let Some(found) = self.named(name) else { return Ok(None) };
        found.value.trim().parse().map(Some).map_err(|_| bad_value(found.name, "a whole number"))
    }
}

/// One server of the lists; `names` are those of the address and the port, for messages.
fn place(
    host: Option<String>,
    address: Option<String>,
    port: Option<String>,
    names: (&str, &str),
) -> Result<Place, ConninfoError> {
    let port = match port.map(|port| port.trim().parse::<u16>()) {
        None => PORT,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return Err(bad_value(names.1, "a number from 1 to 65535")),
    };
    let address =
        address.map(|text| text.parse::<IpAddr>().map_err(|_| bad_value(names.0, "an IP address"))).transpose()?;
    let host = host.unwrap_or_else(|| match address {
        Some(address) => address.to_string(),
        None => SOCKET_FOLDER.to_owned(),
    });
    let is_socket = host.starts_with(['/', '@']);
    match address {
        // the address is what is dialled, even beside a socket's folder
        Some(address) if is_socket => Ok(Place::Tcp { host: address.to_string(), address: Some(address), port }),
        Some(_) => Ok(Place::Tcp { host, address, port }),
        None if is_socket => socket(&host, port),
        None => Ok(Place::Tcp { address: host.parse().ok(), host, port }),
    }
}

fn home(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    match environment("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Some(PathBuf::from(home)),
        None => nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.dir),
    }
}

fn socket(folder: &str, port: u16) -> Result<Place, ConninfoError> {
    let path = format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'));
    if path.len() > SOCKET_PATH_BYTES_MAX {
        let (length, longest) = (path.len(), SOCKET_PATH_BYTES_MAX);
        return Err(ConninfoError::SocketPathTooLong { path, length, longest });
    }
    Ok(Place::Unix { path: PathBuf::from(path) })
}

fn system_user() -> Result<String, ConninfoError> {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) | Err(_) => Err(ConninfoError::NoUser { uid: uid.as_raw() }),
    }
}

fn bad_value(name: &str, wanted: &str) -> ConninfoError {
    ConninfoError::BadValue { name: name.to_owned(), wanted: wanted.to_owned() }
}

#[cfg(test)]
#[path = "resolve/tests.rs"]
mod tests;
